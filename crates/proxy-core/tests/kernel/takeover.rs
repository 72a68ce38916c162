//! Takeovers between upstream kube-proxy and the engine in mode nftables. Each test has
//! its own network namespaces.

use std::net::IpAddr;
use std::time::Duration;

use proxy_core::{Engine, Event, Family, Outcome};
use testkit::generate::{ServiceBuilder, Stack, cluster};
use testkit::lab::Lab;
use testkit::netns::Netns;
use testkit::nft;
use testkit::traffic::{Connection, Probe, Protocol, Server};
use vipline_nftables::Client;
use vipline_service_model::api;

use crate::fixtures::{self, apply, config, service_cidr};
use crate::upstream::{BASE_CHAINS, NodePorts, Upstream, reachable};

/// Tables of other programs beside the table of upstream.
const OTHERS: &str = "
table ip other {
    map service-ips { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop }; }
    chain input { type filter hook input priority 0; policy accept; ip daddr vmap @service-ips; }
}
table inet kube-proxy {
    chain services { counter drop; }
}
table ip6 kube-proxy {
    set cluster-ips { type ipv6_addr; elements = { fd00::1 }; }
}
";

/// Returns the rules of upstream for a cluster, and the events of the cluster.
fn upstream_and_events(services: usize, family: Family) -> (Upstream, Vec<Event>) {
    let stack = match family {
        Family::V4 => Stack::V4,
        Family::V6 => Stack::Dual,
    };
    let mut upstream = Upstream::new(family, NodePorts::Primary);
    let mut events = vec![service_cidr(&["10.96.0.0/12", "fd00:10:96::/112"])];
    for (number, builder) in cluster(services, 5, stack).enumerate() {
        let vips = of_family(builder.service().spec.cluster_ips, family);
        let endpoints = builder
            .slices()
            .into_iter()
            .flat_map(|slice| slice.endpoints);
        let endpoints = of_family(endpoints.flat_map(|endpoint| endpoint.addresses), family);
        let reached = if number % 8 == 7 { 0 } else { endpoints.len() };
        upstream.service(number, vips[0], &endpoints[..reached]);
        events.extend(builder.events());
    }
    (upstream, events)
}

fn of_family(addresses: impl IntoIterator<Item = String>, family: Family) -> Vec<IpAddr> {
    let addresses = addresses.into_iter();
    let addresses = addresses.map(|text| text.parse().expect("an address"));
    addresses
        .filter(|&addr| Family::of(addr) == family)
        .collect()
}

/// Returns the sorted words of a table as nft lists it.
///
/// While the kernel grows the hash table of a set, nft lists some elements twice and
/// others not at all. So the words count only if two listings agree.
fn parts(table: [&str; 2]) -> Vec<String> {
    let mut last = words(table);
    for _ in 0..20 {
        let next = words(table);
        if next == last {
            return next;
        }
        last = next;
    }
    panic!("{table:?} changes all the time");
}

fn words([family, name]: [&str; 2]) -> Vec<String> {
    let listing = nft::succeeds(&["list", "table", family, name], "");
    let parts = listing.split(['{', '}', ',', '\n']).map(str::trim);
    let mut parts: Vec<_> = parts.map(str::to_owned).collect();
    parts.sort_unstable();
    parts
}

/// Returns an engine of one family in the namespace of the calling thread.
fn engine(family: Family, events: impl IntoIterator<Item = Event>) -> Engine {
    let config = config().with_families(vec![family]);
    let mut engine = config.open().expect("the kernel has nf_tables");
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    engine
}

/// Starts an engine. Returns the outcome of its first sync and the number of
/// transactions.
fn start(family: Family, events: impl IntoIterator<Item = Event>) -> (Outcome, u32) {
    let mut client = Client::open().expect("the kernel has nf_tables");
    let mut engine = engine(family, events);
    let mut generation = || client.generation().expect("a generation").0;
    let before = generation();
    let report = engine.poll(Duration::ZERO).expect("a start is due");
    assert!(report.is_success(), "{report}");
    let outcome = report.families[0].outcome.as_ref().expect("a success");
    (outcome.clone(), generation().wrapping_sub(before))
}

fn assert_restart_writes_nothing(family: Family, events: Vec<Event>) {
    let (outcome, transactions) = start(family, events);
    let done = (outcome.edits, transactions, outcome.took_over);
    assert_eq!(done, (0, 0, false));
}

#[test]
fn an_upstream_table_is_replaced_in_one_transaction() {
    for (services, family) in [(3, Family::V4), (100, Family::V6), (1_000, Family::V4)] {
        let (upstream, events) = upstream_and_events(services, family);
        let table = [upstream.family, "kube-proxy"];
        let fresh = Netns::new().unwrap().run(|| {
            let (outcome, _) = start(family, events.clone());
            assert!(!outcome.took_over);
            parts(table)
        });
        Netns::new().unwrap().run(|| {
            upstream.load();
            let (outcome, transactions) = start(family, events.clone());
            assert!(outcome.took_over && outcome.edits > services, "{outcome}");
            assert_eq!(transactions, 1);
            assert_eq!(parts(table), fresh);
            assert_restart_writes_nothing(family, events);
        });
    }
}

