//! Stale flows: clients with a fixed source port while endpoints change.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use proxy_core::{Event, Family, FlowSearch, Intervals};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use vipline_conntrack::{Client, Flow, Key, Protocol, Status, Tuple};
use vipline_service_model::api;

use crate::fixtures::{apply, config, sync, web, with_endpoints};
use crate::flows::{
    a_client_with_a_fixed_port_reaches_the_current_endpoint,
    attempts_to_connect_move_to_a_new_endpoint_and_connections_stay,
    every_request_is_answered_while_endpoints_change,
    flows_stay_with_an_endpoint_that_is_serving_and_terminating, flows_that_are_not_stale_are_kept,
};
use crate::rules::Rules;

crate::rules::tests_of_rules! {
    all {
        a_client_with_a_fixed_port_reaches_the_current_endpoint
        flows_that_are_not_stale_are_kept
        flows_stay_with_an_endpoint_that_is_serving_and_terminating
        every_request_is_answered_while_endpoints_change
        attempts_to_connect_move_to_a_new_endpoint_and_connections_stay
    }
    iptables {}
}

/// Number of flows in the conntrack table of a busy node.
const MANY: u32 = 20_000;

/// The cluster IP of the Service, its endpoint, and a removed endpoint.
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
const REMOVED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));

/// Returns the flow of a number. Three flows in a hundred are stale.
fn flow(number: u32) -> Flow {
    let first = Ipv4Addr::new(10, 8, 0, 0).to_bits();
    let client = (Ipv4Addr::from_bits(first + number).into(), 40_000);
    let (service, removed) = ((SERVICE, 80), (REMOVED, 8080));
    let (protocol, to, by) = match number % 100 {
        0 => (Protocol::UDP, service, removed),
        1 => (Protocol::UDP, service, service),
        2 | 3 => (Protocol::TCP, service, removed),
        4 => (Protocol::UDP, (SERVICE, 443), removed),
        5 => (Protocol::UDP, service, removed),
        6 => (Protocol::UDP, removed, removed),
        7 => (Protocol::TCP, service, (SERVER, 8080)),
        _ => (Protocol::UDP, service, (SERVER, 8080)),
    };
    let mut flow = Flow::new(
        Tuple::ports(protocol, client, to),
        Tuple::ports(protocol, by, client),
    );
    flow.timeout = Some(3600);
    if to != by {
        flow.status |= Status::DST_NAT;
    }
    if number % 100 != 2 {
        flow.status |= Status::SEEN_REPLY;
    }
    if number % 100 == 5 {
        flow.zone = Some(5);
    }
    flow
}

/// Returns the flows that `conntrack` lists, without timeouts.
fn listed(netns: &Netns) -> BTreeSet<String> {
    let mut program = Command::new("conntrack");
    let program = program.args(["-L", "-f", "ipv4", "-o", "extended"]);
    let output = netns
        .run(|| program.output())
        .expect("the program is installed");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    let without_time = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        [&words[..4], &words[5..]].concat().join(" ")
    };
    text.lines().map(without_time).collect()
}

/// Returns whether a flow is stale, judged by its line only.
fn is_stale(line: &str) -> bool {
    let all = |key: &str| -> Vec<&str> {
        let words = line.split(' ');
        words.filter_map(|word| word.strip_prefix(key)).collect()
    };
    let is_to_service = all("dst=")[0] == "10.96.0.10" && all("dport=")[0] == "80";
    let is_served = all("src=")[1] == "10.1.0.1" && all("sport=")[1] == "8080";
    let is_established = line.contains(" tcp ") && !line.contains("[UNREPLIED]");
    is_to_service && !is_served && !is_established && all("zone=").is_empty()
}

