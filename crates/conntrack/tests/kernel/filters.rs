//! Tests of filters in dumps and flushes.

use std::net::IpAddr;

use vipline_conntrack::{
    AddressRange, Family, Filter, Flow, Flushed, Network, PortRange, Protocol, Status, TupleFilter,
};

use crate::lab::{Lab, keys, mixed, texts};

/// Number of flows in the table.
const FLOWS: u16 = 400;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str, prefix_len: u8) -> Network {
    Network::new(ip(text), prefix_len).unwrap()
}

fn mask(text: &str, mask: &str) -> Network {
    Network::with_mask(ip(text), ip(mask)).unwrap()
}

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange::new(ip(first), ip(last)).unwrap()
}

/// Filters with the `conntrack` options that select the same flows.
fn filters() -> Vec<(Filter, &'static str)> {
    let all = Filter::new();
    let (v4, v6) = (all.with_family(Family::V4), all.with_family(Family::V6));
    let side = TupleFilter::new();
    let (to_dns, from_dns) = (side.with_destination_port(53), side.with_source_port(53));
    let in_both = side
        .with_source(ip("10.1.0.2"))
        .with_destination(ip("10.2.0.3"));
    vec![
        (v4, "-f ipv4"),
        (v6, "-f ipv6"),
        (all.with_protocol(Protocol::TCP), "-p tcp"),
        (v4.with_protocol(Protocol::SCTP), "-f ipv4 -p sctp"),
        (v4.with_protocol(Protocol::ICMP), "-f ipv4 -p icmp"),
        (
            all.with_original(side.with_source(ip("10.1.0.2"))),
            "-s 10.1.0.2",
        ),
        (
            all.with_original(side.with_destination(ip("fd00:2::3"))),
            "-f ipv6 -d fd00:2::3",
        ),
        (
            all.with_reply(side.with_source(ip("fd00:2::3"))),
            "-f ipv6 -r fd00:2::3",
        ),
        (
            v6.with_protocol(Protocol::UDP).with_original(to_dns),
            "-f ipv6 -p udp --orig-port-dst 53",
        ),
        (all.with_original(in_both), "-s 10.1.0.2 -d 10.2.0.3"),
        (
            all.with_reply(side.with_source(ip("10.3.0.9"))),
            "-r 10.3.0.9",
        ),
        (
            all.with_reply(side.with_destination(ip("10.1.0.4"))),
            "-q 10.1.0.4",
        ),
        (
            v4.with_protocol(Protocol::UDP).with_original(to_dns),
            "-f ipv4 -p udp --orig-port-dst 53",
        ),
        (
            all.with_protocol(Protocol::UDP).with_original(to_dns),
            "-p udp --orig-port-dst 53",
        ),
        (
            v4.with_protocol(Protocol::SCTP).with_original(to_dns),
            "-f ipv4 -p sctp --orig-port-dst 53",
        ),
        (
            v4.with_protocol(Protocol::TCP).with_reply(from_dns),
            "-f ipv4 -p tcp --reply-port-src 53",
        ),
        (
            v4.with_protocol(Protocol::TCP)
                .with_original(side.with_source_port(1024 + 73)),
            "-f ipv4 -p tcp --orig-port-src 1097",
        ),
        (all.with_mark(0x71, u32::MAX), "-m 0x71"),
        (all.with_mark(1, 0xf), "-m 1/0xf"),
        (all.with_mark(0x30, 0xf0), "-m 0x30/0xf0"),
        (v4.with_mark(0, 0xf), "-f ipv4 -m 0/0xf"),
        (
            all.with_status(Status::empty(), Status::SEEN_REPLY),
            "-u UNREPLIED",
        ),
        (
            all.with_status(Status::SEEN_REPLY, Status::SEEN_REPLY),
            "-u SEEN_REPLY",
        ),
        (
            v4.with_status(Status::ASSURED, Status::ASSURED),
            "-f ipv4 -u ASSURED",
        ),
        (all.with_zone(5), "-w 5"),
        (
            v4.with_protocol(Protocol::UDP)
                .with_status(Status::empty(), Status::SEEN_REPLY)
                .with_original(to_dns)
                .with_mark(1, 1),
            "-f ipv4 -p udp -u UNREPLIED --orig-port-dst 53 -m 1/1",
        ),
    ]
}

