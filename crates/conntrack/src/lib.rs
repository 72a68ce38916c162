//! Connection tracking: flows of the Linux kernel over ctnetlink.
//!
//! The kernel remembers each connection that passes, and how it translates the
//! addresses of it.
//! This crate reads, filters, deletes and follows these flows without the
//! program `conntrack`, and prints them as that does.
//!
//! - [`Flow`]: a flow as a value, with both its [`Tuple`]s, its [`Status`] and
//!   the [`State`] of its protocol; attributes beyond are kept as they are.
//! - [`Filter`]: which flows are meant; pure, and judged by
//!   [`matches`](Filter::matches).
//! - [`Key`]: what a flow is deleted by, so that another one of the same
//!   addresses stays.
//! - [`Client`]: dumps flow by flow, deletes many flows in few system calls,
//!   changes marks and timeouts, makes flows, counts.
//! - [`Events`]: flows that come, change and go.
//! - [`Expectation`]: flows that helpers wait for.
//! - [`wire`]: the messages, for those who bring a socket of their own.
//! - [`Error`]: what goes wrong; refusals are counted, and the first few named.
//!
//! A filter selects the same flows on every kernel: what the kernel can judge
//! it does, so that other flows need not be told; what it refuses to judge, or
//! silently does not, is judged here.
//!
//! ```no_run
//! use vipline_conntrack::{Client, Filter, Protocol, Side};
//!
//! let mut client = Client::open()?;
//! let dns = Filter::new()
//!     .protocol(Protocol::UDP)
//!     .original(Side::new().destination("10.96.0.10".parse()?).destination_port(53));
//! let mut stale = Vec::new();
//! let _ = client.dump(&dns, |flow| {
//!     if flow.reply.source.to_string() == "10.1.0.7" {
//!         stale.push(flow.key());
//!     }
//! })?;
//! let done = client.delete_all(stale)?;
//! println!("{} flows are gone", done.deleted + done.missing);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Needs `nf_conntrack_netlink` in the kernel and `CAP_NET_ADMIN`.
#![forbid(unsafe_code)]

mod protocol;

mod tuple;

mod status;

mod state;

mod flow;

mod key;

mod text;

mod filter;

mod expectation;

mod statistics;

pub mod wire;

mod event;

mod client;

mod socket;

mod error;

pub use client::{Client, Deleted, Flushed};
pub use error::{Error, Refused};
pub use event::{Event, Groups};
pub use expectation::Expectation;
pub use filter::{Filter, Side};
pub use flow::{
    Adjustment, Counters, Extension, Family, Flow, Labels, Other, Synproxy, Timestamps,
};
pub use key::{Change, Key};
pub use protocol::Protocol;
pub use socket::Events;
pub use state::{Sctp, SctpState, State, Tcp, TcpFlags, TcpSide, TcpState};
pub use statistics::{CpuStatistics, Usage};
pub use status::Status;
pub use tuple::{Layer4, Tuple};
pub use vipline_netlink::Dump;
