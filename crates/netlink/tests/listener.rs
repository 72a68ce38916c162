//! Tests of `Listener` against the running kernel, each in a new network namespace.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::netns::Netns;
use vipline_netlink::attr::{Attrs, put_str};
use vipline_netlink::message::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, begin, end};
use vipline_netlink::{Event, Listener, Outcome, Protocol, Socket};

// linux/netfilter/nfnetlink.h: enum nfnetlink_groups
const NFNLGRP_NFTABLES: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_*`.
const NFT_MSG_NEWTABLE: u16 = 0xa00;
const NFT_MSG_NEWGEN: u16 = 0xa0f;
/// `struct nfgenmsg` of family `inet`.
const INET: [u8; 4] = [1, 0, 0, 0];
/// Number of tables whose notifications overrun a small receive buffer.
const MANY: usize = 2_000;

/// Sockets of one namespace: an ignored one, a foreign one, and a listener.
struct Stage {
    ours: Socket,
    foreign: Socket,
    listener: Listener,
}

impl Stage {
    fn new() -> Self {
        Netns::new().unwrap().run(|| Self {
            ours: Socket::open(Protocol::NETFILTER).unwrap(),
            foreign: Socket::open(Protocol::NETFILTER).unwrap(),
            listener: Listener::open(Protocol::NETFILTER).unwrap(),
        })
    }

    /// Joins the group, ignoring the own socket.
    fn join(&mut self) {
        self.listener
            .ignore_port_ids(&[self.ours.port_id()])
            .unwrap();
        self.listener.join(NFNLGRP_NFTABLES).unwrap();
    }

    /// Returns the types of all received messages, `None` for an overrun.
    fn received(&mut self) -> Vec<Option<u16>> {
        let mut received = Vec::new();
        let each = |event: Event<'_>| {
            received.push(match event {
                Event::Message(message) => Some(message.ty),
                _ => None,
            });
        };
        self.listener.read(each).unwrap();
        received
    }

    fn is_readable(&self) -> bool {
        let mut waited = [PollFd::from_borrowed_fd(
            self.listener.as_fd(),
            PollFlags::IN,
        )];
        poll(&mut waited, Some(&Timespec::default())).unwrap() == 1
    }
}

/// Adds tables with one commit.
fn add_tables(socket: &mut Socket, prefix: &str, count: usize) {
    let nf_tables = [0, 0, 0, 10];
    let (mut batch, mut seq) = (Vec::new(), socket.sequence());
    let mut message = |ty, flags, header: [u8; 4], name: Option<&str>| {
        let start = begin(&mut batch, ty, NLM_F_REQUEST | flags, seq);
        batch.extend_from_slice(&header);
        if let Some(name) = name {
            put_str(&mut batch, 1, name);
        }
        end(&mut batch, start);
        seq = seq.wrapping_add(1);
    };
    message(16, 0, nf_tables, None);
    for number in 1..=count {
        let ack = if number == count { NLM_F_ACK } else { 0 };
        let name = format!("{prefix}{number}");
        message(NFT_MSG_NEWTABLE, NLM_F_CREATE | ack, INET, Some(&name));
    }
    message(17, 0, nf_tables, None);
    assert!(matches!(socket.batch(&batch).unwrap(), Outcome::Committed));
}

#[test]
fn changes_of_other_sockets_are_reported_and_own_changes_are_not() {
    let mut stage = Stage::new();
    stage.join();
    assert_eq!(stage.received(), [], "nothing to read is no error");
    add_tables(&mut stage.ours, "ours", 3);
    assert!(!stage.is_readable());
    assert_eq!(stage.received(), []);
    add_tables(&mut stage.foreign, "foreign", 2);
    assert!(stage.is_readable());
    let expected = [NFT_MSG_NEWTABLE, NFT_MSG_NEWTABLE, NFT_MSG_NEWGEN].map(Some);
    assert_eq!(stage.received(), expected);
    assert_eq!(stage.received(), []);
}

#[test]
fn a_notification_has_attributes_and_the_port_id_of_its_originator() {
    let mut stage = Stage::new();
    stage.join();
    add_tables(&mut stage.foreign, "foreign", 1);
    let (mut names, port) = (Vec::new(), stage.foreign.port_id());
    let each = |event: Event<'_>| {
        let Event::Message(message) = event else {
            panic!("nothing is lost")
        };
        assert_eq!(message.port_id, port);
        if message.ty == NFT_MSG_NEWTABLE {
            let first = Attrs::new(&message.payload[4..]).next().unwrap().unwrap();
            names.push(first.str().unwrap().to_owned());
        }
    };
    stage.listener.read(each).unwrap();
    assert_eq!(names, ["foreign1"]);
}

#[test]
fn own_changes_do_not_fill_the_receive_buffer() {
    let mut stage = Stage::new();
    stage.listener.set_recv_buffer_size(4096).unwrap();
    stage.join();
    add_tables(&mut stage.ours, "ours", MANY);
    assert_eq!(stage.received(), []);
    add_tables(&mut stage.foreign, "foreign", 1);
    assert_eq!(
        stage.received(),
        [NFT_MSG_NEWTABLE, NFT_MSG_NEWGEN].map(Some)
    );
}

#[test]
fn an_overrun_is_reported_once_after_all_received_notifications() {
    let mut stage = Stage::new();
    stage.listener.set_recv_buffer_size(4096).unwrap();
    stage.join();
    add_tables(&mut stage.foreign, "foreign", MANY);
    let received = stage.received();
    assert_eq!(received.last(), Some(&None), "{} events", received.len());
    assert_eq!(received.iter().filter(|event| event.is_none()).count(), 1);
    assert!(received.len() < MANY);
    assert_eq!(stage.received(), []);
    add_tables(&mut stage.foreign, "later", 1);
    assert_eq!(
        stage.received(),
        [NFT_MSG_NEWTABLE, NFT_MSG_NEWGEN].map(Some)
    );
}

#[test]
fn a_larger_receive_buffer_holds_more_notifications() {
    let mut stage = Stage::new();
    stage.listener.set_recv_buffer_size(64 << 20).unwrap();
    stage.join();
    add_tables(&mut stage.foreign, "foreign", MANY);
    let received = stage.received();
    assert!(received.iter().all(Option::is_some), "nothing is lost");
    assert_eq!(received.len(), MANY + 1);
}

#[test]
fn no_notification_arrives_before_joining() {
    let mut stage = Stage::new();
    add_tables(&mut stage.foreign, "foreign", 1);
    assert!(!stage.is_readable());
    assert_eq!(stage.received(), []);
}
