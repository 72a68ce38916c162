//! Several Services claim one address: the winner, the reports and the cost.
#![cfg(all(feature = "ipvs", feature = "nftables"))]

mod fixtures;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use fixtures::{Both, apply, rival, web, with_endpoints};
use proptest::prelude::*;
use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{
    Address, AddressKind, Claim, Config, Context, Engine, Event, Family, Intervals, Planner,
    PortObjects, Report,
};
use testkit::allocation::{Counting, allocated};
use testkit::generate::Plan;
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::arbitrary::Dice;
use vipline_service_model::{PortName, ServicePort, api};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the configuration of an engine that syncs whenever it is polled.
fn config() -> Config {
    let min = Duration::ZERO;
    Config {
        intervals: Intervals {
            min,
            ..Intervals::default()
        },
        ..fixtures::config()
    }
}

/// A planner whose objects say which service port has which address.
enum Addresses {}

/// An address and the Service that has it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Holding(Address, String);

impl Keyed for Holding {
    type Key<'a> = Address;

    fn key(&self) -> Address {
        self.0
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl Planner for Addresses {
    type Object = Holding;

    fn base(_: &Context) -> Vec<Holding> {
        Vec::new()
    }

    fn requires_replan(_: &Context, _: &Context) -> bool {
        false
    }

    fn port(_: &Context, port: &ServicePort) -> PortObjects<Holding> {
        let ips = [
            (AddressKind::ClusterIp, &[port.cluster_ip][..]),
            (AddressKind::LoadBalancerIp, &port.load_balancer_ips),
            (AddressKind::ExternalIp, &port.external_ips),
        ];
        let ips = ips.into_iter().flat_map(|(kind, ips)| {
            let address = move |&ip| (kind, Address::Ip(ip, port.protocol, port.port));
            ips.iter().map(address)
        });
        let node_port = port.node_port.into_iter();
        let node_port = node_port.map(|number| {
            let address = Address::NodePort(port.protocol, number);
            (AddressKind::NodePort, address)
        });
        let claim = |(kind, address)| Claim {
            address,
            kind,
            objects: vec![Holding(address, port.name.to_string())],
        };
        PortObjects {
            own: Vec::new(),
            claims: ips.chain(node_port).map(claim).collect(),
        }
    }

    fn script<'a>(
        _: Family,
        edits: Vec<Edit<Holding>>,
        _: impl Iterator<Item = &'a Holding>,
    ) -> String {
        format!("{edits:?}")
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Holding>) -> String {
        let lines: BTreeSet<_> = objects
            .map(|Holding(address, service)| format!("{family} {address} {service}\n"))
            .collect();
        lines.into_iter().collect()
    }
}

/// Returns the winner of each address, by definition.
fn winners(services: &BTreeMap<String, api::Service>) -> String {
    let mut claims = Vec::new();
    for service in services.values() {
        let name = service.metadata.object_name();
        let created = service.metadata.creation_timestamp.clone();
        // One of unknown age counts as the youngest.
        let age = (created.is_none(), created, name.to_string());
        let (spec, status) = (&service.spec, &service.status);
        let ingress = status.load_balancer.ingress.iter();
        let kinds = [
            vec![spec.cluster_ip.as_str()],
            ingress.map(|ingress| ingress.ip.as_str()).collect(),
            spec.external_ips.iter().map(String::as_str).collect(),
        ];
        let cluster_ip: IpAddr = spec.cluster_ip.parse().expect("an address");
        let family = Family::of(cluster_ip);
        for (kind, ips) in kinds.into_iter().enumerate() {
            let ips = ips.into_iter().map(|ip| ip.parse().expect("an address"));
            for ip in ips.filter(|&ip| Family::of(ip) == family) {
                let address = Address::Ip(ip, vipline_service_model::Protocol::Tcp, 80);
                claims.push((family, address, kind, age.clone()));
            }
        }
        let number = spec.ports[0].node_port;
        if number != 0 {
            let address = Address::NodePort(vipline_service_model::Protocol::Tcp, number);
            claims.push((family, address, kinds_of_ip(), age.clone()));
        }
    }
    claims.sort();
    let mut seen = BTreeSet::new();
    claims.retain(|&(family, address, ..)| seen.insert((family, address)));
    let holdings = claims
        .into_iter()
        .map(|(family, address, _, age)| (family, Holding(address, age.2 + ":tcp-80")));
    let mut of_family: BTreeMap<Family, Vec<Holding>> = BTreeMap::new();
    for (family, holding) in holdings {
        of_family.entry(family).or_default().push(holding);
    }
    let listing =
        |(family, holdings): (Family, Vec<Holding>)| Addresses::listing(family, holdings.iter());
    of_family.into_iter().map(listing).collect()
}

/// Returns the number of kinds of addresses besides node ports.
const fn kinds_of_ip() -> usize {
    3
}

/// Returns the Services that events leave.
fn remaining(events: &[Event]) -> BTreeMap<String, api::Service> {
    let mut services = BTreeMap::new();
    for event in events {
        match event {
            Event::ServiceApplied(service) => {
                let name = service.metadata.object_name().to_string();
                services.insert(name, service.clone());
            }
            Event::ServiceDeleted(name) => drop(services.remove(&name.to_string())),
            _ => {}
        }
    }
    services
}

/// Returns an engine over kernels in memory that took in events, with syncs in
/// between.
fn played<P: Planner + 'static>(events: &[Event], dice: &mut Dice) -> Engine
where
    P::Object: Send + Sync + 'static,
{
    let mut engine = Both::<P::Object>::default().engine_of::<P>(config());
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    for event in events {
        engine.apply(event.clone());
        if dice.once_in(3) {
            now += Duration::from_secs(60);
            engine.poll(now);
        }
    }
    engine
}

/// Asserts that Services that come in two orders lead to one plan.
fn assert_order_does_not_matter<P: Planner + 'static>(events: &[Event], dice: &mut Dice)
where
    P::Object: Send + Sync + 'static,
{
    let services = remaining(events);
    let mut events: Vec<_> = services.into_values().map(Event::from).collect();
    let desired = played::<P>(&events, dice).desired();
    for last in (1..events.len()).rev() {
        events.swap(
            last,
            usize::from(dice.roll(u8::try_from(last + 1).expect("Services are few"))),
        );
    }
    assert_eq!(played::<P>(&events, dice).desired(), desired);
}

/// Returns a history of Services that claim each other's addresses.
fn history(dice: &mut Dice) -> Vec<Event> {
    (0..40).map(|_| rival(dice)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn after_any_history_each_address_is_with_the_first_claim_by_kind_and_age(seed: u64) {
        let mut dice = Dice::from_seed(seed);
        let events = history(&mut dice);
        let mut engine = played::<Addresses>(&events, &mut dice);
        prop_assert_eq!(engine.desired(), winners(&remaining(&events)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_of_services_does_not_matter_in_any_mode(seed: u64) {
        let mut dice = Dice::from_seed(seed);
        let events = history(&mut dice);
        assert_order_does_not_matter::<nftables::Planner>(&events, &mut dice);
        assert_order_does_not_matter::<iptables::Planner>(&events, &mut dice);
        assert_order_does_not_matter::<ipvs::Planner>(&events, &mut dice);
    }
}

/// The cluster IP of a Service that is younger than `evil/old`.
const WEBHOOK: &str = "10.96.0.50";

/// Returns a Service on port 443 with an endpoint.
fn named(namespace: &str, name: &str, year: u16, plan: &Plan) -> (api::Service, Vec<Event>) {
    let mut service = plan.service();
    service.metadata = api::ObjectMeta::named(namespace, name);
    service.metadata.creation_timestamp = Some(format!("{year}-01-01T00:00:00Z"));
    let slices = plan.slices().into_iter().map(|mut slice| {
        slice.metadata.namespace = namespace.into();
        slice.metadata.name = name.into();
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
        slice.metadata.labels.insert(label, name.into());
        Event::from(slice)
    });
    (service, slices.collect())
}

/// Returns the events of a Service whose cluster IP an older one has as an external
/// IP, and those of the older one.
fn webhook_and_evil() -> [Vec<Event>; 2] {
    let plan = |address: &str, endpoint| {
        let plan = Plan::new("any").at(address.parse().expect("an address"));
        with_endpoints(plan.port(api::Protocol::Tcp, 443, 8443), &[endpoint])
    };
    let (webhook, slices) = named("kube-system", "webhook", 2026, &plan(WEBHOOK, "10.1.0.2"));
    let webhook = [vec![Event::from(webhook)], slices].concat();
    let (mut evil, slices) = named("evil", "old", 2025, &plan("10.96.0.66", "10.1.0.1"));
    evil.spec.external_ips = vec![WEBHOOK.into()];
    [webhook, [vec![Event::from(evil)], slices].concat()]
}

/// Returns the lines of the plan that name a word.
fn lines(engine: &mut Engine, word: &str) -> Vec<String> {
    let desired = engine.desired();
    let lines = desired.lines().filter(|line| line.contains(word));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Asserts that in a mode the lines that name the cluster IP are those of the
/// webhook alone, in any order of events.
fn assert_webhook_wins<P: Planner + 'static>()
where
    P::Object: Send + Sync + 'static,
{
    let dice = || Dice::from_seed(0);
    let [webhook, evil] = webhook_and_evil();
    let alone = lines(&mut played::<P>(&webhook, &mut dice()), WEBHOOK);
    assert!(!alone.is_empty());
    for events in [[&webhook, &evil], [&evil, &webhook]] {
        let events: Vec<_> = events.into_iter().flatten().cloned().collect();
        let mut engine = played::<P>(&events, &mut dice());
        assert_eq!(lines(&mut engine, WEBHOOK), alone);
        // Its endpoint is the only one of an address outside `evil`.
        let Some(Event::ServiceApplied(webhook)) = webhook.first() else {
            panic!("a Service comes first");
        };
        engine.apply(Event::ServiceDeleted(webhook.metadata.object_name()));
        assert_ne!(lines(&mut engine, WEBHOOK), alone, "nobody else wants it");
        apply(&mut engine, events);
        assert_eq!(lines(&mut engine, WEBHOOK), alone);
    }
}

#[test]
fn an_external_ip_never_takes_a_cluster_ip_in_mode_nftables() {
    assert_webhook_wins::<nftables::Planner>();
}

#[test]
fn an_external_ip_never_takes_a_cluster_ip_in_mode_iptables() {
    assert_webhook_wins::<iptables::Planner>();
}

#[test]
fn an_external_ip_never_takes_a_cluster_ip_in_mode_ipvs() {
    assert_webhook_wins::<ipvs::Planner>();
}

/// Returns Services with as many external IPs; `shared`: all have the same.
fn services(count: u16, addresses: u16, shared: bool) -> Vec<Event> {
    let services = (0..count).map(|number| {
        let [high, low] = number.to_be_bytes();
        let mut service = web(&format!("10.96.{high}.{low}")).service();
        service.metadata = api::ObjectMeta::named("default", format!("s-{number:05}"));
        let first = if shared {
            0
        } else {
            u32::from(number) * u32::from(addresses)
        };
        let ips = (first..first + u32::from(addresses))
            .map(|host| IpAddr::V4((0x0b00_0000 + host).into()).to_string());
        service.spec.external_ips = ips.collect();
        service.into()
    });
    services.collect()
}

/// Lets an engine plan and sync Services, and returns the report of the sync.
fn synced<P: Planner + 'static>(events: Vec<Event>) -> Report
where
    P::Object: Send + Sync + 'static,
{
    let mut engine = Both::<P::Object>::default().engine_of::<P>(config());
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    engine.poll(Duration::from_secs(60)).expect("a sync is due")
}

fn assert_contests_are_cheap<P: Planner + 'static>()
where
    P::Object: Send + Sync + 'static,
{
    let work = |shared| allocated(|| synced::<P>(services(400, 25, shared))).0;
    let (contested, uncontested) = (work(true), work(false));
    assert!(
        contested < 2 * uncontested,
        "{contested} bytes instead of {uncontested}"
    );
}

#[test]
fn contested_addresses_are_no_more_work_than_others_in_mode_nftables() {
    assert_contests_are_cheap::<nftables::Planner>();
}

#[test]
fn contested_addresses_are_no_more_work_than_others_in_mode_iptables() {
    assert_contests_are_cheap::<iptables::Planner>();
}

#[test]
fn contested_addresses_are_no_more_work_than_others_in_mode_ipvs() {
    assert_contests_are_cheap::<ipvs::Planner>();
}

#[test]
fn one_change_among_many_claims_is_as_much_work_as_among_few() {
    let work = |count| {
        let events = services(count, 25, true);
        let mut engine = Both::<Holding>::default().engine_of::<Addresses>(config());
        apply(&mut engine, events.iter().cloned());
        engine.apply(Event::Synced);
        engine.poll(Duration::from_secs(60));
        let service = remaining(&events)
            .into_values()
            .next()
            .expect("there are some");
        let name = service.metadata.object_name();
        // The winner of all addresses goes and comes back.
        let mut change = |now| {
            engine.apply(Event::ServiceDeleted(name.clone()));
            engine.poll(Duration::from_secs(now));
            engine.apply(service.clone().into());
            engine.poll(Duration::from_secs(now + 1))
        };
        // Collections may grow the first time.
        change(120);
        let (bytes, report) = allocated(|| change(180));
        assert_eq!(report.expect("a change is due").contested.len(), 25);
        bytes
    };
    let (few, many) = (work(100), work(1000));
    assert!(many < 2 * few, "{many} bytes instead of {few}");
}

#[test]
fn each_contested_address_and_each_service_is_reported_once() {
    let report = synced::<Addresses>(services(50, 20, true));
    assert_eq!(
        (report.contested.len(), report.lost_addresses.len()),
        (20, 49)
    );
    let contested = report.contested[0].to_string();
    assert_eq!(
        contested,
        "11.0.0.0:80/TCP: 50 service ports claim this address; \
         default/s-00000:tcp-80 gets it as its external IP"
    );
    assert_eq!(
        report.lost_addresses[0].to_string(),
        "default/s-00001 does not get 11.0.0.0:80/TCP: default/s-00000:tcp-80 has it as its \
         external IP; nor does it get 19 other addresses"
    );
    let services: BTreeSet<_> = report
        .lost_addresses
        .iter()
        .map(|lost| &lost.service)
        .collect();
    assert_eq!(services.len(), 49);
}

#[test]
fn news_about_an_address_come_when_its_winner_changes_or_a_service_loses_it() {
    let mut engine = Both::<Holding>::default().engine_of::<Addresses>(config());
    let mut now = Duration::ZERO;
    engine.apply(Event::Synced);
    let mut news = |events: Vec<Event>| {
        apply(&mut engine, events);
        now += Duration::from_secs(60);
        let report = engine.poll(now).expect("a change is due");
        let service = |name: &PortName| name.service.to_string();
        let contested = report.contested.iter();
        let contested = contested.map(|it| (service(&it.winner), it.claim_count));
        let lost = report
            .lost_addresses
            .iter()
            .map(|lost| lost.service.name.to_string());
        (contested.collect::<Vec<_>>(), lost.collect::<Vec<_>>())
    };
    let all = services(4, 1, true);
    let none = Vec::<String>::new;
    let is = |name: &str, claims| vec![(name.to_owned(), claims)];
    assert_eq!(news(vec![all[1].clone()]), (vec![], none()));
    assert_eq!(
        news(vec![all[2].clone()]),
        (is("s-00001", 2), vec!["s-00002".into()])
    );
    // Another loser: the address has no news, the Service has.
    assert_eq!(news(vec![all[3].clone()]), (vec![], vec!["s-00003".into()]));
    assert_eq!(
        news(vec![all[0].clone()]),
        (is("s-00000", 4), vec!["s-00001".into()])
    );
    let gone = |number: usize| {
        let Event::ServiceApplied(service) = &all[number] else {
            panic!("a Service");
        };
        vec![Event::ServiceDeleted(service.metadata.object_name())]
    };
    assert_eq!(news(gone(0)), (is("s-00001", 3), none()));
    assert_eq!(news(gone(2)), (vec![], none()));
    assert_eq!(news(gone(3)), (vec![], none()));
    assert_eq!(
        news(vec![all[3].clone()]),
        (is("s-00001", 2), vec!["s-00003".into()])
    );
}