/// Filters by zones and networks, with the `conntrack` options.
fn zones_and_networks() -> Vec<(Filter, &'static str)> {
    let (all, side) = (Filter::new(), TupleFilter::new());
    vec![
        (all.with_zone(0), "-w 0"),
        (all.with_original(side.with_zone(6)), "--orig-zone 6"),
        (all.with_original(side.with_zone(0)), "--orig-zone 0"),
        (
            all.with_original(side.with_source_network(net("10.1.0.2", 31))),
            "-s 10.1.0.2/31",
        ),
        (
            all.with_original(side.with_destination_network(net("10.2.0.0", 29))),
            "-d 10.2.0.0/29",
        ),
        (
            all.with_original(side.with_source_network(mask("10.9.0.2", "255.0.255.255"))),
            "-s 10.9.0.2 --mask-src 255.0.255.255",
        ),
        (
            all.with_original(side.with_destination_network(mask("0.0.0.3", "0.0.0.255"))),
            "-d 0.0.0.3 --mask-dst 0.0.0.255",
        ),
        (
            all.with_original(side.with_source_network(net("fd00:1::2", 127))),
            "-f ipv6 -s fd00:1::2/127",
        ),
        (
            all.with_original(side.with_source_network(net("10.1.0.0", 30)))
                .with_protocol(Protocol::TCP),
            "-p tcp -s 10.1.0.0/30",
        ),
    ]
}

/// Filters for which `conntrack` has no options.
fn others() -> Vec<Filter> {
    let all = Filter::new();
    let to_dns = TupleFilter::new().with_destination_port(53);
    let (both, assured) = (Status::SEEN_REPLY | Status::ASSURED, Status::ASSURED);
    vec![
        all,
        all.with_original(TupleFilter::new().with_zone(5)),
        all.with_reply(TupleFilter::new().with_source_network(net("10.2.0.0", 16))),
        all.with_reply(TupleFilter::new().with_destination_network(net("fd00:1::2", 127))),
        all.with_original(TupleFilter::new().with_source_range(range("10.1.0.2", "10.1.0.5"))),
        all.with_original(
            TupleFilter::new().with_destination_range(range("fd00:2::3", "fd00:2::4")),
        ),
        all.with_reply(TupleFilter::new().with_source_range(range("10.2.0.3", "10.2.0.9")))
            .with_original(TupleFilter::new().with_source(ip("10.1.0.2"))),
        // One direction of some flows has this zone, but no flow as a whole.
        all.with_zone(6),
        all.with_original(to_dns),
        all.with_original(TupleFilter::new().with_source_ports(PortRange::new(1024, 1100))),
        all.with_family(Family::V4)
            .with_protocol(Protocol::UDP)
            .with_original(TupleFilter::new().with_destination_ports(PortRange::new(54, 443))),
        all.with_reply(TupleFilter::new().with_zone(0)).with_zone(0),
        all.with_label(3),
        all.with_status(Status::SEEN_REPLY, both),
        // Bits outside of the mask are ignored.
        all.with_status(both, assured),
        all.with_status(both, Status::empty()),
        all.with_mark(0x3f, 0xf0),
        all.with_mark(7, 0),
        // No flow has addresses of two families.
        all.with_family(Family::V6)
            .with_original(TupleFilter::new().with_source(ip("10.1.0.2"))),
    ]
}

/// Returns the flows that [`Filter::matches`] selects.
fn matching<'a>(filter: &Filter, all: &'a [Flow]) -> Vec<&'a Flow> {
    all.iter().filter(|flow| filter.matches(flow)).collect()
}

