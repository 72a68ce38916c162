//! Tests of `Socket` against the running kernel, each in a new network namespace.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::AsFd;

use rustix::net::{SendFlags, send, sockopt};
use testkit::netns::Netns;
use vipline_netlink::attr::{Attrs, put, put_str};
use vipline_netlink::message::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, begin, end};
use vipline_netlink::{Dump, Errno, Error, KernelError, Outcome, Protocol, Socket};

const RTM_GETLINK: u16 = 18;
const RTM_DELLINK: u16 = 17;
/// `RTM_NEWLINK`.
const RTM_NEWLINK: u16 = 16;
const IFLA_IFNAME: u16 = 3;
/// `struct ifinfomsg`, all zero.
const ANY_LINK: [u8; 16] = [0; 16];

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_*`.
const NFT_MSG_NEWTABLE: u16 = 0xa00;
const NFT_MSG_DELTABLE: u16 = 0xa02;
const NFT_MSG_DELCHAIN: u16 = 0xa05;
const NFT_MSG_GETTABLE: u16 = 0xa01;
const NFT_MSG_GETGEN: u16 = 0xa10;
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

/// Encodes nf_tables messages between batch begin and end.
fn batch(socket: &Socket, messages: &[(u16, u16, &str)]) -> Vec<u8> {
    let nf_tables = [0, 0, 0, 10];
    let mut out = Vec::new();
    let mut seq = socket.sequence();
    let mut append = |out: &mut Vec<u8>, ty, flags, header: [u8; 4], name: Option<&str>| {
        let start = begin(out, ty, NLM_F_REQUEST | flags, seq);
        out.extend_from_slice(&header);
        if let Some(name) = name {
            put_str(out, 1, name);
        }
        end(out, start);
        seq = seq.wrapping_add(1);
    };
    append(&mut out, 16, 0, nf_tables, None);
    for (ty, flags, name) in messages {
        append(&mut out, *ty, *flags, INET, Some(name));
    }
    append(&mut out, 17, 0, nf_tables, None);
    out
}

fn tables(socket: &mut Socket) -> usize {
    let Dump::Complete(tables) = socket
        .dump(
            NFT_MSG_GETTABLE,
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

fn rejected(outcome: Outcome) -> Vec<KernelError> {
    match outcome {
        Outcome::Rejected { errors, .. } => errors,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dump_reads_all_objects() {
    let mut socket = open(Protocol::ROUTE);
    assert!(links(&mut socket).contains(&"lo".to_owned()));
}

#[test]
fn a_rejected_request_returns_the_extended_ack() {
    let mut socket = open(Protocol::ROUTE);
    let mut payload = ANY_LINK.to_vec();
    payload[4] = 1; // lo has index 1 and cannot be deleted
    let rejected = socket.request(RTM_DELLINK, 0, &payload, |_| Ok::<(), Error>(()));
    let Err(Error::Kernel(error)) = rejected else {
        panic!("{rejected:?}");
    };
    assert_eq!(error.errno, Errno::OPNOTSUPP);

    // A device name of 20 bytes violates the attribute policy, whose error has a message.
    let mut payload = ANY_LINK.to_vec();
    put(&mut payload, IFLA_IFNAME, &[b'x'; 20]);
    let rejected = socket.request(RTM_DELLINK, 0, &payload, |_| Ok::<(), Error>(()));
    let Err(Error::Kernel(error)) = rejected else {
        panic!("{rejected:?}");
    };
    assert!(error.message.is_some(), "{error:?}");
    assert_eq!(error.offset, Some(32), "header and ifinfomsg come before");
}

#[test]
fn stale_replies_are_discarded() {
    let mut socket = open(Protocol::ROUTE);
    let mut stale = Vec::new();
    for seq in [900, 901] {
        let start = begin(
            &mut stale,
            RTM_GETLINK,
            NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP,
            seq,
        );
        stale.extend_from_slice(&ANY_LINK);
        end(&mut stale, start);
        send(socket.as_fd(), &stale, SendFlags::empty()).unwrap();
    }
    let mut replies = 0;
    let mut payload = ANY_LINK.to_vec();
    payload[4] = 1;
    socket
        .request(RTM_GETLINK, 0, &payload, |message| {
            assert_eq!(message.seq, 1);
            replies += 1;
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(replies, 1);
}

#[test]
fn an_error_of_the_callback_leaves_the_socket_usable() {
    let mut socket = open(Protocol::ROUTE);
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
fn a_batch_takes_one_send_and_one_receive() {
    let mut socket = open(Protocol::NETFILTER);
    let batch = batch(
        &socket,
        &[
            (NFT_MSG_NEWTABLE, NLM_F_CREATE, "one"),
            (NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, "two"),
        ],
    );
    let outcome = socket.batch(&batch).unwrap();
    assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
    let counters = socket.counters();
    assert_eq!((counters.sends, counters.receives), (1, 1));
    // Two tables, batch begin, batch end.
    assert_eq!(counters.messages, 4);
    assert_eq!(counters.bytes_sent, batch.len() as u64);
    assert_eq!(tables(&mut socket), 2);
}

#[test]
fn every_rejected_message_of_a_batch_is_reported_and_none_is_applied() {
    let mut socket = open(Protocol::NETFILTER);
    let batch = batch(
        &socket,
        &[
            (NFT_MSG_NEWTABLE, NLM_F_CREATE, "one"),
            (NFT_MSG_DELTABLE, 0, "none"),
            (NFT_MSG_NEWTABLE, NLM_F_CREATE, "two"),
            (NFT_MSG_DELTABLE, NLM_F_ACK, "neither"),
        ],
    );
    let errors = rejected(socket.batch(&batch).unwrap());
    let reported: Vec<_> = errors
        .iter()
        .map(|error| (error.seq, error.errno))
        .collect();
    assert_eq!(reported, [(3, Errno::NOENT), (5, Errno::NOENT)]);
    assert_eq!(errors[0].offset, Some(20));
    assert_eq!(tables(&mut socket), 0);
}

#[test]
fn a_batch_of_a_million_bytes_is_one_send() {
    let mut socket = open(Protocol::NETFILTER);
    let names: Vec<String> = (0..20_000).map(|number| format!("t{number}")).collect();
    let mut messages: Vec<_> = vec![(NFT_MSG_NEWTABLE, NLM_F_CREATE, "t"); names.len()];
    messages.push((NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, "last"));
    let batch = batch(&socket, &messages);
    assert!(batch.len() > 500_000);
    let outcome = socket.batch(&batch).unwrap();
    assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
    assert_eq!(socket.counters().sends, 1);
    assert_eq!(tables(&mut socket), 2);
}

#[test]
fn lost_acknowledgments_make_the_outcome_of_a_committed_batch_unknown() {
    let mut socket = open(Protocol::NETFILTER);
    sockopt::set_socket_recv_buffer_size(socket.as_fd(), 4096).unwrap();
    let acknowledged = batch(
        &socket,
        &[(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, "one"); 200],
    );
    let outcome = socket.batch(&acknowledged).unwrap();
    assert!(
        matches!(outcome, Outcome::Unknown(Error::Overrun)),
        "{outcome:?}"
    );
    sockopt::set_socket_recv_buffer_size(socket.as_fd(), 200_000).unwrap();
    assert_eq!(tables(&mut socket), 1);
}

#[test]
fn an_overrun_by_errors_still_reports_the_rejection() {
    let mut socket = open(Protocol::NETFILTER);
    sockopt::set_socket_recv_buffer_size(socket.as_fd(), 4096).unwrap();
    let messages = batch(&socket, &[(NFT_MSG_DELCHAIN, NLM_F_ACK, "none"); 200]);
    let errors = rejected(socket.batch(&messages).unwrap());
    assert!(!errors.is_empty() && errors.len() < 200);
}

#[test]
fn the_reply_precedes_the_acknowledgment() {
    let mut socket = open(Protocol::NETFILTER);
    let mut replies = 0;
    socket
        .request(NFT_MSG_GETGEN, 0, &INET, |_| {
            replies += 1;
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(replies, 1);
}

#[test]
fn a_generic_family_is_resolved_by_its_name() {
    let mut socket = Socket::open(Protocol::GENERIC).unwrap();
    assert_eq!(socket.resolve_family("nlctrl").unwrap(), Some(16));
    assert_eq!(socket.resolve_family("no-such-family").unwrap(), None);
}

#[test]
fn independent_messages_after_a_rejected_one_are_applied() {
    let mut socket = open(Protocol::ROUTE);
    let first = socket.sequence();
    let mut rejected = Vec::new();
    let accepted = socket.request_many(
        // A device that does not exist, or the loopback device.
        [999, 1, 998, 997],
        |index: &i32, payload| {
            put_ifinfomsg(payload, *index);
            (RTM_NEWLINK, 0)
        },
        |one| {
            rejected.push((one.request, one.errno));
            Ok::<(), Error>(())
        },
    );
    let missing = [999, 998, 997].map(|index| (index, Errno::NODEV));
    assert_eq!((accepted.unwrap(), &rejected[..]), (1, &missing[..]));
    assert_eq!(socket.sequence(), first + 4);
    assert_eq!(socket.counters().sends, 1);
}

/// Appends a `struct ifinfomsg` with the index of a device.
fn put_ifinfomsg(out: &mut Vec<u8>, index: i32) {
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&index.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
}