#[test]
fn other_tables_are_left_unchanged() {
    let (upstream, events) = upstream_and_events(8, Family::V4);
    Netns::new().unwrap().run(|| {
        upstream.load();
        nft::succeeds(&["-f", "-"], OTHERS);
        let others = [
            ["ip", "other"],
            ["inet", "kube-proxy"],
            ["ip6", "kube-proxy"],
        ];
        let before = others.map(parts);
        assert_eq!(start(Family::V4, events).1, 1);
        assert_eq!(others.map(parts), before);
    });
}

#[test]
fn the_difference_from_upstream_is_a_script_that_nft_applies() {
    let (upstream, events) = upstream_and_events(8, Family::V4);
    Netns::new().unwrap().run(|| {
        upstream.load();
        let mut engine = engine(Family::V4, events.clone());
        let difference = engine.difference().expect("a dump");
        nft::succeeds(&["-f", "-"], &difference.script);
        assert_restart_writes_nothing(Family::V4, events);
    });
}

#[test]
fn connections_survive_a_takeover_from_upstream() {
    let lab = Lab::new().expect("a lab");
    for (family, vip) in [(Family::V4, "10.96.0.10"), (Family::V6, "fd00:10:96::10")] {
        let vip: IpAddr = vip.parse().expect("an address");
        let [one, other] = [&lab.backends[0], &lab.backends[1]].map(|host| {
            let addr = host.addresses()[usize::from(family == Family::V6)];
            let server = Server::start(&host.netns, Protocol::Tcp, (addr, 8080).into(), &host.name);
            (addr, server.expect("a server"))
        });
        let mut upstream = Upstream::new(family, NodePorts::Primary);
        upstream.service(0, vip, &[one.0]);
        lab.node.netns.run(|| upstream.load());
        let probe = Probe::new(Protocol::Tcp, (vip, 80).into());
        let mut connection = Connection::open(&lab.client.netns, probe).expect("upstream forwards");
        assert_eq!(connection.server(), "backend-1");
        connection.exchange("before").expect("an echo");
        let builder =
            ServiceBuilder::new("web")
                .cluster_ip(vip)
                .port(api::TransportProtocol::Tcp, 80, 8080);
        let builder = builder.endpoint(other.0, "node-2");
        let (_, transactions) = lab.node.netns.run(|| start(family, builder.events()));
        assert_eq!(transactions, 1);
        connection.exchange("after").expect("an echo");
        assert_eq!(probe.times(&lab.client.netns, 10).count("backend-2"), 10);
        connection.exchange("still").expect("an echo");
    }
}

/// The listing of fixture `overall` in the layout of the previous version.
const PREVIOUS_LAYOUT: &str = include_str!("upstream/previous-layout.nft");

/// The listing of the same fixture in a layout that looks up all packets in all sets.
const LAYOUT_WITHOUT_NETWORKS: &str = include_str!("upstream/layout-without-networks.nft");

/// The listing of the same fixture in the layout in which each Service with session affinity
/// had maps and chains of its own.
const LAYOUT_WITH_MAPS_OF_SERVICES: &str =
    include_str!("upstream/layout-with-maps-of-services.nft");

/// Returns an engine after its first sync, with additional Services.
fn synced(family: Family) -> Engine {
    let (_, events) = upstream_and_events(16, family);
    let fixture = fixtures::all().into_iter().find(|it| it.name == "overall");
    let overall = fixture.expect("the fixture exists").events;
    let sticky = sticky_with(&[1, 2]);
    let mut engine = engine(family, events.into_iter().chain(overall).chain(sticky));
    let report = engine.poll(Duration::ZERO).expect("a start is due");
    assert!(report.is_success(), "{report}");
    engine
}

/// Returns the events of a dual-stack Service with affinity and many endpoints.
fn sticky_with(hundreds: &[u8]) -> Vec<Event> {
    let addresses = hundreds.iter().flat_map(|hundred| {
        (1..=20).flat_map(move |n| {
            [
                format!("10.9.{hundred}.{n}"),
                format!("fd00:9:{hundred}::{n}"),
            ]
        })
    });
    let addresses: Vec<_> = addresses.collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let builder =
        fixtures::web("10.96.0.200").cluster_ip("fd00:10:96::200".parse().expect("an address"));
    let builder = fixtures::with_endpoints(builder, &addresses);
    let mut service = builder.service();
    service.spec.session_affinity = api::Affinity::ClientIp;
    service.spec.kind = api::ServiceType::NodePort;
    service.spec.ports[0].node_port = 31_999;
    let slices = builder.slices().into_iter().map(Event::from);
    [Event::from(service)].into_iter().chain(slices).collect()
}

fn list(family: &str) -> String {
    let output = nft::run(&["list", "table", family, "kube-proxy"], "");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("the output of nft is UTF-8")
}

