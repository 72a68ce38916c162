//! IPVS: virtual servers, real servers and statistics over generic netlink.
//!
//! IPVS is the transport-layer load balancer of the Linux kernel. A scheduler
//! selects a real server for each connection to a virtual server.
//! This crate dumps and changes the IPVS table without `ipvsadm`, and parses and
//! prints the text format of `ipvsadm`.
//!
//! ```no_run
//! use vipline_ipvs::{Client, Commands, RealServer, Scheduler, ServiceKey, Transport, VirtualServer};
//!
//! // A service with two destinations.
//! let web = ServiceKey::new(Transport::Tcp, "10.0.0.1".parse()?, 80);
//! let commands = Commands::new()
//!     .add_service(VirtualServer::new(web, Scheduler::RoundRobin))
//!     .add_destination(web, RealServer::new("10.1.0.5".parse()?, 8080))
//!     .add_destination(web, RealServer::new("10.1.0.6".parse()?, 8080));
//!
//! let mut client = Client::open()?;
//! client.commit(&commands)?;
//! for real in client.destinations(&web)? {
//!     println!("{}", real.server);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`VirtualServer`] and [`RealServer`]: the entries of the table. [`Scheduler`]
//!   has all schedulers of the kernel and preserves unknown names.
//! - [`Object`]: an entry as a keyed object. [`Table`]: all entries.
//! - [`Commands`]: ordered commands, built one by one, from edits, or from text that
//!   `ipvsadm -S` or this crate wrote.
//! - [`CommandLine`]: a command line that a person wrote for `ipvsadm`, in any spelling,
//!   including `-C`, `-Z`, `-L`, `-S`, `--set` and the commands of sync daemons.
//! - [`Client`]: dumps the table and commits commands, many per system call; also
//!   timeouts, statistics and sync daemons.
//! - [`Connection`]: an entry of the connection table.
//! - [`wire`]: message encoder and decoder, for callers with their own socket.
//! - [`Error`]: errors. A rejection names its command.
//!
//! The crate removes only what a command names, except in [`Client::flush`].
//! It does not load kernel modules and does not resolve names of hosts.
//!
//! The difference of two tables as commands:
//!
//! ```
//! use vipline_ipvs::{Commands, Object, Table, diff};
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
//! Requires Linux 5.13 or later with the module `ip_vs`, and `CAP_NET_ADMIN`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only sockets use some functions")
)]

mod uapi;

mod flags;

mod scheduler;

mod service;

mod stats;

mod server;

mod destination;

mod sync_daemon;

mod connection;

mod object;

mod commands;

mod command_line;

mod port_names;

mod arguments;

mod endpoint;

mod check;

mod options;

mod text;

pub mod wire;

#[cfg(target_os = "linux")]
mod client;

mod error;

#[cfg(target_os = "linux")]
pub use client::Client;
pub use command_line::{CommandLine, Listed, Listing};
pub use commands::{Command, Commands};
pub use connection::Connection;
pub use destination::{Checksum, Connections, Destination, Forwarding, RealServer, Tunnel};
pub use error::{Error, RejectedCommand};
pub use flags::Flags;
pub use object::{Key, Object, Table};
pub use server::{Netmask, Persistence, PersistenceEngine, VirtualServer};
pub use service::ServiceKey;
pub use stats::Stats;
pub use sync_daemon::{Role, SyncDaemon};
pub use text::ParseError;
pub use vipline_inet::{Family, InvalidName, IpvsName, Scheduler, Transport};
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};
pub use wire::{Info, Timeouts};

#[cfg(all(test, target_os = "linux"))]
vipline_netlink::assert_descriptors!(Client);

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
