//! Filters: what they select, and what a flush by them leaves.

use std::net::IpAddr;

use vipline_conntrack::{Family, Filter, Flow, Flushed, Protocol, Side, Status};

use crate::lab::{Lab, keys, mixed, texts};

/// How many flows there are to be selected from.
const FLOWS: u16 = 400;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Each kind of filter, with the options by which `conntrack` selects the same.
fn filters() -> Vec<(Filter, &'static str)> {
    let all = Filter::new();
    let (v4, v6) = (all.family(Family::V4), all.family(Family::V6));
    let side = Side::new();
    let (to_dns, from_dns) = (side.destination_port(53), side.source_port(53));
    let in_both = side.source(ip("10.1.0.2")).destination(ip("10.2.0.3"));
    vec![
        (v4, "-f ipv4"),
        (v6, "-f ipv6"),
        (all.protocol(Protocol::TCP), "-p tcp"),
        (v4.protocol(Protocol::SCTP), "-f ipv4 -p sctp"),
        (v4.protocol(Protocol::ICMP), "-f ipv4 -p icmp"),
        (all.original(side.source(ip("10.1.0.2"))), "-s 10.1.0.2"),
        (
            all.original(side.destination(ip("fd00:2::3"))),
            "-f ipv6 -d fd00:2::3",
        ),
        (
            all.reply(side.source(ip("fd00:2::3"))),
            "-f ipv6 -r fd00:2::3",
        ),
        (
            v6.protocol(Protocol::UDP).original(to_dns),
            "-f ipv6 -p udp --orig-port-dst 53",
        ),
        (all.original(in_both), "-s 10.1.0.2 -d 10.2.0.3"),
        (all.reply(side.source(ip("10.3.0.9"))), "-r 10.3.0.9"),
        (all.reply(side.destination(ip("10.1.0.4"))), "-q 10.1.0.4"),
        (
            v4.protocol(Protocol::UDP).original(to_dns),
            "-f ipv4 -p udp --orig-port-dst 53",
        ),
        (
            all.protocol(Protocol::UDP).original(to_dns),
            "-p udp --orig-port-dst 53",
        ),
        (
            v4.protocol(Protocol::SCTP).original(to_dns),
            "-f ipv4 -p sctp --orig-port-dst 53",
        ),
        (
            v4.protocol(Protocol::TCP).reply(from_dns),
            "-f ipv4 -p tcp --reply-port-src 53",
        ),
        (
            v4.protocol(Protocol::TCP)
                .original(side.source_port(1024 + 73)),
            "-f ipv4 -p tcp --orig-port-src 1097",
        ),
        (all.mark(u32::MAX, 0x71), "-m 0x71"),
        (all.mark(0xf, 1), "-m 1/0xf"),
        (all.mark(0xf0, 0x30), "-m 0x30/0xf0"),
        (v4.mark(0xf, 0), "-f ipv4 -m 0/0xf"),
        (
            all.status(Status::SEEN_REPLY, Status::empty()),
            "-u UNREPLIED",
        ),
        (
            all.status(Status::SEEN_REPLY, Status::SEEN_REPLY),
            "-u SEEN_REPLY",
        ),
        (
            v4.status(Status::ASSURED, Status::ASSURED),
            "-f ipv4 -u ASSURED",
        ),
        (all.zone(5), "-w 5"),
        (all.zone(6), "--orig-zone 6"),
        (
            v4.protocol(Protocol::UDP)
                .status(Status::SEEN_REPLY, Status::empty())
                .original(to_dns)
                .mark(1, 1),
            "-f ipv4 -p udp -u UNREPLIED --orig-port-dst 53 -m 1/1",
        ),
    ]
}

/// Filters that the program has no options for.
fn others() -> Vec<Filter> {
    let all = Filter::new();
    let to_dns = Side::new().destination_port(53);
    let (both, assured) = (Status::SEEN_REPLY | Status::ASSURED, Status::ASSURED);
    vec![
        all,
        all.zone(0),
        all.original(to_dns),
        all.status(both, Status::SEEN_REPLY),
        // Bits beside the mask say nothing.
        all.status(assured, both),
        all.status(Status::empty(), both),
        all.mark(0xf0, 0x3f),
        all.mark(0, 7),
        // No flow is between two families.
        all.family(Family::V6)
            .original(Side::new().source(ip("10.1.0.2"))),
    ]
}

