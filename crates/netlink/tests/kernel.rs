//! Conversations with a real kernel, in network namespaces of their own.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::AsFd;

use rustix::net::{SendFlags, send, sockopt};
use testkit::netns::Netns;
use vipline_netlink::attr::{Attrs, put, put_str};
use vipline_netlink::message::{ACK, CREATE, DUMP, REQUEST, begin, end};
use vipline_netlink::{Dump, Errno, Error, Outcome, Protocol, Refusal, Socket};

const RTM_GETLINK: u16 = 18;
const RTM_DELLINK: u16 = 17;
const IFLA_IFNAME: u16 = 3;
/// `struct ifinfomsg`, all zero.
const ANY_LINK: [u8; 16] = [0; 16];

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_*`.
const NEW_TABLE: u16 = 0xa00;
const DELETE_TABLE: u16 = 0xa02;
const DELETE_CHAIN: u16 = 0xa05;
const GET_TABLE: u16 = 0xa01;
const GET_GENERATION: u16 = 0xa10;
/// `struct nfgenmsg` of family `inet`.
const INET: [u8; 4] = [1, 0, 0, 0];

fn open(protocol: Protocol) -> Socket {
    Netns::new()
        .unwrap()
        .run(|| Socket::open(protocol).unwrap())
}

fn links(socket: &mut Socket) -> Vec<String> {
    let links = socket.dump(RTM_GETLINK, &ANY_LINK, 3, Vec::new, |names, link| {
        for attr in Attrs::new(&link.payload[ANY_LINK.len()..]) {
            let attr = attr?;
            if attr.kind == IFLA_IFNAME {
                names.push(attr.str()?.to_owned());
            }
        }
        Ok::<(), Error>(())
    });
    let Dump::Complete(names) = links.unwrap() else {
        panic!("nothing changes in this namespace");
    };
    names
}

/// Numbers and brackets messages of nf_tables, each with its flags.
fn batch(socket: &Socket, messages: &[(u16, u16, &str)]) -> Vec<u8> {
    let nf_tables = [0, 0, 0, 10];
    let mut out = Vec::new();
    let mut seq = socket.sequence();
    let mut bracket = |out: &mut Vec<u8>, ty, flags, header: [u8; 4], name: Option<&str>| {
        let start = begin(out, ty, REQUEST | flags, seq);
        out.extend_from_slice(&header);
        if let Some(name) = name {
            put_str(out, 1, name);
        }
        end(out, start);
        seq = seq.wrapping_add(1);
    };
    bracket(&mut out, 16, 0, nf_tables, None);
    for (ty, flags, name) in messages {
        bracket(&mut out, *ty, *flags, INET, Some(name));
    }
    bracket(&mut out, 17, 0, nf_tables, None);
    out
}

fn tables(socket: &mut Socket) -> usize {
    let Dump::Complete(tables) = socket
        .dump(
            GET_TABLE,
            &INET,
            3,
            || 0,
            |count, _| {
                *count += 1;
                Ok::<(), Error>(())
            },
        )
        .unwrap()
    else {
        panic!("nothing changes in this namespace");
    };
    tables
}

fn refusals(outcome: Outcome) -> Vec<Refusal> {
    match outcome {
        Outcome::Refused { refusals, .. } => refusals,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dump_reads_all_objects() {
    let mut socket = open(Protocol::Route);
    assert!(links(&mut socket).contains(&"lo".to_owned()));
}

#[test]
fn a_refused_request_carries_the_words_of_the_kernel() {
    let mut socket = open(Protocol::Route);
    let mut payload = ANY_LINK.to_vec();
    payload[4] = 1; // lo has index 1 and cannot be deleted
    let refused = socket.request(RTM_DELLINK, 0, &payload, |_| Ok::<(), Error>(()));
    let Err(Error::Kernel(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.errno, Errno::OPNOTSUPP);

    // A device name of 20 bytes breaks the attribute's policy, which has words.
    let mut payload = ANY_LINK.to_vec();
    put(&mut payload, IFLA_IFNAME, &[b'x'; 20]);
    let refused = socket.request(RTM_DELLINK, 0, &payload, |_| Ok::<(), Error>(()));
    let Err(Error::Kernel(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert!(refusal.text.is_some(), "{refusal:?}");
    assert_eq!(refusal.offset, Some(32), "header and ifinfomsg come before");
}

#[test]
fn stale_answers_are_discarded() {
    let mut socket = open(Protocol::Route);
    let mut forgotten = Vec::new();
    for seq in [900, 901] {
        let start = begin(&mut forgotten, RTM_GETLINK, REQUEST | ACK | DUMP, seq);
        forgotten.extend_from_slice(&ANY_LINK);
        end(&mut forgotten, start);
        send(socket.as_fd(), &forgotten, SendFlags::empty()).unwrap();
    }
    let mut answers = 0;
    let mut payload = ANY_LINK.to_vec();
    payload[4] = 1;
    socket
        .request(RTM_GETLINK, 0, &payload, |message| {
            assert_eq!(message.seq, 1);
            answers += 1;
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(answers, 1);
}

#[test]
fn an_error_of_the_reader_leaves_the_socket_usable() {
    let mut socket = open(Protocol::Route);
    let broken = socket.dump(
        RTM_GETLINK,
        &ANY_LINK,
        3,
        || (),
        |(), _| Err(Error::Timeout),
    );
    assert!(matches!(broken, Err(Error::Timeout)));
    assert!(links(&mut socket).contains(&"lo".to_owned()));
}

#[test]
fn a_batch_is_one_send_and_one_answer() {
    let mut socket = open(Protocol::Netfilter);
    let batch = batch(
        &socket,
        &[(NEW_TABLE, CREATE, "one"), (NEW_TABLE, CREATE | ACK, "two")],
    );
    let outcome = socket.batch(&batch).unwrap();
    assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
    let counters = socket.counters();
    assert_eq!((counters.sends, counters.receives), (1, 1));
    // Two tables, between the begin and the end of the batch.
    assert_eq!(counters.messages, 4);
    assert_eq!(counters.bytes_sent, batch.len() as u64);
    assert_eq!(tables(&mut socket), 2);
}

#[test]
fn every_refused_message_of_a_batch_is_told_and_nothing_is_done() {
    let mut socket = open(Protocol::Netfilter);
    let batch = batch(
        &socket,
        &[
            (NEW_TABLE, CREATE, "one"),
            (DELETE_TABLE, 0, "none"),
            (NEW_TABLE, CREATE, "two"),
            (DELETE_TABLE, ACK, "neither"),
        ],
    );
    let refusals = refusals(socket.batch(&batch).unwrap());
    let told: Vec<_> = refusals.iter().map(|no| (no.seq, no.errno)).collect();
    assert_eq!(told, [(3, Errno::NOENT), (5, Errno::NOENT)]);
    assert_eq!(refusals[0].offset, Some(20));
    assert_eq!(tables(&mut socket), 0);
}

#[test]
fn a_batch_of_a_million_bytes_is_one_send() {
    let mut socket = open(Protocol::Netfilter);
    let names: Vec<String> = (0..20_000).map(|number| format!("t{number}")).collect();
    let mut messages: Vec<_> = vec![(NEW_TABLE, CREATE, "t"); names.len()];
    messages.push((NEW_TABLE, CREATE | ACK, "last"));
    let batch = batch(&socket, &messages);
    assert!(batch.len() > 500_000);
    let outcome = socket.batch(&batch).unwrap();
    assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
    assert_eq!(socket.counters().sends, 1);
    assert_eq!(tables(&mut socket), 2);
}

#[test]
fn lost_answers_make_the_outcome_unknown_although_it_is_committed() {
    let mut socket = open(Protocol::Netfilter);
    sockopt::set_socket_recv_buffer_size(socket.as_fd(), 4096).unwrap();
    let acknowledged = batch(&socket, &[(NEW_TABLE, CREATE | ACK, "one"); 200]);
    let outcome = socket.batch(&acknowledged).unwrap();
    assert!(
        matches!(outcome, Outcome::Unknown(Error::Overrun)),
        "{outcome:?}"
    );
    sockopt::set_socket_recv_buffer_size(socket.as_fd(), 200_000).unwrap();
    assert_eq!(tables(&mut socket), 1);
}

#[test]
fn more_refusals_than_fit_still_are_a_refusal() {
    let mut socket = open(Protocol::Netfilter);
    sockopt::set_socket_recv_buffer_size(socket.as_fd(), 4096).unwrap();
    let messages = batch(&socket, &[(DELETE_CHAIN, ACK, "none"); 200]);
    let refusals = refusals(socket.batch(&messages).unwrap());
    assert!(!refusals.is_empty() && refusals.len() < 200);
}

#[test]
fn a_request_has_its_answer_before_the_acknowledgement() {
    let mut socket = open(Protocol::Netfilter);
    let mut answers = 0;
    socket
        .request(GET_GENERATION, 0, &INET, |_| {
            answers += 1;
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(answers, 1);
}

#[test]
fn a_generic_family_is_found_by_its_name_and_another_is_not_there() {
    let mut socket = Socket::open(Protocol::Generic).unwrap();
    assert_eq!(socket.family("nlctrl").unwrap(), Some(16));
    assert_eq!(socket.family("no-such-family").unwrap(), None);
}

#[test]
fn a_series_goes_on_after_a_refusal_and_tells_each() {
    /// `RTM_NEWLINK`, which wants a `struct ifinfomsg`.
    const NEW_LINK: u16 = 16;
    let mut socket = open(Protocol::Route);
    let first = socket.sequence();
    let mut series = Vec::new();
    for place in 0..4 {
        let flags = if place == 3 { ACK } else { 0 };
        let start = begin(&mut series, NEW_LINK, REQUEST | flags, first + place);
        // The loopback device, which is there, or a device that is not.
        let index: i32 = if place == 1 { 1 } else { 999 };
        series.extend_from_slice(&[0; 4]);
        series.extend_from_slice(&index.to_ne_bytes());
        series.extend_from_slice(&[0; 8]);
        end(&mut series, start);
    }
    let refusals = socket.series(&series).unwrap();
    let seqs: Vec<u32> = refusals.iter().map(|refusal| refusal.seq - first).collect();
    assert_eq!(seqs, [0, 2, 3]);
    assert_eq!(socket.sequence(), first + 4);
    assert_eq!(socket.counters().sends, 1);
}