#[test]
fn exactly_the_stale_flows_of_a_large_table_are_deleted() {
    let netns = Netns::new().expect("network namespaces");
    netns.run(|| {
        let mut client = Client::open().expect("the kernel tracks flows");
        let made = client.create_all((0..MANY).map(flow));
        assert_eq!(made.expect("all flows differ"), MANY as usize);
    });
    let before = listed(&netns);
    assert_eq!(before.len(), MANY as usize);
    let left: BTreeSet<_> = before.into_iter().filter(|line| !is_stale(line)).collect();
    let stale = MANY as usize * 3 / 100;
    assert_eq!(left.len(), MANY as usize - stale);

    let rules = Rules::Nftables;
    let mut opened = netns.run(|| rules.open(rules.configured(config())));
    let builder = web("10.96.0.10").port(api::TransportProtocol::Udp, 80, 8080);
    let events = with_endpoints(builder, &["10.1.0.1"]).events();
    apply(
        &mut opened.engine,
        events.into_iter().chain([Event::Synced]),
    );
    let report = netns.run(|| sync(&mut opened.engine, &mut Duration::default()));
    assert!(report.is_success(), "{report}");
    let mut families = report.families.into_iter();
    let done = families.find(|done| done.family == Family::V4);
    let cleaned = done
        .and_then(|done| done.cleanup)
        .expect("conntrack was searched");
    let cleaned = cleaned.expect("conntrack can be searched");
    assert_eq!((cleaned.deleted, cleaned.is_complete), (stale, true));
    let now = listed(&netns);
    let wrong: Vec<_> = now.symmetric_difference(&left).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the events of the Service over these protocols with endpoints at these
/// addresses.
fn served_by(protocols: &[api::TransportProtocol], endpoints: &[&str]) -> Vec<Event> {
    let mut builder = ServiceBuilder::new("web").cluster_ip(SERVICE);
    for protocol in protocols {
        builder = builder.port(protocol.clone(), 80, 8080);
    }
    with_endpoints(builder, endpoints).events()
}

#[test]
fn a_change_dumps_only_the_flows_that_it_may_make_stale() {
    const COUNT: u32 = 2000;
    let netns = Netns::new().expect("network namespaces");
    netns.run(|| {
        let mut client = Client::open().expect("the kernel tracks flows");
        let made = client.create_all((0..COUNT).map(flow));
        assert_eq!(made.expect("all flows differ"), COUNT as usize);
        let rules = Rules::Nftables;
        let mut opened = rules.open(rules.configured(config()));
        opened.engine.apply(Event::Synced);
        let mut now = Duration::ZERO;
        // Returns the numbers of dumps, of returned flows and of deleted flows.
        let mut change = |protocols: &[_], endpoints: &[_]| {
            apply(&mut opened.engine, served_by(protocols, endpoints));
            let report = sync(&mut opened.engine, &mut now);
            assert!(report.is_success(), "{report}");
            let cleaned = report.families.into_iter().filter_map(|done| done.cleanup);
            cleaned.fold((0, 0, 0), |(dumps, checked, deleted), cleaned| {
                let cleaned = cleaned.expect("conntrack can be searched");
                assert!(cleaned.is_complete);
                (
                    dumps + cleaned.dumps,
                    checked + cleaned.checked,
                    deleted + cleaned.deleted,
                )
            })
        };
        let both = [api::TransportProtocol::Udp, api::TransportProtocol::Tcp];
        let percent = COUNT as usize / 100;
        // Flows of new addresses: all UDP flows, without those to other addresses, and TCP
        // flows without a reply.
        let first = change(&both, &["10.1.0.1", "10.1.0.2"]);
        assert_eq!(first, (2, 96 * percent, percent));
        let added = change(&both, &["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"]);
        assert_eq!(added, (0, 0, 0));
        // All UDP flows of the endpoint, and TCP flows without a reply.
        let replaced = change(&both, &["10.1.0.1", "10.1.0.3", "10.1.0.4", "10.1.0.5"]);
        assert_eq!(replaced, (2, 5 * percent, 2 * percent));
        // The UDP port is removed with its flows.
        let tcp_only = [api::TransportProtocol::Tcp];
        let removed = change(&tcp_only, &["10.1.0.1", "10.1.0.3", "10.1.0.4", "10.1.0.5"]);
        assert_eq!(removed.0, 1);
        let replaced = change(&tcp_only, &["10.1.0.1", "10.1.0.3", "10.1.0.4"]);
        assert_eq!(replaced, (1, 0, 0));
    });
}

/// Returns the flow of a client whose address depends on the server.
fn flow_to(server: &str) -> Flow {
    let server: Ipv4Addr = server.parse().expect("an address");
    let client = Ipv4Addr::from_bits(server.to_bits() | 0x0000_8000);
    let client = (client.into(), 40_000);
    let mut flow = Flow::new(
        Tuple::ports(Protocol::UDP, client, (SERVICE, 80)),
        Tuple::ports(Protocol::UDP, (server.into(), 8080), client),
    );
    flow.status |= Status::DST_NAT | Status::SEEN_REPLY;
    flow.timeout = Some(3600);
    flow
}

/// Time from a commit to the deletion of the flows that it made stale.
const MAX_STALE: Duration = Duration::from_secs(1);

/// Duration of a search of a large table.
const SEARCH: Duration = Duration::from_millis(300);

/// Times are those of the caller, so the test does not depend on the load of the machine.
#[test]
fn flows_are_deleted_within_a_second_while_endpoints_change() {
    const CHANGES: u32 = 40;
    let netns = Netns::new().expect("network namespaces");
    netns.run(|| {
        let mut client = Client::open().expect("the kernel tracks flows");
        let others = (0..10_000).map(flow);
        client.create_all(others).expect("all flows differ");
        let intervals = Intervals {
            min: Duration::ZERO,
            ..Intervals::default()
        };
        let mut engine = config()
            .with_intervals(intervals)
            .open()
            .expect("nf_tables");
        engine.defer_flow_searches();
        let endpoint = |number: u32| format!("10.1.1.{number}");
        let udp = [api::TransportProtocol::Udp];
        apply(&mut engine, served_by(&udp, &["10.1.0.1", &endpoint(0)]));
        engine.apply(Event::Synced);
        let mut now = Duration::ZERO;
        assert!(engine.poll(now).expect("a sync").is_success());
        let mut running: Option<(Duration, FlowSearch)> = None;
        let (mut stale, mut dumps, mut number) = (Vec::new(), 0, 0);
        while number < CHANGES || !stale.is_empty() {
            now += Duration::from_millis(2);
            if number < CHANGES && now > Duration::from_millis(50) * number {
                let flow = flow_to(&endpoint(number));
                client.create(&flow).expect("the flow is new");
                number += 1;
                apply(
                    &mut engine,
                    served_by(&udp, &["10.1.0.1", &endpoint(number)]),
                );
                let report = engine.poll(now).or_else(|| engine.poll(now));
                assert!(report.expect("a change is due").is_success());
                stale.push((now, Key::from(flow.original)));
            }
            if let Some((_, search)) = running.take_if(|(end, _)| *end <= now) {
                for (_, result) in engine.finish_flow_search(search.run(), now) {
                    dumps += result.expect("conntrack can be searched").dumps;
                }
            }
            if let Some(search) = engine.take_flow_search(now) {
                running = Some((now + SEARCH, search));
            }
            stale.retain(|(committed, key)| {
                assert!(now - *committed < MAX_STALE, "{key} is still there");
                client.flow(key).expect("a reply").is_some()
            });
        }
        assert!(dumps < CHANGES as usize, "{dumps} dumps");
        assert!(client.usage().expect("a reply").entries > 9000);
    });
}
