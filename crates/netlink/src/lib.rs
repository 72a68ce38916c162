//! A synchronous netlink client: requests, batches, dumps and extended ACKs.
//!
//! Netlink is how Linux is told about its network: a message is a header, a
//! payload of the family, and attributes.
//! This crate writes and reads that frame, and carries it to the kernel and
//! back; what the messages mean is up to the crates above it.
//!
//! - [`attr`]: writers that append attributes and cannot fail, a reader that
//!   cannot go astray.
//! - [`message`]: the header, and what the kernel says in answer, with the
//!   words of its extended acknowledgements.
//! - [`Outcome`] and [`Dump`]: what became of a batch or a dump.
//! - [`Socket`]: one request, one dump or one batch at a time.
//!   Answers are checked by sequence number and port, reading is bounded in
//!   time, a dump the kernel interrupted is told from a complete one, and a
//!   batch of any size goes out by one system call; so does a series of messages
//!   that stand alone, and each refusal is told.
//! - [`generic`]: families that are found by name.
//! - [`Listener`]: what happens to the kernel's state, without waiting, and
//!   without what the program itself did.
//! - [`Error`]: what goes wrong, with the kernel's words.
//!
//! The crate knows no family, spawns nothing, logs nothing and needs no C
//! library.
//! It brings no async runtime: writers and readers work without a socket, and
//! [`Socket`] and [`Listener`] offer their file descriptors.
//!
//! ```no_run
//! use vipline_netlink::attr::Attrs;
//! use vipline_netlink::{Dump, Error, Protocol, Socket};
//!
//! const RTM_GETLINK: u16 = 18;
//! const IFLA_IFNAME: u16 = 3;
//! const IFINFOMSG: usize = 16;
//!
//! let mut socket = Socket::open(Protocol::Route)?;
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
//!     Dump::Interrupted(_) => println!("links come and go too fast"),
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! Extended acknowledgements need Linux 4.12, without them refusals come with
//! an error number only.
#![forbid(unsafe_code)]

pub mod attr;

pub mod message;

mod protocol;

mod outcome;

mod counters;

mod socket;

pub mod generic;

mod listener;

mod error;

pub use counters::Counters;
pub use error::{DecodeError, Errno, Error, Refusal};
pub use listener::{Event, Listener};
pub use outcome::{Dump, Outcome};
pub use protocol::Protocol;
pub use socket::Socket;
