//! IPVS: virtual servers, real servers and statistics over generic netlink.
//!
//! IPVS is the load balancer of the Linux kernel: packets to a virtual server
//! go to one of its real servers, which a scheduler chooses.
//! This crate reads and changes its table without `ipvsadm`, and has the same
//! text for it.
//!
//! - [`VirtualServer`] and [`RealServer`]: what the table consists of, as
//!   values; a [`Scheduler`] has the names of all that the kernel has, and keeps
//!   others.
//! - [`Object`]: either of them as a keyed object; [`Table`]: all of them.
//! - [`Commands`]: edits in the order in which the kernel takes them.
//! - [`Client`]: dumps the table, commits commands, many in one send; timeouts,
//!   statistics, sync daemons.
//! - [`wire`]: the messages, for those who bring a socket of their own.
//! - [`Error`]: what goes wrong; a refusal names its command.
//!
//! It removes nothing that it was not told to remove, loads no module itself,
//! and neither looks up names nor follows connections.
//!
//! ```
//! use vipline_ipvs::{Commands, Object, Table};
//! use vipline_reconcile::diff;
//!
//! let installed: Table = "-A -t 10.0.0.1:80 -s rr\n".parse()?;
//! let wanted: Table = "\
//! -A -t 10.0.0.1:80 -s wrr
//! -a -t 10.0.0.1:80 -r 10.1.0.5:8080 -m -w 3
//! "
//! .parse()?;
//! let wanted: Vec<Object> = wanted.objects().collect();
//! let commands = Commands::from_edits(&diff(installed.objects(), &wanted));
//! assert_eq!(
//!     commands.to_string(),
//!     "-E -t 10.0.0.1:80 -s wrr\n-a -t 10.0.0.1:80 -r 10.1.0.5:8080 -m -w 3\n"
//! );
//! # Ok::<(), vipline_ipvs::ParseError>(())
//! ```
//!
//! Needs `ip_vs` in the kernel and `CAP_NET_ADMIN`; tunnels of GUE and GRE need
//! Linux 5.3, statistics of 64 bits 4.1.
#![forbid(unsafe_code)]

mod name;

mod flags;

mod scheduler;

mod service;

mod stats;

mod server;

mod destination;

mod sync_daemon;

mod object;

mod commands;

mod text;

pub mod wire;

mod client;

mod error;

pub use client::Client;
pub use commands::{Command, Commands};
pub use destination::{Checksum, Connections, Destination, Forwarding, RealServer, Tunnel};
pub use error::{Error, RejectedCommand};
pub use flags::Flags;
pub use name::Name;
pub use object::{Key, Object, Table};
pub use scheduler::Scheduler;
pub use server::{Netmask, Persistence, PersistenceEngine, VirtualServer};
pub use service::{Family, Protocol, ServiceKey};
pub use stats::Stats;
pub use sync_daemon::{Role, SyncDaemon};
pub use text::ParseError;
pub use wire::{Info, Timeouts};