#[test]
fn upstream_takes_over_with_its_first_transaction_and_none_of_our_rules_is_reachable() {
    for family in [Family::V4, Family::V6] {
        for node_ports in [NodePorts::Primary, NodePorts::All] {
            let (alone, family_name) = Netns::new().unwrap().run(|| {
                let upstream = Upstream::new(family, node_ports);
                upstream.load();
                (list(upstream.family), upstream.family)
            });
            Netns::new().unwrap().run(|| {
                synced(family);
                Upstream::new(family, node_ports).take_over();
                let both = list(family_name);
                assert_eq!(reachable(&both), reachable(&alone), "{both}");
            });
        }
    }
}

#[test]
fn base_chains_match_those_of_upstream() {
    Netns::new().unwrap().run(|| {
        synced(Family::V4);
        let listing = list("ip");
        let is_base = |text: &&&str| text.contains(" hook ");
        let count = reachable(&listing).values().filter(is_base).count();
        assert!(count <= BASE_CHAINS.len(), "{listing}");
        for (name, kind, hook, priority) in BASE_CHAINS {
            let listing = nft::succeeds(&["-n", "list", "chain", "ip", "kube-proxy", name], "");
            let base = format!("type {kind} hook {hook} priority {priority};");
            assert!(listing.contains(&base), "{base}: {listing}");
        }
    });
}

#[test]
fn a_table_taken_over_by_upstream_is_replaced_in_one_transaction() {
    for family in [Family::V4, Family::V6] {
        let (mut upstream, events) = upstream_and_events(100, family);
        let table = [upstream.family, "kube-proxy"];
        let fresh = Netns::new().unwrap().run(|| {
            start(family, events.clone());
            parts(table)
        });
        Netns::new().unwrap().run(|| {
            synced(family);
            upstream.take_over();
            let (outcome, transactions) = start(family, events.clone());
            assert!(outcome.took_over, "{outcome}");
            assert_eq!(transactions, 1);
            assert_eq!(parts(table), fresh);
            assert_restart_writes_nothing(family, events);
        });
    }
}

#[test]
fn the_previous_layout_is_replaced_in_one_transaction() {
    assert_replaced(PREVIOUS_LAYOUT, true, 1);
}

#[test]
fn a_layout_with_maps_and_chains_of_each_sticky_service_is_changed_in_two_transactions() {
    // The second transaction removes chains and maps that are not used anymore.
    assert_replaced(LAYOUT_WITH_MAPS_OF_SERVICES, false, 2);
}

#[test]
fn a_layout_without_networks_is_changed_in_one_transaction_except_unused_chains() {
    // The second transaction removes load-balancing chains that are not used anymore.
    assert_replaced(LAYOUT_WITHOUT_NETWORKS, false, 2);
}

/// Checks that a start on an older layout ends in the state of a start on an empty kernel.
fn assert_replaced(layout: &str, took_over: bool, transactions: u32) {
    let fixture = fixtures::all().into_iter().find(|it| it.name == "overall");
    let events = fixture.expect("the fixture exists").events;
    let fresh = Netns::new().expect("a namespace").run(|| {
        start(Family::V4, events.clone());
        parts(["ip", "kube-proxy"])
    });
    Netns::new().expect("a namespace").run(|| {
        nft::succeeds(&["-f", "-"], layout);
        let (outcome, commits) = start(Family::V4, events.clone());
        assert_eq!(outcome.took_over, took_over, "{outcome}");
        assert_eq!(commits, transactions);
        assert_eq!(parts(["ip", "kube-proxy"]), fresh);
        assert_restart_writes_nothing(Family::V4, events);
    });
}

#[test]
fn connections_survive_a_takeover_by_upstream() {
    let lab = Lab::new().expect("a lab");
    for (family, vip) in [(Family::V4, "10.96.0.10"), (Family::V6, "fd00:10:96::10")] {
        let vip: IpAddr = vip.parse().expect("an address");
        let [one, other] = [&lab.backends[0], &lab.backends[1]].map(|host| {
            let addr = host.addresses()[usize::from(family == Family::V6)];
            let server = Server::start(&host.netns, Protocol::Tcp, (addr, 8080).into(), &host.name);
            (addr, server.expect("a server"))
        });
        let builder =
            ServiceBuilder::new("web")
                .cluster_ip(vip)
                .port(api::TransportProtocol::Tcp, 80, 8080);
        let builder = builder.endpoint(one.0, "node-2");
        lab.node.netns.run(|| start(family, builder.events()));
        let probe = Probe::new(Protocol::Tcp, (vip, 80).into());
        let mut connection =
            Connection::open(&lab.client.netns, probe).expect("the engine forwards");
        assert_eq!(connection.server(), "backend-1");
        let mut upstream = Upstream::new(family, NodePorts::Primary);
        upstream.service(0, vip, &[other.0]);
        lab.node.netns.run(|| upstream.take_over());
        connection.exchange("after").expect("an echo");
        assert_eq!(probe.times(&lab.client.netns, 10).count("backend-2"), 10);
    }
}
