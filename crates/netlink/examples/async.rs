//! A dump, a batch and notifications with tokio's `AsyncFd`.
//!
//! Run as root: `cargo run --example async`. The example works in a
//! network namespace of its own.
//!
//! The requests use a socket that tokio waits for, and of this crate only the codecs
//! and the trackers. The notifications use a `Listener`, which does not block.
//!
//! Features of tokio: `net` for `AsyncFd`, and `rt` for a runtime of one thread.
#![allow(
    deprecated,
    reason = "`AsyncFd::new` is safe with types that own their descriptor; its successor is unsafe"
)]
#![allow(clippy::print_stdout, reason = "the example prints what it receives")]

use std::error::Error;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use nix::sched::{CloneFlags, unshare};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{netlink, recv, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use vipline_netlink::attr::{Attrs, put_str};
use vipline_netlink::message::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, begin, end};
use vipline_netlink::{AckTracker, Event, Listener, Outcome, Protocol, ReplyTracker};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

// Messages of nf_tables, `linux/netfilter/nf_tables.h`.
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 10 << 8;
const NFT_MSG_GETTABLE: u16 = NFT_MSG_NEWTABLE + 1;
const NFTA_TABLE_NAME: u16 = 1;
// linux/netfilter/nfnetlink.h: enum nfnetlink_groups
const NFNLGRP_NFTABLES: u32 = 7;
/// `struct nfgenmsg` of family `inet`, and of a batch for nf_tables.
const INET: [u8; 4] = [1, 0, 0, 0];
const NF_TABLES: [u8; 4] = [0, 0, 0, 10];

fn main() -> Result<()> {
    // A network namespace of its own, so that the host stays as it is.
    unshare(CloneFlags::CLONE_NEWNET)?;
    run(&mut io::stdout())
}

/// Runs the example in the network namespace of the calling thread.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let mut listener = Listener::open(Protocol::NETFILTER)?;
        listener.join(NFNLGRP_NFTABLES)?;
        let mut listener = AsyncFd::with_interest(listener, Interest::READABLE)?;
        let mut socket = Async::open()?;

        let outcome = socket.batch(&["blue", "green"]).await?;
        writeln!(out, "batch: {outcome:?}")?;
        writeln!(out, "tables: {}", socket.tables().await?.join(", "))?;
        for event in events(&mut listener).await? {
            writeln!(out, "event: {event}")?;
        }
        Ok(())
    })
}

/// A netlink socket that tokio waits for.
struct Async {
    fd: AsyncFd<OwnedFd>,
    sequence: u32,
}

impl Async {
    fn open() -> Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let protocol = Some(netlink::NETFILTER);
        let fd =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::connect(&fd, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Self {
            fd: AsyncFd::new(fd)?,
            sequence: 1,
        })
    }

    /// Returns the port ID, which the kernel assigned when the socket was connected.
    fn port_id(&self) -> Result<u32> {
        let address = rustix::net::getsockname(&self.fd)?;
        Ok(netlink::SocketAddrNetlink::try_from(address)?.pid())
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let send = |fd: &OwnedFd| Ok(send(fd, datagram, SendFlags::empty())?);
        self.fd.async_io(Interest::WRITABLE, send).await?;
        Ok(())
    }

    async fn receive(&self) -> io::Result<Vec<u8>> {
        let receive = |fd: &OwnedFd| {
            let mut datagram = vec![0; 64 << 10];
            let (bytes, _) = recv(fd, &mut datagram[..], RecvFlags::empty())?;
            datagram.truncate(bytes);
            Ok(datagram)
        };
        self.fd.async_io(Interest::READABLE, receive).await
    }

    /// Adds tables by one atomic batch.
    async fn batch(&mut self, tables: &[&str]) -> Result<Outcome> {
        let (mut batch, first) = (Vec::new(), self.sequence);
        let mut message = |ty, flags, header: [u8; 4], name: Option<&str>| {
            let start = begin(&mut batch, ty, NLM_F_REQUEST | flags, self.sequence);
            self.sequence += 1;
            batch.extend_from_slice(&header);
            if let Some(name) = name {
                put_str(&mut batch, NFTA_TABLE_NAME, name);
            }
            end(&mut batch, start);
        };
        message(NFNL_MSG_BATCH_BEGIN, 0, NF_TABLES, None);
        for (index, table) in tables.iter().enumerate() {
            // Only the last message before the end requests an acknowledgment.
            let ack = if index + 1 == tables.len() {
                NLM_F_ACK
            } else {
                0
            };
            message(NFT_MSG_NEWTABLE, NLM_F_CREATE | ack, INET, Some(table));
        }
        message(NFNL_MSG_BATCH_END, 0, NF_TABLES, None);

        let mut acks = AckTracker::of_batch(&batch, self.port_id()?)?;
        assert!(acks.next_sequence() > first, "sequence numbers increase");
        self.send(&batch).await?;
        while !acks.is_complete() {
            acks.receive(&self.receive().await?)?;
        }
        Ok(acks.into_outcome(None))
    }

    /// Dumps the names of all tables.
    async fn tables(&mut self) -> Result<Vec<String>> {
        let mut request = Vec::new();
        let start = begin(
            &mut request,
            NFT_MSG_GETTABLE,
            NLM_F_REQUEST | NLM_F_DUMP,
            self.sequence,
        );
        request.extend_from_slice(&INET);
        end(&mut request, start);
        let mut reply = ReplyTracker::new(self.sequence, self.port_id()?);
        self.sequence += 1;
        self.send(&request).await?;
        let mut names = Vec::new();
        while !reply.is_complete() {
            let datagram = self.receive().await?;
            reply.receive(&datagram, |table| names.extend(name(table.payload)))?;
        }
        Ok(names)
    }
}

/// Waits for notifications, and returns their texts.
async fn events(listener: &mut AsyncFd<Listener>) -> Result<Vec<String>> {
    let mut events = Vec::new();
    let mut guard = listener.readable_mut().await?;
    guard.get_inner_mut().read(|event| match event {
        Event::Message(message) if message.ty == NFT_MSG_NEWTABLE => {
            events.extend(name(message.payload).map(|name| format!("table {name} added")));
        }
        Event::Message(_) => events.push("new generation".to_owned()),
        _ => events.push("notifications were lost: dump again".to_owned()),
    })?;
    // `read` read everything, so the descriptor is not readable any more.
    guard.clear_ready();
    Ok(events)
}

/// Returns the name of a table.
fn name(payload: &[u8]) -> Option<String> {
    let mut attrs = Attrs::new(payload.get(INET.len()..)?).flatten();
    let name = attrs.find(|attr| attr.kind == NFTA_TABLE_NAME)?;
    name.str().ok().map(str::to_owned)
}