/// Returns the flows of a table that a filter means by its own account.
fn meant<'a>(filter: &Filter, all: &'a [Flow]) -> Vec<&'a Flow> {
    all.iter().filter(|flow| filter.matches(flow)).collect()
}

#[test]
fn a_filter_selects_what_it_matches_and_what_the_program_prints() {
    let mut lab = Lab::with(mixed(FLOWS));
    let all = lab.all();
    assert_eq!(all.len(), usize::from(FLOWS));
    for (filter, options) in filters() {
        let selected = lab.flows(&filter);
        assert_eq!(keys(&selected), keys(meant(&filter, &all)), "{options}");
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
        assert_eq!(keys(&selected), keys(meant(&filter, &all)), "{filter:?}");
    }
}

#[test]
fn the_kernel_tells_no_flows_that_it_can_judge_not_to_be_meant() {
    let mut lab = Lab::with(mixed(5 * FLOWS));
    let mut received = |filter: &Filter| {
        let before = lab.client.counters().receives;
        let _ = lab.flows(filter);
        lab.client.counters().receives - before
    };
    let all = received(&Filter::new());
    let source = Side::new().source(ip("10.1.0.2"));
    for filter in [
        Filter::new().original(source),
        Filter::new().mark(u32::MAX, 0x71),
        Filter::new().status(Status::ASSURED, Status::ASSURED),
    ] {
        let some = received(&filter);
        assert!(some < all / 2, "{filter:?}: {some} of {all} datagrams");
    }
}

#[test]
fn a_flush_leaves_the_others() {
    let filters = filters().into_iter().map(|(filter, _)| filter);
    let mut lab = Lab::new();
    for filter in filters.chain(others()) {
        lab.client.create_all(mixed(FLOWS)).unwrap();
        let all = lab.all();
        let others = all.iter().filter(|flow| !filter.matches(flow));
        let flushed = lab.client.flush(&filter).unwrap();
        let left = lab.all();
        assert_eq!(keys(&left), keys(others), "{filter:?}");
        if let Flushed::OneByOne(done) = flushed {
            assert_eq!(done.deleted, all.len() - left.len(), "{filter:?}");
            assert_eq!(done.missing, 0);
        }
        let _ = lab.client.flush(&Filter::new()).unwrap();
        assert_eq!(lab.all(), []);
    }
}

/// Tells whether the kernel deletes by filters since its release.
fn deletes_by_filters() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|text| text.parse::<u32>().ok());
    [numbers.next().unwrap(), numbers.next().unwrap()] >= [6, 11]
}

#[test]
fn what_a_kernel_cannot_delete_by_a_filter_is_deleted_one_by_one() {
    let all = Filter::new();
    let (since_filters, never) = (deletes_by_filters(), false);
    let mut lab = Lab::new();
    for (filter, is_whole) in [
        (
            all.family(Family::V4).protocol(Protocol::UDP),
            since_filters,
        ),
        (
            all.original(Side::new().source(ip("10.1.0.2"))),
            since_filters,
        ),
        (all.mark(0xf, 1), since_filters),
        (all.status(Status::SEEN_REPLY, Status::empty()), never),
        (all.zone(5), never),
    ] {
        lab.client.create_all(mixed(FLOWS)).unwrap();
        match lab.client.flush(&filter).unwrap() {
            Flushed::Whole => assert!(is_whole, "{filter:?}"),
            Flushed::OneByOne(done) => {
                assert!(!is_whole, "{filter:?}");
                assert!(
                    done.deleted > 0 && done.missing == 0,
                    "{filter:?}: {done:?}"
                );
            }
        }
        assert_eq!(lab.flows(&filter), []);
        assert_eq!(lab.client.flush(&all).unwrap(), Flushed::Whole);
    }
}

#[test]
fn ports_of_sctp_are_not_left_to_the_kernel() {
    let mut lab = Lab::with(mixed(FLOWS));
    let to_dns = Side::new().destination_port(53);
    let v4 = Filter::new().family(Family::V4);
    let sctp = v4.protocol(Protocol::SCTP);
    let flushed = lab.client.flush(&sctp.original(to_dns)).unwrap();
    assert!(matches!(flushed, Flushed::OneByOne(done) if done.deleted > 0));
    assert!(!lab.flows(&sctp).is_empty());
}
