//! Dummy links and addresses over rtnetlink.
//!
//! ```no_run
//! use vipline_rtnl::{Address, Client, Commands, Link, Name, Object, diff};
//!
//! let name = Name::new("services0")?;
//! let desired: [Object; 2] = [
//!     Link::dummy(name).into(),
//!     Address::new(name, "10.96.0.1/32".parse()?).into(),
//! ];
//! let mut client = Client::open()?;
//! let installed = client.dump_link(&name)?.into_objects();
//! client.commit(&Commands::from_edits(&diff(installed, &desired)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A dummy link drops all packets that are sent through it, but the host accepts packets
//! to its addresses.
//! This crate creates and deletes dummy links, and dumps and changes the addresses of
//! any link, without running `ip`.
//!
//! - [`Link`] and [`Address`]: plain values, identified by the [`Name`] of the interface.
//! - [`Object`]: a link or an address as a keyed object; [`Snapshot`]: all objects.
//! - [`Commands`]: edits in an order that the kernel accepts; displays as input of
//!   `ip -batch`.
//! - [`Client`]: dumps all objects, one link with its addresses, or all addresses, and
//!   commits commands, many per system call.
//! - [`wire`]: encoding and decoding of messages, for programs with their own sockets.
//! - [`Error`]: errors, including all rejected commands.
//!
//! The crate does not support routes, neighbors or properties of links.
//!
//! Planning needs no client and no privileges:
//!
//! ```
//! use vipline_rtnl::{Address, Commands, Link, Name, Object, Snapshot, diff};
//!
//! let name = Name::new("services0")?;
//! let mut installed = Snapshot::default();
//! installed.insert_link(Link::dummy(name));
//! installed.insert(Address::new(name, "10.96.0.1/32".parse()?));
//!
//! let wanted: [Object; 2] = [
//!     Link::dummy(name).into(),
//!     Address::new(name, "10.96.0.10/32".parse()?).into(),
//! ];
//! let commands = Commands::from_edits(&diff(installed.into_objects(), &wanted));
//! assert_eq!(
//!     commands.to_string(),
//!     "address delete 10.96.0.1/32 dev services0\n\
//!      address add 10.96.0.10/32 dev services0\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Requires Linux 5.13 or later.
//! Changes require `CAP_NET_ADMIN` in the user namespace of the network namespace; dumps
//! require no capability.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only sockets use some functions")
)]

mod uapi;

mod name;

mod link;

mod address;

mod object;

mod commands;

pub mod wire;

#[cfg(target_os = "linux")]
mod client;

mod error;

pub use address::{Address, AddressFlags, Scope};
#[cfg(target_os = "linux")]
pub use client::Client;
pub use commands::{Command, Commands};
pub use error::{Error, RejectedCommand};
pub use ipnet;
pub use link::{Kind, Link, LinkFlags};
pub use name::Name;
pub use object::{Key, Object, Snapshot};
pub use vipline_inet::{Family, InvalidName};
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};

#[cfg(all(test, target_os = "linux"))]
vipline_netlink::assert_descriptors!(Client);

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
