//! Stale flows: clients with a fixed source port while endpoints change.
#![cfg(all(feature = "nftables", feature = "iptables"))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests send packets through the programmed kernel"
)]

mod fixtures;

mod rules;

mod stage;

mod flows;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use fixtures::{apply, config, sync, web, with_endpoints};
use flows::{
    a_client_with_a_fixed_port_reaches_the_current_endpoint,
    attempts_to_connect_move_to_a_new_endpoint_and_connections_stay,
    every_request_is_answered_while_endpoints_change,
    flows_stay_with_an_endpoint_that_is_serving_and_terminating, flows_that_are_not_stale_are_kept,
};
use proxy_core::{Event, Family};
use rules::Rules;
use testkit::netns::Netns;
use vipline_conntrack::{Client, Flow, Protocol, Status, Tuple};
use vipline_service_model::api;

rules::tests_of_rules! {
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
const MANY: u32 = 100_000;

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
        assert_eq!(made.expect("all flows differ"), 100_000);
    });
    let before = listed(&netns);
    assert_eq!(before.len(), 100_000);
    let left: BTreeSet<_> = before.into_iter().filter(|line| !is_stale(line)).collect();
    assert_eq!(left.len(), 97_000);

    let rules = Rules::Nftables;
    let mut opened = netns.run(|| rules.open(rules.configured(config())));
    let builder = web("10.96.0.10").port(api::Protocol::Udp, 80, 8080);
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
    assert_eq!((cleaned.deleted, cleaned.is_complete), (3000, true));
    let now = listed(&netns);
    let wrong: Vec<_> = now.symmetric_difference(&left).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
