//! Tests of the dumps for a change.

use std::collections::HashSet;
use std::convert::Infallible;

use super::*;

const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 10));

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn server(protocol: Protocol, address: &str, port: u16) -> Server {
    Server::new(protocol, self::address(address), port)
}

/// Returns the filters of the dumps while the kernel tracks `count` flows.
fn filters(targets: &Targets, family: Family, count: usize) -> Vec<Filter> {
    let served = HashSet::from([Protocol::UDP, Protocol::TCP, Protocol::SCTP]);
    let dumps = targets.dumps(family, &served, || Ok::<_, Infallible>(count));
    let Ok(dumps) = dumps;
    dumps.into_iter().map(|dump| dump.filter).collect()
}

fn udp() -> Filter {
    let filter = Filter::new().with_family(Family::V4);
    filter.with_protocol(Protocol::UDP)
}

fn unanswered() -> Filter {
    let filter = Filter::new().with_family(Family::V4);
    filter.with_status(Status::empty(), Status::SEEN_REPLY)
}

#[test]
fn a_server_is_selected_by_its_replies_and_tcp_only_without_a_reply() {
    let reply = TupleFilter::new()
        .with_source(address("10.1.0.1"))
        .with_source_port(8080);
    for (protocol, expected) in [
        (Protocol::UDP, udp()),
        (Protocol::TCP, unanswered().with_protocol(Protocol::TCP)),
        (Protocol::SCTP, unanswered().with_protocol(Protocol::SCTP)),
    ] {
        let mut targets = Targets::default();
        targets.servers.insert(server(protocol, "10.1.0.1", 8080));
        let found = filters(&targets, Family::V4, 1_000_000);
        assert_eq!(found, [expected.with_reply(reply)]);
    }
}

#[test]
fn ports_of_one_address_share_a_dump_and_node_ports_have_any_address() {
    let mut targets = Targets::default();
    for frontend in [
        Frontend::Address(Protocol::UDP, V4, 53),
        Frontend::Address(Protocol::UDP, V4, 54),
        Frontend::NodePort(Protocol::UDP, Family::V4, 30053),
    ] {
        targets.frontends.insert(frontend);
    }
    let by_address = TupleFilter::new().with_destination(V4);
    let by_port = TupleFilter::new().with_destination_port(30053);
    assert_eq!(
        filters(&targets, Family::V4, 1_000_000),
        [
            udp().with_original(by_address),
            udp().with_original(by_port)
        ]
    );
}

#[test]
fn ipv6_flows_are_selected_by_port_because_the_kernel_compares_no_ipv6_addresses() {
    let mut targets = Targets::default();
    for last in 1..100 {
        let server = server(Protocol::UDP, &format!("fd00::{last}"), 8080);
        targets.servers.insert(server);
    }
    let udp = Filter::new()
        .with_family(Family::V6)
        .with_protocol(Protocol::UDP);
    let reply = TupleFilter::new().with_source_port(8080);
    assert_eq!(
        filters(&targets, Family::V6, 1_000_000),
        [udp.with_reply(reply)]
    );
}

#[test]
fn many_addresses_or_few_flows_need_one_dump() {
    let of = |protocol, count: usize| {
        let mut targets = Targets::default();
        for last in 0..count {
            let server = server(protocol, &format!("10.1.0.{last}"), 8080);
            targets.servers.insert(server);
        }
        targets
    };
    for (count, flows, expected) in [
        (1, 0, 1),
        (2, 9_999, 1),
        (2, 10_000, 2),
        (4, 19_999, 1),
        (4, 20_000, 4),
        (5, 1_000_000, 1),
    ] {
        let found = filters(&of(Protocol::UDP, count), Family::V4, flows);
        assert_eq!(found.len(), expected, "{count} of {flows} flows");
        let is_one_dump = found == [udp()];
        assert_eq!(is_one_dump, expected < count, "{count} of {flows} flows");
    }
    let all_tcp = [unanswered().with_protocol(Protocol::TCP)];
    let found = filters(&of(Protocol::TCP, 2), Family::V4, 1_000_000);
    assert_eq!(found, all_tcp);
}

#[test]
fn all_flows_need_two_dumps_and_unanswered_udp_flows_count_once() {
    let found = filters(&Targets::all(), Family::V4, 1_000_000);
    assert_eq!(found, [udp(), unanswered()]);
    let served = HashSet::from([Protocol::TCP]);
    let dumps = Targets::all().dumps(Family::V4, &served, || Ok::<_, Infallible>(0));
    let Ok(dumps) = dumps;
    let found: Vec<_> = dumps.into_iter().map(|dump| dump.filter).collect();
    assert_eq!(found, [unanswered().with_protocol(Protocol::TCP)]);
    let flow = |protocol| {
        let tuple = vipline_conntrack::Tuple::ports(protocol, (V4, 1), (V4, 53));
        Flow::new(tuple, tuple.inverted())
    };
    let rest = Dump {
        filter: unanswered(),
    };
    assert!(rest.checks(&flow(Protocol::TCP)) && !rest.checks(&flow(Protocol::UDP)));
    assert!(Dump { filter: udp() }.checks(&flow(Protocol::UDP)));
}
