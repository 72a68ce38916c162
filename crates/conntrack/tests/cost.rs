//! The cost of reading many flows, as counts of bytes and datagrams.
//!
//! Runs in a network namespace.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr};

use testkit::allocation::{Counting, allocated, retained};
use testkit::netns::Netns;
use vipline_conntrack::{Client, Filter, Flow, Protocol, Tuple};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of flows.
const FLOWS: u16 = 2000;

/// The kernel fills datagrams of 32 KiB, and describes one of these flows in about 200 bytes.
const FLOWS_PER_DATAGRAM: u64 = 100;

/// Returns a client of a namespace that has only the flows.
fn client() -> Client {
    let mut client = Netns::new().unwrap().run(Client::open).unwrap();
    let server = IpAddr::from(Ipv4Addr::new(10, 96, 0, 10));
    let flow = |number: u16| {
        let host = Ipv4Addr::from_bits(Ipv4Addr::new(10, 8, 0, 0).to_bits() + u32::from(number));
        let tuple = Tuple::ports(Protocol::UDP, (host.into(), 40_000), (server, 53));
        let mut flow = Flow::new(tuple, tuple.inverted());
        flow.timeout = Some(3600);
        flow
    };
    client.create_all((0..FLOWS).map(flow)).unwrap();
    client
}

#[test]
fn a_listed_flow_takes_only_its_place_in_the_list() {
    let mut client = client();
    let before = client.counters().receives;
    let (bytes, flows) = retained(|| client.flows(&Filter::new()).unwrap().into_inner());
    let receives = client.counters().receives - before;

    assert_eq!(flows.len(), usize::from(FLOWS));
    assert_eq!(bytes, (flows.capacity() * size_of::<Flow>()) as u64);
    assert!(
        receives <= u64::from(FLOWS) / FLOWS_PER_DATAGRAM,
        "{receives}"
    );
}

#[test]
fn a_flow_that_is_not_kept_allocates_nothing() {
    let (mut client, mut count) = (client(), 0);
    let filter = Filter::new();
    let (bytes, dump) = allocated(|| client.dump(&filter, |_| count += 1));
    assert!(dump.unwrap().complete().is_some());
    assert_eq!(count, FLOWS);
    // The request may grow the buffers of the client.
    assert!(bytes < 1024, "{bytes}");
}
