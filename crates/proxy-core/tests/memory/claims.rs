//! Several Services that claim one address: the owner, the reports and the cost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use proxy_core::backend::{iptables, ipvs, nftables};
use proxy_core::{
    Address, AddressKind, Claim, Config, Context, Engine, Event, Family, Intervals, Planner,
    PortObjects, Report,
};
use testkit::allocation::allocated;
use testkit::generate::ServiceBuilder;
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::arbitrary::Dice;
use vipline_service_model::{NodePortAddresses, PortName, ServicePort, api};

use crate::fixtures::{
    self, MemoryKernels, ModePlanner, apply, random_contender, web, with_endpoints,
};

/// Returns the configuration of an engine that syncs on every poll.
fn config() -> Config {
    let min = Duration::ZERO;
    fixtures::config().with_intervals(Intervals {
        min,
        ..Intervals::default()
    })
}

/// A planner whose objects record the service port that owns an address.
#[derive(Clone, PartialEq)]
struct Addresses;

impl ModePlanner for Addresses {
    fn of(_: &Config) -> Self {
        Self
    }
}

/// An address and the name of the service port that owns it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Ownership(Address, String);

impl Keyed for Ownership {
    type Key<'a> = Address;

    fn key(&self) -> Address {
        self.0
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl Planner for Addresses {
    type Object = Ownership;

    fn base(&self, _: &Context) -> Vec<Ownership> {
        Vec::new()
    }

    fn requires_replan(&self, _: &Context, _: &Context) -> bool {
        false
    }

    fn port(&self, _: &Context, port: &ServicePort) -> PortObjects<Ownership> {
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
            objects: vec![Ownership(address, port.name.to_string())],
        };
        PortObjects {
            own: Vec::new(),
            claims: ips.chain(node_port).map(claim).collect(),
        }
    }

    fn script<'a>(
        _: Family,
        edits: Vec<Edit<Ownership>>,
        _: impl Iterator<Item = &'a Ownership>,
    ) -> String {
        format!("{edits:?}")
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Ownership>) -> String {
        let lines: BTreeSet<_> = objects
            .map(|Ownership(address, service)| format!("{family} {address} {service}\n"))
            .collect();
        lines.into_iter().collect()
    }
}

/// Returns the owner of each address, computed directly from the definition.
fn owners(services: &BTreeMap<String, api::Service>) -> String {
    let mut claims = Vec::new();
    for service in services.values() {
        let name = service.metadata.object_name();
        let created = service.metadata.creation_timestamp.clone();
        // A Service of unknown age counts as the youngest.
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
                let address = Address::Ip(ip, vipline_service_model::Transport::Tcp, 80);
                claims.push((family, address, kind, age.clone()));
            }
        }
        let number = spec.ports[0].node_port;
        if number != 0 {
            let address = Address::NodePort(vipline_service_model::Transport::Tcp, number);
            claims.push((family, address, kinds_of_ip(), age.clone()));
        }
    }
    claims.sort();
    let mut seen = BTreeSet::new();
    claims.retain(|&(family, address, ..)| seen.insert((family, address)));
    let ownerships = claims
        .into_iter()
        .map(|(family, address, _, age)| (family, Ownership(address, age.2 + ":tcp-80")));
    let mut by_family: BTreeMap<Family, Vec<Ownership>> = BTreeMap::new();
    for (family, ownership) in ownerships {
        by_family.entry(family).or_default().push(ownership);
    }
    let listing = |(family, ownerships): (Family, Vec<Ownership>)| {
        Addresses::listing(family, ownerships.iter())
    };
    by_family.into_iter().map(listing).collect()
}

/// Returns the number of kinds of addresses other than node ports.
const fn kinds_of_ip() -> usize {
    3
}

/// Returns the Services that exist after the events.
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

