//! A synchronous netlink client: requests, batches, dumps and extended ACKs.
//!
//! ```no_run
//! use vipline_netlink::attr::Attrs;
//! use vipline_netlink::{Dump, Error, Protocol, Socket};
//!
//! const RTM_GETLINK: u16 = 18;
//! const IFLA_IFNAME: u16 = 3;
//! const IFINFOMSG: usize = 16;
//!
//! let mut socket = Socket::open(Protocol::ROUTE)?;
//! let links = socket.dump(RTM_GETLINK, &[0; IFINFOMSG], 3, Vec::new, |names, link| {
//!     for attr in Attrs::new(link.payload.get(IFINFOMSG..).unwrap_or_default()) {
//!         let attr = attr?;
//!         if attr.kind == IFLA_IFNAME {
//!             names.push(attr.str()?.to_owned());
//!         }
//!     }
//!     Ok::<(), Error>(())
//! })?;
//! match links {
//!     Dump::Complete(names) => println!("{names:?}"),
//!     Dump::Interrupted(_) => println!("links changed during every attempt"),
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! A netlink message consists of a header, a payload defined by the family, and
//! attributes.
//! This crate encodes and decodes headers and attributes, and exchanges messages with
//! the kernel. The crates that use it define the payloads.
//!
//! - [`attr`]: encoding and decoding of attributes.
//! - [`message`]: encoding and decoding of messages, including extended ACKs.
//! - [`Socket`]: a blocking socket with a reply timeout for requests, dumps and batches.
//!   The socket checks sequence numbers and port IDs of replies, detects interrupted
//!   dumps, and sends a batch of any length by one system call.
//! - [`SocketOption`] and [`NetworkNamespace`]: options of sockets, and sockets in another
//!   network namespace.
//! - [`AckTracker`] and [`ReplyTracker`]: acknowledgments and replies without IO.
//! - [`Outcome`] and [`Dump`]: results of batches and dumps.
//! - [`Rejected`]: a rejected request with its error number and the message of the
//!   extended ACK. [`RejectedList`] displays several.
//! - [`generic`]: generic netlink families.
//! - [`Listener`]: a non-blocking socket that receives notifications of multicast
//!   groups, optionally without those that the program itself caused.
//! - [`Error`]: errors of sockets, including the messages of extended ACKs.
//! - [`ClientError`] and [`Requester`]: the error of all clients, and what their sockets have
//!   in common. The other crates of Vipline consist of these two and of the messages of one
//!   family.
//!
//! The crate needs neither libmnl nor libnl.
//! It starts no threads or tasks, writes no logs, and needs no async runtime: [`attr`],
//! [`message`] and the trackers work without a socket; [`Socket`] and [`Listener`]
//! implement [`AsFd`](std::os::fd::AsFd) and [`AsRawFd`](std::os::fd::AsRawFd).
//!
//! # Async programs
//!
//! With the feature `tokio`, the module `tokio` has `EventStream`, which waits for the
//! notifications of every listener and monitor, and `AsyncClient`, which calls every client
//! on a thread that may block. Requests need a thread, because the kernel executes them inside
//! of `sendmsg`: a non-blocking socket has nothing to wait for. For other event loops, wait
//! for the descriptor of an [`EventSource`].
//!
//! # Requirements
//!
//! Requires Linux 5.13 or later.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only sockets use some functions")
)]

mod uapi;

pub mod attr;

pub mod message;

mod protocol;

mod errno;

mod policy;

mod dump;

mod outcome;

mod ack_tracker;

mod reply_tracker;

mod rejected;

mod counters;

#[cfg(target_os = "linux")]
mod netns;

#[cfg(target_os = "linux")]
mod descriptor;

#[cfg(target_os = "linux")]
mod socket;

#[cfg(target_os = "linux")]
mod requests;

pub mod generic;

#[cfg(target_os = "linux")]
mod listener;

#[cfg(target_os = "linux")]
mod event_source;

#[cfg(target_os = "linux")]
mod requester;

#[cfg(all(feature = "tokio", target_os = "linux"))]
pub mod tokio;

mod readable;

mod condition;

mod error;

mod client_error;

pub use ack_tracker::AckTracker;
pub use client_error::ClientError;
pub use condition::{Condition, Feature};
pub use counters::Counters;
#[cfg(target_os = "linux")]
pub use descriptor::SocketOption;
pub use dump::Dump;
pub use errno::Errno;
pub use error::{DecodeError, Error, KernelError};
#[cfg(target_os = "linux")]
pub use event_source::EventSource;
#[cfg(target_os = "linux")]
pub use listener::{Event, Listener};
#[cfg(target_os = "linux")]
pub use netns::NetworkNamespace;
pub use outcome::Outcome;
pub use policy::Policy;
pub use protocol::Protocol;
pub use rejected::{Rejected, RejectedList, RejectedRequest};
pub use reply_tracker::ReplyTracker;
#[cfg(target_os = "linux")]
pub use requester::{Applied, Request, Requester};
#[cfg(target_os = "linux")]
pub use socket::Socket;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
