//! Listening to a real kernel, in network namespaces of their own.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::netns::Netns;
use vipline_netlink::attr::{Attrs, put_str};
use vipline_netlink::message::{ACK, CREATE, REQUEST, begin, end};
use vipline_netlink::{Event, Listener, Outcome, Protocol, Socket};

/// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const NFTABLES: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_*`.
const NEW_TABLE: u16 = 0xa00;
const NEW_GENERATION: u16 = 0xa0f;
/// `struct nfgenmsg` of family `inet`.
const INET: [u8; 4] = [1, 0, 0, 0];
/// More tables than a small buffer has room for messages about them.
const MANY: usize = 2_000;

/// A namespace's sockets: one that is ours, one of somebody else, and ears.
struct Stage {
    ours: Socket,
    foreign: Socket,
    listener: Listener,
}

impl Stage {
    fn new() -> Self {
        Netns::new().unwrap().run(|| Self {
            ours: Socket::open(Protocol::Netfilter).unwrap(),
            foreign: Socket::open(Protocol::Netfilter).unwrap(),
            listener: Listener::open(Protocol::Netfilter).unwrap(),
        })
    }

    /// Listens to all but what is ours.
    fn join(&mut self) {
        self.listener.ignore(&[self.ours.port()]).unwrap();
        self.listener.join(NFTABLES).unwrap();
    }

    /// Returns the types of the messages heard, `None` for an overrun.
    fn heard(&mut self) -> Vec<Option<u16>> {
        let mut heard = Vec::new();
        let tell = |event: Event<'_>| {
            heard.push(match event {
                Event::Message(message) => Some(message.ty),
                _ => None,
            });
        };
        self.listener.read(tell).unwrap();
        heard
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
        let start = begin(&mut batch, ty, REQUEST | flags, seq);
        batch.extend_from_slice(&header);
        if let Some(name) = name {
            put_str(&mut batch, 1, name);
        }
        end(&mut batch, start);
        seq = seq.wrapping_add(1);
    };
    message(16, 0, nf_tables, None);
    for number in 1..=count {
        let ack = if number == count { ACK } else { 0 };
        let name = format!("{prefix}{number}");
        message(NEW_TABLE, CREATE | ack, INET, Some(&name));
    }
    message(17, 0, nf_tables, None);
    assert!(matches!(socket.batch(&batch).unwrap(), Outcome::Committed));
}

#[test]
fn what_others_do_is_heard_and_what_we_do_is_not() {
    let mut stage = Stage::new();
    stage.join();
    assert_eq!(stage.heard(), [], "nothing to read is no error");
    add_tables(&mut stage.ours, "ours", 3);
    assert!(!stage.is_readable());
    assert_eq!(stage.heard(), []);
    add_tables(&mut stage.foreign, "foreign", 2);
    assert!(stage.is_readable());
    let expected = [NEW_TABLE, NEW_TABLE, NEW_GENERATION].map(Some);
    assert_eq!(stage.heard(), expected);
    assert_eq!(stage.heard(), []);
}

#[test]
fn a_message_has_the_words_of_the_kernel() {
    let mut stage = Stage::new();
    stage.join();
    add_tables(&mut stage.foreign, "foreign", 1);
    let (mut names, port) = (Vec::new(), stage.foreign.port());
    let tell = |event: Event<'_>| {
        let Event::Message(message) = event else {
            panic!("nothing is lost")
        };
        assert_eq!(message.port, port);
        if message.ty == NEW_TABLE {
            let first = Attrs::new(&message.payload[4..]).next().unwrap().unwrap();
            names.push(first.str().unwrap().to_owned());
        }
    };
    stage.listener.read(tell).unwrap();
    assert_eq!(names, ["foreign1"]);
}

#[test]
fn however_much_we_do_nothing_is_lost() {
    let mut stage = Stage::new();
    stage.listener.set_room(4096).unwrap();
    stage.join();
    add_tables(&mut stage.ours, "ours", MANY);
    assert_eq!(stage.heard(), []);
    add_tables(&mut stage.foreign, "foreign", 1);
    assert_eq!(stage.heard(), [NEW_TABLE, NEW_GENERATION].map(Some));
}

#[test]
fn what_does_not_fit_is_an_overrun_told_once_and_last() {
    let mut stage = Stage::new();
    stage.listener.set_room(4096).unwrap();
    stage.join();
    add_tables(&mut stage.foreign, "foreign", MANY);
    let heard = stage.heard();
    assert_eq!(heard.last(), Some(&None), "{} heard", heard.len());
    assert_eq!(heard.iter().filter(|event| event.is_none()).count(), 1);
    assert!(heard.len() < MANY);
    assert_eq!(stage.heard(), []);
    add_tables(&mut stage.foreign, "later", 1);
    assert_eq!(stage.heard(), [NEW_TABLE, NEW_GENERATION].map(Some));
}

#[test]
fn more_room_holds_more() {
    let mut stage = Stage::new();
    stage.listener.set_room(64 << 20).unwrap();
    stage.join();
    add_tables(&mut stage.foreign, "foreign", MANY);
    let heard = stage.heard();
    assert!(heard.iter().all(Option::is_some), "nothing is lost");
    assert_eq!(heard.len(), MANY + 1);
}

#[test]
fn before_joining_there_is_silence() {
    let mut stage = Stage::new();
    add_tables(&mut stage.foreign, "foreign", 1);
    assert!(!stage.is_readable());
    assert_eq!(stage.heard(), []);
}
