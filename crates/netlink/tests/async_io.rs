//! Tests of the module `tokio` against the running kernel, each in a new network namespace.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::ready;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use testkit::netns::Netns;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;
use vipline_netlink::attr::{Attrs, put_str};
use vipline_netlink::message::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, OwnedMessage, begin, end};
use vipline_netlink::tokio::{AsyncClient, EventStream};
use vipline_netlink::{Dump, Error, EventSource, Listener, Outcome, Protocol, Socket};

/// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const NFTABLES: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_*`.
const NEW_TABLE: u16 = 0xa00;
const GET_TABLE: u16 = 0xa01;
/// `struct nfgenmsg` of family `inet`.
const INET: [u8; 4] = [1, 0, 0, 0];

/// Time after which a test fails that waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of commits whose notifications are more than one read.
const MANY: usize = 300;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Opens a socket, and a listener for the changes of tables, in a new namespace.
fn open(recv_buffer: usize) -> (Socket, Listener) {
    Netns::new().unwrap().run(|| {
        let mut listener = Listener::open(Protocol::NETFILTER).unwrap();
        listener.set_recv_buffer_size(recv_buffer).unwrap();
        listener.join(NFTABLES).unwrap();
        (Socket::open(Protocol::NETFILTER).unwrap(), listener)
    })
}

/// Adds tables with one commit.
fn add_tables(socket: &mut Socket, names: impl IntoIterator<Item = String>) {
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
    let mut names = names.into_iter().peekable();
    while let Some(name) = names.next() {
        let ack = if names.peek().is_none() { NLM_F_ACK } else { 0 };
        message(NEW_TABLE, NLM_F_CREATE | ack, INET, Some(&name));
    }
    message(17, 0, nf_tables, None);
    assert!(matches!(socket.batch(&batch).unwrap(), Outcome::Committed));
}

/// Counts the tables.
fn tables(socket: &mut Socket) -> usize {
    let tables = socket.dump(
        GET_TABLE,
        &INET,
        3,
        || 0,
        |tables, _| {
            *tables += 1;
            Ok::<(), Error>(())
        },
    );
    let Dump::Complete(tables) = tables.unwrap() else {
        panic!("nothing changes meanwhile");
    };
    tables
}

/// Returns the name of an added table, or `None` for another notification.
fn name(event: &OwnedMessage) -> Option<String> {
    if event.ty != NEW_TABLE {
        return None;
    }
    let first = Attrs::new(&event.as_message().payload[4..])
        .next()?
        .unwrap();
    Some(first.str().unwrap().to_owned())
}

/// Returns the names of the next added tables.
async fn names(events: &mut EventStream<Listener>, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    while names.len() < count {
        let event = timeout(PATIENCE, events.next()).await;
        let event = event.unwrap_or_else(|_| panic!("only {names:?}"));
        names.extend(name(&event.unwrap()));
    }
    names
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect()
}

#[test]
fn all_events_that_were_received_arrive_in_order() {
    let (mut socket, listener) = open(8 << 20);
    runtime().block_on(async {
        let mut events = EventStream::new(listener).unwrap();
        let expected = numbered("table", MANY);
        for table in &expected {
            add_tables(&mut socket, [table.clone()]);
        }
        assert_eq!(names(&mut events, MANY).await, expected);
    });
}

#[test]
fn an_event_wakes_the_task_that_waits() {
    let (mut socket, listener) = open(8 << 20);
    two_threads().block_on(async {
        let mut events = EventStream::new(listener).unwrap();
        let (started, start) = oneshot::channel();
        let waiting = tokio::spawn(async move {
            started.send(()).unwrap();
            names(&mut events, 3).await
        });
        start.await.unwrap();
        for table in numbered("table", 3) {
            yield_now().await;
            add_tables(&mut socket, [table]);
        }
        assert_eq!(waiting.await.unwrap(), numbered("table", 3));
    });
}

#[test]
fn a_wait_that_is_dropped_loses_no_event() {
    let (mut socket, listener) = open(8 << 20);
    runtime().block_on(async {
        let mut events = EventStream::new(listener).unwrap();
        let mut received = Vec::new();
        let expected = numbered("table", MANY);
        for (index, table) in expected.iter().enumerate() {
            add_tables(&mut socket, [table.clone()]);
            // The runtime looks for events only when no task can run.
            if index % 3 == 0 {
                yield_now().await;
            }
            loop {
                tokio::select! {
                    biased;
                    event = events.next() => received.extend(name(&event.unwrap())),
                    () = ready(()) => break,
                }
            }
        }
        let rest = MANY - received.len();
        assert!(rest < MANY, "only waits were dropped");
        received.extend(names(&mut events, rest).await);
        assert_eq!(received, expected);
    });
}

#[test]
fn lost_notifications_are_an_error_and_later_events_arrive() {
    let (mut socket, listener) = open(4096);
    runtime().block_on(async {
        let mut events = EventStream::new(listener).unwrap();
        add_tables(&mut socket, numbered("table", 2000));
        let mut received = 0;
        let error = loop {
            match timeout(PATIENCE, events.next()).await.unwrap() {
                Ok(_) => received += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NotificationsLost), "{error}");
        assert!(error.to_string().contains("dump the objects again"));
        assert!(received < 2000, "{received}");
        add_tables(&mut socket, ["later".to_owned()]);
        assert_eq!(names(&mut events, 1).await, ["later"]);
    });
}