#[test]
fn a_dump_selects_the_flows_that_match_and_that_conntrack_prints() {
    let mut lab = Lab::with(mixed(FLOWS));
    let all = lab.all();
    assert_eq!(all.len(), usize::from(FLOWS));
    for (filter, options) in filters().into_iter().chain(zones_and_networks()) {
        let selected = lab.flows(&filter);
        assert_eq!(keys(&selected), keys(matching(&filter, &all)), "{options}");
        assert_eq!(texts(&selected), lab.printed(options), "{options}");
        let some = 1..all.len();
        assert!(
            some.contains(&selected.len()),
            "{options}: {}",
            selected.len()
        );
    }
    for filter in others() {
        let selected = lab.flows(&filter);
        assert_eq!(keys(&selected), keys(matching(&filter, &all)), "{filter:?}");
    }
}

#[test]
fn the_kernel_omits_flows_that_do_not_match_a_supported_condition() {
    let mut lab = Lab::with(mixed(5 * FLOWS));
    let mut received = |filter: &Filter| {
        let before = lab.client.counters().receives;
        let _ = lab.flows(filter);
        lab.client.counters().receives - before
    };
    let all = received(&Filter::new());
    let source = TupleFilter::new().with_source(ip("10.1.0.2"));
    for filter in [
        Filter::new().with_original(source),
        Filter::new().with_mark(0x71, u32::MAX),
        Filter::new().with_status(Status::ASSURED, Status::ASSURED),
    ] {
        let some = received(&filter);
        assert!(some < all / 2, "{filter:?}: {some} of {all} datagrams");
    }
}

#[test]
fn a_flush_keeps_flows_that_do_not_match() {
    let filters = filters().into_iter().chain(zones_and_networks());
    let filters = filters.map(|(filter, _)| filter);
    let mut lab = Lab::new();
    for filter in filters.chain(others()) {
        lab.client.create_all(mixed(FLOWS)).unwrap();
        let all = lab.all();
        let others = all.iter().filter(|flow| !filter.matches(flow));
        let flushed = lab.client.flush(&filter).unwrap();
        let left = lab.all();
        assert_eq!(keys(&left), keys(others), "{filter:?}");
        if let Flushed::Individually(done) = flushed {
            assert_eq!(done.deleted, all.len() - left.len(), "{filter:?}");
            assert_eq!(done.missing, 0);
        }
        let _ = lab.client.flush(&Filter::new()).unwrap();
        assert_eq!(lab.all(), []);
    }
}

/// Returns whether the release of the kernel supports flushes by tuple.
fn deletes_by_filters() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|text| text.parse::<u32>().ok());
    [numbers.next().unwrap(), numbers.next().unwrap()] >= [6, 11]
}

#[test]
fn flows_are_deleted_individually_if_the_kernel_lacks_the_filter() {
    let all = Filter::new();
    let (since_filters, never) = (deletes_by_filters(), false);
    let mut lab = Lab::new();
    for (filter, is_whole) in [
        (
            all.with_family(Family::V4).with_protocol(Protocol::UDP),
            since_filters,
        ),
        (
            all.with_original(TupleFilter::new().with_source(ip("10.1.0.2"))),
            since_filters,
        ),
        (all.with_mark(1, 0xf), since_filters),
        (all.with_status(Status::empty(), Status::SEEN_REPLY), never),
        (all.with_zone(5), never),
    ] {
        lab.client.create_all(mixed(FLOWS)).unwrap();
        match lab.client.flush(&filter).unwrap() {
            Flushed::ByKernel => assert!(is_whole, "{filter:?}"),
            Flushed::Individually(done) => {
                assert!(!is_whole, "{filter:?}");
                assert!(
                    done.deleted > 0 && done.missing == 0,
                    "{filter:?}: {done:?}"
                );
            }
        }
        assert_eq!(lab.flows(&filter), []);
        assert_eq!(lab.client.flush(&all).unwrap(), Flushed::ByKernel);
    }
}

#[test]
fn sctp_ports_are_compared_by_the_client() {
    let mut lab = Lab::with(mixed(FLOWS));
    let to_dns = TupleFilter::new().with_destination_port(53);
    let v4 = Filter::new().with_family(Family::V4);
    let sctp = v4.with_protocol(Protocol::SCTP);
    let flushed = lab.client.flush(&sctp.with_original(to_dns)).unwrap();
    assert!(matches!(flushed, Flushed::Individually(done) if done.deleted > 0));
    assert!(!lab.flows(&sctp).is_empty());
}
