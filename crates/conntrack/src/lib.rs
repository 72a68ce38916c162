//! Connection tracking: flows of the Linux kernel over ctnetlink.
//!
//! ```no_run
//! use vipline_conntrack::{Client, Filter, Protocol, TupleFilter};
//!
//! let mut client = Client::open()?;
//! let dns = Filter::new()
//!     .with_protocol(Protocol::UDP)
//!     .with_original(TupleFilter::new().with_destination("10.96.0.10".parse()?).with_destination_port(53));
//! let mut stale = Vec::new();
//! let _ = client.dump(&dns, |flow| {
//!     if flow.reply.source.to_string() == "10.1.0.7" {
//!         stale.push(flow.key());
//!     }
//! })?;
//! let done = client.delete_all(stale)?;
//! println!("{} flows deleted", done.deleted);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The kernel tracks every connection and its address translation as a conntrack entry,
//! which this crate calls a flow.
//! The crate dumps, filters, deletes, updates and creates flows, receives their events,
//! and formats them like `conntrack -L -o extended`, without running `conntrack`.
//!
//! - [`Flow`]: a flow with both [`Tuple`]s, its [`Status`] and the protocol [`State`];
//!   unknown attributes are preserved.
//! - [`Filter`]: selects flows; a pure value, evaluated by [`matches`](Filter::matches).
//! - [`Key`]: identity of a flow; with an ID, a deletion does not affect another flow
//!   with the same tuple.
//! - [`Client`]: dumps flows one by one, changes many flows per system call, returns
//!   statistics.
//! - [`Events`]: notifications of created, updated and destroyed flows and expectations.
//! - [`Expectation`]: a related flow that a helper expects.
//! - [`wire`]: encoding and decoding of messages, for programs with their own sockets.
//! - [`Labels`], [`LabelNames`]: labels of flows, and their names in `connlabel.conf`.
//! - [`Error`]: errors, including all rejected changes.
//!
//! A filter selects the same flows on every kernel.
//! The kernel applies the conditions that it supports; the client applies all others.
//!
//! Requires Linux 5.13 or later with the module `nf_conntrack_netlink`, and
//! `CAP_NET_ADMIN`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only sockets use some functions")
)]

mod uapi;

mod protocol;

mod tuple;

mod status;

mod dccp;

mod state;

mod labels;

mod flow;

mod key;

mod text;

mod range;

mod filter;

mod expectation;

mod statistics;

pub mod wire;

mod event;

#[cfg(target_os = "linux")]
mod client;

#[cfg(target_os = "linux")]
mod lists;

#[cfg(target_os = "linux")]
mod socket;

mod error;

#[cfg(target_os = "linux")]
pub use client::{Client, Deleted, Flushed};
pub use dccp::{Dccp, DccpState};
pub use error::{Change, Error, RejectedChange};
pub use event::{Event, Groups};
pub use expectation::Expectation;
pub use filter::{Filter, TupleFilter};
pub use flow::{Counters, Extension, Flow, FlowCounters, Other, SeqAdj, Synproxy, Timestamps};
pub use key::{Key, Update};
pub use labels::{LabelNames, Labels};
pub use range::{AddressRange, Network, PortRange};
#[cfg(target_os = "linux")]
pub use socket::Events;
pub use state::{Sctp, SctpState, State, Tcp, TcpDirection, TcpFlags, TcpState};
pub use statistics::{CpuStatistics, Usage};
pub use status::Status;
pub use tuple::{Layer4, Tuple};
pub use vipline_inet::{Family, Protocol};
pub use vipline_netlink as netlink;
pub use vipline_netlink::Dump;

#[cfg(all(test, target_os = "linux"))]
vipline_netlink::assert_descriptors!(Client, Events);

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