/// A source whose descriptor has an error and no data, once the reader is closed.
///
/// A netlink socket has this state for a moment, if the kernel finds its buffer full just before
/// it is read. It stays in it without another read.
#[derive(Debug)]
struct Closed(PipeWriter);

impl AsFd for Closed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl EventSource for Closed {
    type Event = ();
    type Error = Error;

    fn read_events(
        &mut self,
        _: usize,
        mut each: impl FnMut(Result<(), Error>),
    ) -> Result<bool, Error> {
        each(Err(Error::NotificationsLost));
        Ok(true)
    }
}

#[test]
fn an_error_of_the_socket_wakes_the_task_without_data() {
    let (reader, writer): (PipeReader, PipeWriter) = pipe().unwrap();
    runtime().block_on(async {
        let mut events = EventStream::new(Closed(writer)).unwrap();
        assert!(
            timeout(Duration::from_millis(10), events.next())
                .await
                .is_err()
        );
        drop(reader);
        let event = timeout(PATIENCE, events.next()).await.unwrap();
        assert!(matches!(event, Err(Error::NotificationsLost)), "{event:?}");
    });
}

#[test]
fn a_task_with_many_events_lets_others_run() {
    let (mut socket, listener) = open(64 << 20);
    runtime().block_on(async {
        let mut events = EventStream::new(listener).unwrap();
        let has_run = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&has_run);
        add_tables(&mut socket, numbered("table", 2000));
        names(&mut events, 1).await;
        tokio::spawn(async move { set.store(true, Ordering::Relaxed) });
        assert!(!has_run.load(Ordering::Relaxed));
        names(&mut events, 1000).await;
        assert!(has_run.load(Ordering::Relaxed));
    });
}

#[test]
fn the_source_can_be_used_and_returned() {
    let (mut socket, listener) = open(8 << 20);
    runtime().block_on(async {
        let mut events = EventStream::new(listener).unwrap();
        events.get_mut().leave(NFTABLES).unwrap();
        add_tables(&mut socket, ["missed".to_owned()]);
        events.get_mut().join(NFTABLES).unwrap();
        add_tables(&mut socket, ["seen".to_owned()]);
        assert_eq!(names(&mut events, 1).await, ["seen"]);
        let mut listener = events.into_inner();
        add_tables(&mut socket, ["last".to_owned()]);
        let mut count = 0;
        listener.read(|_| count += 1).unwrap();
        // The generation of the commit before, the table, and its generation.
        assert!(count >= 2, "{count}");
    });
}

#[test]
fn a_call_that_is_dropped_is_executed_and_leaves_the_client_usable() {
    let (socket, _) = open(4096);
    runtime().block_on(async {
        let client = AsyncClient::new(socket);
        let (started, start) = oneshot::channel();
        let (proceed, go_on) = mpsc::channel::<()>();
        let call = client.call(move |socket| {
            assert_eq!(tables(socket), 0);
            started.send(()).unwrap();
            go_on.recv().unwrap();
            add_tables(socket, numbered("table", 5));
        });
        tokio::select! {
            biased;
            () = call => panic!("it waits"),
            started = start => started.unwrap(),
        }
        // `select!` has dropped the call, whose thread waits in the middle of its requests.
        let waits = client.call(tables);
        assert!(timeout(Duration::from_millis(10), waits).await.is_err());
        proceed.send(()).unwrap();
        let count = timeout(PATIENCE, client.call(tables)).await;
        assert_eq!(count.unwrap(), 5);
    });
}

#[test]
fn calls_of_several_tasks_use_one_client_in_turn() {
    let (socket, _) = open(4096);
    two_threads().block_on(async {
        let client = AsyncClient::new(socket);
        let calls: Vec<_> = (0..50)
            .map(|number| {
                let client = client.clone();
                tokio::spawn(async move {
                    let add = move |socket: &mut Socket| {
                        let before = tables(socket);
                        add_tables(socket, [format!("table{number}")]);
                        (before, tables(socket))
                    };
                    timeout(PATIENCE, client.call(add)).await.unwrap()
                })
            })
            .collect();
        let mut counts = Vec::new();
        for call in calls {
            let (before, after) = call.await.unwrap();
            assert_eq!(after, before + 1);
            counts.push(after);
        }
        counts.sort_unstable();
        assert_eq!(counts, (1..=50).collect::<Vec<_>>());
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_client_is_usable() {
    let (socket, _) = open(4096);
    runtime().block_on(async {
        let client = AsyncClient::new(socket);
        let clone = client.clone();
        let call = tokio::spawn(async move {
            let fail = |socket: &mut Socket| assert_ne!(tables(socket), 0, "on purpose");
            clone.call(fail).await;
        });
        let payload = call.await.unwrap_err().into_panic();
        let text = payload.downcast_ref::<String>().unwrap();
        assert!(text.contains("on purpose"), "{text}");
        assert_eq!(client.call(tables).await, 0);
    });
}