/// Returns an engine over in-memory kernels after applying the events, with syncs in
/// between.
fn engine_after<P: ModePlanner>(events: &[Event], dice: &mut Dice) -> Engine
where
    P::Object: Send + Sync + 'static,
{
    let mut engine = MemoryKernels::<P::Object>::default().engine_of::<P>(config());
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

/// Asserts that two orders of the same Services lead to the same plan.
fn assert_order_independence<P: ModePlanner>(events: &[Event], dice: &mut Dice)
where
    P::Object: Send + Sync + 'static,
{
    let services = remaining(events);
    let mut events: Vec<_> = services.into_values().map(Event::from).collect();
    let desired = engine_after::<P>(&events, dice).desired();
    for last in (1..events.len()).rev() {
        events.swap(
            last,
            usize::from(dice.roll(u8::try_from(last + 1).expect("Services are few"))),
        );
    }
    assert_eq!(engine_after::<P>(&events, dice).desired(), desired);
}

/// Returns random events of Services that claim the same addresses.
fn history(dice: &mut Dice) -> Vec<Event> {
    (0..40).map(|_| random_contender(dice)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn after_any_history_each_address_belongs_to_the_first_claim_by_kind_and_age(seed: u64) {
        let mut dice = Dice::from_seed(seed);
        let events = history(&mut dice);
        let mut engine = engine_after::<Addresses>(&events, &mut dice);
        prop_assert_eq!(engine.desired(), owners(&remaining(&events)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_plan_does_not_depend_on_the_order_of_services_in_any_mode(seed: u64) {
        let mut dice = Dice::from_seed(seed);
        let events = history(&mut dice);
        assert_order_independence::<nftables::Planner>(&events, &mut dice);
        assert_order_independence::<iptables::Planner>(&events, &mut dice);
        assert_order_independence::<ipvs::Planner>(&events, &mut dice);
    }
}

/// The cluster IP of a Service that is younger than `evil/old`.
const WEBHOOK: &str = "10.96.0.50";

/// Returns a Service with a name and a year of creation, and the events of
/// its slices.
fn named(
    namespace: &str,
    name: &str,
    year: u16,
    builder: &ServiceBuilder,
) -> (api::Service, Vec<Event>) {
    let mut service = builder.service();
    service.metadata = api::ObjectMeta::named(namespace, name);
    service.metadata.creation_timestamp = Some(format!("{year}-01-01T00:00:00Z"));
    let slices = builder.slices().into_iter().map(|mut slice| {
        slice.metadata.namespace = namespace.into();
        slice.metadata.name = name.into();
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
        slice.metadata.labels.insert(label, name.into());
        Event::from(slice)
    });
    (service, slices.collect())
}

/// Returns the events of a Service, and those of an older Service that claims the
/// cluster IP of the first as an external IP.
fn webhook_and_evil() -> [Vec<Event>; 2] {
    let builder = |address: &str, endpoint| {
        let builder = ServiceBuilder::new("any").cluster_ip(address.parse().expect("an address"));
        with_endpoints(
            builder.port(api::TransportProtocol::Tcp, 443, 8443),
            &[endpoint],
        )
    };
    let (webhook, slices) = named(
        "kube-system",
        "webhook",
        2026,
        &builder(WEBHOOK, "10.1.0.2"),
    );
    let webhook = [vec![Event::from(webhook)], slices].concat();
    let (mut evil, slices) = named("evil", "old", 2025, &builder("10.96.0.66", "10.1.0.1"));
    evil.spec.external_ips = vec![WEBHOOK.into()];
    [webhook, [vec![Event::from(evil)], slices].concat()]
}

/// Returns the lines of the plan that contain `word`.
fn lines(engine: &mut Engine, word: &str) -> Vec<String> {
    let desired = engine.desired();
    let lines = desired.lines().filter(|line| line.contains(word));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Asserts that only the webhook Service owns its cluster IP, in any order of events.
fn assert_webhook_wins<P: ModePlanner>()
where
    P::Object: Send + Sync + 'static,
{
    let dice = || Dice::from_seed(0);
    let [webhook, evil] = webhook_and_evil();
    let alone = lines(&mut engine_after::<P>(&webhook, &mut dice()), WEBHOOK);
    assert!(!alone.is_empty());
    for events in [[&webhook, &evil], [&evil, &webhook]] {
        let events: Vec<_> = events.into_iter().flatten().cloned().collect();
        let mut engine = engine_after::<P>(&events, &mut dice());
        assert_eq!(lines(&mut engine, WEBHOOK), alone);
        // Without the webhook Service, `evil/old` gets the address.
        let Some(Event::ServiceApplied(webhook)) = webhook.first() else {
            panic!("a Service comes first");
        };
        engine.apply(Event::ServiceDeleted(webhook.metadata.object_name()));
        assert_ne!(
            lines(&mut engine, WEBHOOK),
            alone,
            "`evil/old` owns the address"
        );
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

/// Returns the events of `count` Services with `addresses` external IPs each. If
/// `shared`, all Services have the same external IPs.
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

/// Applies events to a new engine and returns the report of its first sync.
fn first_sync<P: ModePlanner>(events: Vec<Event>) -> Report
where
    P::Object: Send + Sync + 'static,
{
    let mut engine = MemoryKernels::<P::Object>::default().engine_of::<P>(config());
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    engine.poll(Duration::from_secs(60)).expect("a sync is due")
}

fn assert_contests_are_cheap<P: ModePlanner>()
where
    P::Object: Send + Sync + 'static,
{
    let work = |shared| allocated(|| first_sync::<P>(services(400, 25, shared))).0;
    let (contested, uncontested) = (work(true), work(false));
    assert!(
        contested < 2 * uncontested,
        "{contested} bytes instead of {uncontested}"
    );
}

#[test]
fn contested_addresses_cost_no_more_than_others_in_mode_nftables() {
    assert_contests_are_cheap::<nftables::Planner>();
}

#[test]
fn contested_addresses_cost_no_more_than_others_in_mode_iptables() {
    assert_contests_are_cheap::<iptables::Planner>();
}

#[test]
fn contested_addresses_cost_no_more_than_others_in_mode_ipvs() {
    assert_contests_are_cheap::<ipvs::Planner>();
}

#[test]
fn one_change_costs_the_same_among_many_claims_as_among_few() {
    let work = |count| {
        let events = services(count, 25, true);
        let mut engine = MemoryKernels::<Ownership>::default().engine_of::<Addresses>(config());
        apply(&mut engine, events.iter().cloned());
        engine.apply(Event::Synced);
        engine.poll(Duration::from_secs(60));
        let service = remaining(&events)
            .into_values()
            .next()
            .expect("at least one Service");
        let name = service.metadata.object_name();
        // The owner of all addresses is deleted and added again.
        let mut change = |now| {
            engine.apply(Event::ServiceDeleted(name.clone()));
            engine.poll(Duration::from_secs(now));
            engine.apply(service.clone().into());
            engine.poll(Duration::from_secs(now + 1))
        };
        // The first round may grow collections.
        change(120);
        let (bytes, report) = allocated(|| change(180));
        assert_eq!(report.expect("a change is due").contested.len(), 25);
        bytes
    };
    let (few, many) = (work(100), work(1000));
    assert!(many < 2 * few, "{many} bytes instead of {few}");
}

#[test]
fn each_contested_address_and_each_losing_service_is_reported_once() {
    let report = first_sync::<Addresses>(services(50, 20, true));
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
fn a_contest_is_reported_when_the_owner_changes_or_a_service_loses_the_address() {
    let mut engine = MemoryKernels::<Ownership>::default().engine_of::<Addresses>(config());
    let mut now = Duration::ZERO;
    engine.apply(Event::Synced);
    let mut reported = |events: Vec<Event>| {
        apply(&mut engine, events);
        now += Duration::from_secs(60);
        let report = engine.poll(now).expect("a change is due");
        let service = |name: &PortName| name.service.to_string();
        let contested = report.contested.iter();
        let contested = contested.map(|it| (service(&it.owner), it.claim_count));
        let lost = report
            .lost_addresses
            .iter()
            .map(|lost| lost.service.name.to_string());
        (contested.collect::<Vec<_>>(), lost.collect::<Vec<_>>())
    };
    let all = services(4, 1, true);
    let none = Vec::<String>::new;
    let is = |name: &str, claims| vec![(name.to_owned(), claims)];
    assert_eq!(reported(vec![all[1].clone()]), (vec![], none()));
    assert_eq!(
        reported(vec![all[2].clone()]),
        (is("s-00001", 2), vec!["s-00002".into()])
    );
    // A further loser: only the Service is reported.
    assert_eq!(
        reported(vec![all[3].clone()]),
        (vec![], vec!["s-00003".into()])
    );
    assert_eq!(
        reported(vec![all[0].clone()]),
        (is("s-00000", 4), vec!["s-00001".into()])
    );
    let deleted = |number: usize| {
        let Event::ServiceApplied(service) = &all[number] else {
            panic!("a Service");
        };
        vec![Event::ServiceDeleted(service.metadata.object_name())]
    };
    assert_eq!(reported(deleted(0)), (is("s-00001", 3), none()));
    assert_eq!(reported(deleted(2)), (vec![], none()));
    assert_eq!(reported(deleted(3)), (vec![], none()));
    assert_eq!(
        reported(vec![all[3].clone()]),
        (is("s-00001", 2), vec!["s-00003".into()])
    );
}

/// Returns a Service with port `http`.
fn with_http(name: &str, cluster_ip: &str) -> api::Service {
    let mut service = api::Service {
        metadata: api::ObjectMeta::named("default", name),
        ..api::Service::default()
    };
    service.spec.cluster_ip = cluster_ip.into();
    service.spec.ports = vec![api::ServicePortSpec {
        name: "http".into(),
        port: 80,
        ..api::ServicePortSpec::default()
    }];
    service
}

/// Returns the texts about addresses and losers after a poll.
fn reports(report: &Report) -> Vec<String> {
    let contested = report.contested.iter().map(ToString::to_string);
    let lost = report.lost_addresses.iter().map(ToString::to_string);
    contested.chain(lost).collect()
}

fn node_port_beside_an_external_ip<P>()
where
    P: ModePlanner,
    P::Object: Send + Sync,
{
    let everywhere = "0.0.0.0/0".parse().expect("a network");
    let everywhere = NodePortAddresses::Within(vec![everywhere]);
    let kernels = MemoryKernels::<P::Object>::default();
    let mut engine = kernels.engine_of::<P>(config().with_node_port_addresses(everywhere));
    engine.set_addresses(vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]);
    let mut external = with_http("external", "10.96.0.1");
    external.spec.external_ips = vec!["192.0.2.2".into()];
    external.spec.ports[0].port = 30_080;
    let mut node = with_http("node", "10.96.0.2");
    node.spec.kind = api::ServiceType::NodePort;
    node.spec.ports[0].node_port = 30_080;
    engine.apply(node.clone().into());
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    let mut poll = |engine: &mut Engine| {
        let polled = (0..3).find_map(|_| {
            now += Duration::from_secs(1);
            engine.poll(now)
        });
        reports(&polled.expect("a sync"))
    };
    assert!(poll(&mut engine).is_empty());
    engine.apply(external.clone().into());
    let expected = [
        "192.0.2.2:30080/TCP: 2 service ports claim this address; default/external:http gets it \
         as its external IP",
        "default/node does not get 192.0.2.2:30080/TCP: default/external:http has it as its \
         external IP",
    ];
    assert_eq!(poll(&mut engine), expected);
    assert_eq!(engine.contested_count(), 1);
    // It is reported once, and again after the address has gone and come back.
    engine.apply(node.clone().into());
    engine.request_resync();
    assert!(poll(&mut engine).is_empty());
    engine.set_addresses(vec![[192, 0, 2, 1].into()]);
    assert!(poll(&mut engine).is_empty());
    assert_eq!(engine.contested_count(), 0);
    engine.set_addresses(vec![[192, 0, 2, 2].into()]);
    assert_eq!(poll(&mut engine), expected);
    let mut moved = external;
    moved.spec.external_ips = vec!["192.0.2.3".into()];
    engine.apply(moved.into());
    assert!(poll(&mut engine).is_empty());
    assert_eq!(engine.contested_count(), 0);
}

#[test]
fn a_node_port_that_an_external_ip_of_the_node_hides_is_reported_in_every_mode() {
    node_port_beside_an_external_ip::<nftables::Planner>();
    node_port_beside_an_external_ip::<iptables::Planner>();
    node_port_beside_an_external_ip::<ipvs::Planner>();
}
