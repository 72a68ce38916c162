//! Tests of counters, of other lists of flows, and of printed flows and events.

use std::net::{Ipv4Addr, UdpSocket};

use vipline_conntrack::netlink::{self, Listener, SocketOption};
use vipline_conntrack::{
    Events, Filter, Flow, Groups, Protocol, Status, Tuple, TupleFilter, Update,
};

use crate::conntrack_watch;
use crate::lab::{Lab, complete, texts, udp};

#[test]
fn counters_are_returned_and_set_to_zero() {
    let mut lab = Lab::new();
    lab.netns.run(|| {
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_acct", "1").unwrap();
    });
    // Connection tracking starts with the first rule that needs it.
    let rules = "table ip t {\nchain c { type filter hook output priority 0\nct mark 9 drop\n}\n}";
    lab.succeeds("nft", &["-f", "-"], rules);
    let sockets: Vec<UdpSocket> = lab.netns.run(|| {
        let socket = |_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        (0..2).map(socket).collect()
    });
    let send = || {
        for socket in &sockets {
            socket.send_to(b"1", (Ipv4Addr::LOCALHOST, 9)).unwrap();
        }
    };
    let packets = |flows: &[Flow]| -> Vec<u64> {
        let counters = flows
            .iter()
            .map(|flow| flow.counters.as_ref().unwrap().original);
        counters.map(|counters| counters.packets).collect()
    };
    send();
    let port = sockets[0].local_addr().unwrap().port();
    let one = Filter::new().with_original(TupleFilter::new().with_source_port(port));
    let first = complete(lab.client.zero_counters(&one).unwrap());
    assert_eq!(packets(&first), [1]);
    let left: u64 = packets(&lab.all()).iter().sum();
    assert_eq!(left, 1, "the other flow keeps its counters");
    send();
    let all = complete(lab.client.zero_counters(&Filter::new()).unwrap());
    let mut counted = packets(&all);
    counted.sort_unstable();
    assert_eq!(counted, [1, 2]);
    assert_eq!(packets(&lab.all()), [0, 0]);
    assert_eq!(lab.client.zero_counters_of(&udp(1).key()).unwrap(), None);
}

const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;

#[test]
fn destroyed_flows_stay_on_the_dying_list_until_their_event_is_delivered() {
    const FLOWS: u16 = 300;
    let mut lab = Lab::new();
    assert_eq!(complete(lab.client.dying().unwrap()), []);
    assert_eq!(complete(lab.client.unconfirmed().unwrap()), []);
    // The kernel keeps flows for a reliable listener, whose buffer has room for few events.
    let mut listener = lab.netns.run(|| {
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_events", "1").unwrap();
        let mut listener = Listener::open(netlink::Protocol::NETFILTER).unwrap();
        listener
            .set_option(SocketOption::BroadcastError, true)
            .unwrap();
        listener.set_recv_buffer_size(2048).unwrap();
        listener.join(NFNLGRP_CONNTRACK_DESTROY).unwrap();
        listener
    });
    for number in 0..FLOWS {
        lab.client.create(&udp(number)).unwrap();
    }
    lab.client.flush(&Filter::new()).unwrap();
    assert_eq!(lab.all(), []);
    let dying = complete(lab.client.dying().unwrap());
    assert!(
        (1..usize::from(FLOWS)).contains(&dying.len()),
        "{}",
        dying.len()
    );
    assert!(dying.iter().all(|flow| flow.status.contains(Status::DYING)));
    let lines = lab.conntrack("-L dying");
    assert_eq!(lines.lines().count(), dying.len(), "{lines}");
    listener.leave(NFNLGRP_CONNTRACK_DESTROY).unwrap();
    // Without the listener, the kernel drops the events at the next attempt.
    let is_empty = |lab: &mut Lab| complete(lab.client.dying().unwrap()).is_empty();
    let start = std::time::Instant::now();
    while !is_empty(&mut lab) {
        assert!(start.elapsed().as_secs() < 20, "flows stay on the list");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn flows_of_dccp_are_printed_like_conntrack_prints_them() {
    let mut lab = Lab::new();
    let tuple = Tuple::ports(
        Protocol::DCCP,
        ("10.0.0.1".parse().unwrap(), 1000),
        ("10.0.0.2".parse().unwrap(), 53),
    );
    let mut flow = Flow::new(tuple, tuple.inverted());
    flow.timeout = Some(1000);
    lab.client.create(&flow).unwrap();
    assert_eq!(texts(&lab.all()), lab.printed("-p dccp"));
}

#[test]
fn the_example_prints_events_like_conntrack() {
    let mut lab = Lab::new();
    let groups = Groups::NEW | Groups::UPDATE | Groups::DESTROY;
    let mut events = lab.netns.run(|| Events::open(groups, &[]).unwrap());
    let filter = Filter::new().with_original(TupleFilter::new().with_source_port(1));
    for number in [1, 2] {
        lab.client.create(&udp(number)).unwrap();
        let key = udp(number).key();
        lab.client
            .update(&key, Update::new().with_mark(7, u32::MAX))
            .unwrap();
        assert!(lab.client.delete(&key).unwrap());
    }
    let mut out = Vec::new();
    let start = std::time::Instant::now();
    while out.iter().filter(|byte| **byte == b'\n').count() < 3 {
        assert!(start.elapsed().as_secs() < 20, "{out:?}");
        conntrack_watch::print_events(&mut events, &filter, &mut out).unwrap();
    }
    let tuples = "src=10.0.0.1 dst=10.0.0.2 sport=1 dport=53 [UNREPLIED] src=10.0.0.2 \
                  dst=10.0.0.1 sport=53 dport=1";
    let expected = format!(
        "    [NEW] ipv4     2 udp      17 {tuples} mark=0\n \
         [UPDATE] ipv4     2 udp      17 {tuples} mark=7\n\
         [DESTROY] ipv4     2 udp      17 {tuples} mark=7\n"
    );
    // Timeouts decrease, and old kernels send none for destroyed flows.
    let out = String::from_utf8(out).unwrap();
    let out = out.replace(" 17 1000 ", " 17 ").replace(" 17 999 ", " 17 ");
    assert_eq!(out, expected);
}
