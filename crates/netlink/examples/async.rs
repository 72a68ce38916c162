//! Notifications, a batch and a dump with tokio.
//!
//! Run as root: `cargo run --features tokio --example async`. The example works in a
//! network namespace of its own.
//!
//! `EventStream` waits for the notifications of a listener, and `AsyncClient` calls a blocking
//! socket. The last part uses a socket that tokio waits for, and of this crate only the codecs
//! and the trackers, as an event loop does that is not tokio.
#![allow(clippy::print_stdout, reason = "the example prints what it receives")]

use std::error::Error;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram as Datagram;

use nix::sched::{CloneFlags, unshare};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink};
use tokio::net::UnixDatagram;
use vipline_netlink::attr::{Attrs, put_str};
use vipline_netlink::message::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, begin, end};
use vipline_netlink::tokio::{AsyncClient, EventStream};
use vipline_netlink::{Listener, Outcome, Protocol, ReplyTracker, Socket};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

// Messages of nf_tables, `linux/netfilter/nf_tables.h`.
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 10 << 8;
const NFT_MSG_GETTABLE: u16 = NFT_MSG_NEWTABLE + 1;
const NFTA_TABLE_NAME: u16 = 1;
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
        let mut events = EventStream::new(listener)?;
        let socket = AsyncClient::new(Socket::open(Protocol::NETFILTER)?);

        let outcome = socket
            .call(|socket| add(socket, &["blue", "green"]))
            .await?;
        writeln!(out, "batch: {outcome:?}")?;
        for _ in 0..2 {
            // Lost notifications are an error, after which the tables have to be dumped.
            let event = events.next().await?;
            let name = name(&event.payload).filter(|_| event.ty == NFT_MSG_NEWTABLE);
            writeln!(
                out,
                "event: table {} added",
                name.ok_or("an unknown event")?
            )?;
        }
        writeln!(out, "tables: {}", tables().await?.join(", "))?;
        Ok(())
    })
}

/// Adds tables by one atomic batch.
fn add(
    socket: &mut Socket,
    tables: &[&str],
) -> std::result::Result<Outcome, vipline_netlink::Error> {
    let (mut batch, mut sequence) = (Vec::new(), socket.sequence());
    let mut message = |ty, flags, header: [u8; 4], name: Option<&str>| {
        let start = begin(&mut batch, ty, NLM_F_REQUEST | flags, sequence);
        sequence = sequence.wrapping_add(1);
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
    socket.batch(&batch)
}

/// Dumps the names of all tables over a socket that tokio waits for.
async fn tables() -> Result<Vec<String>> {
    let sequence = 1;
    let socket = open()?;
    let address = rustix::net::getsockname(&socket)?;
    let port_id = netlink::SocketAddrNetlink::try_from(address)?.pid();

    let mut request = Vec::new();
    let start = begin(
        &mut request,
        NFT_MSG_GETTABLE,
        NLM_F_REQUEST | NLM_F_DUMP,
        sequence,
    );
    request.extend_from_slice(&INET);
    end(&mut request, start);
    socket.send(&request).await?;
    let mut reply = ReplyTracker::new(sequence, port_id);
    let (mut names, mut datagram) = (Vec::new(), vec![0; 64 << 10]);
    while !reply.is_complete() {
        let bytes = socket.recv(&mut datagram).await?;
        let received = datagram.get(..bytes).unwrap_or_default();
        reply.receive(received, |table| names.extend(name(table.payload)))?;
    }
    Ok(names)
}

/// Opens a netlink socket. The type of tokio for datagrams owns the descriptor, and so needs no
/// `unsafe`, unlike `AsyncFd`.
fn open() -> Result<UnixDatagram> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let protocol = Some(netlink::NETFILTER);
    let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    rustix::net::connect(&fd, &netlink::SocketAddrNetlink::new(0, 0))?;
    Ok(UnixDatagram::from_std(Datagram::from(fd))?)
}

/// Returns the name of a table.
fn name(payload: &[u8]) -> Option<String> {
    let mut attrs = Attrs::new(payload.get(INET.len()..)?).flatten();
    let name = attrs.find(|attr| attr.kind == NFTA_TABLE_NAME)?;
    name.str().ok().map(str::to_owned)
}
