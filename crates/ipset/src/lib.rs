//! ip_set over netlink: sets, entries, batched commands, and the text format of
//! `ipset save`.
//!
//! ```no_run
//! use vipline_ipset::{Client, Entry, Member, Name, Port, Set, SetFamily, SetType};
//!
//! let web = Name::new("web")?;
//! let entry = Entry::new(web.clone(), Member::IpPort("10.0.0.1".parse()?, Port::tcp(80)));
//!
//! let mut client = Client::open()?;
//! client.create(Set::new(web.clone(), SetType::HashIpPort, SetFamily::V4))?;
//! client.add(entry.clone())?;
//! assert!(client.test(&entry)?);
//! print!("{}", client.list(&web)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! iptables and nftables rules match addresses and ports against sets.
//! This crate dumps and changes the sets of a network namespace without the `ipset`
//! program, with many entries in one message.
//!
//! - [`Client`]: the netlink client; all other types do no IO. One method for each
//!   command, and [`Client::commit`] for many commands.
//! - [`Set`], [`SetType`], [`SetFamily`]: sets and their properties.
//! - [`Entry`], [`Member`], [`Port`], [`SkbInfo`]: set entries, their elements and
//!   extensions.
//! - [`Object`]: sets and entries as keyed objects, for comparing two states.
//! - [`Sets`]: dumped sets.
//! - [`Commands`]: ordered commands, built from edits, or parsed from `ipset
//!   restore` input.
//! - [`Request`], [`DumpDecoder`]: message encoder and decoder, for callers with
//!   their own socket.
//! - [`Error`], [`Reason`]: errors, with the rejected command and the reason.
//!
//! All 16 set types of Linux are supported. Sets of other types are dumped and preserved
//! as bytes.
//! The crate does not resolve names of hosts: [`Commands::parse_with_hosts`] calls a
//! function of the caller.
//!
//! Requires Linux 5.13 or later and `CAP_NET_ADMIN`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only sockets use some functions")
)]

mod uapi;

mod set_type;

mod name;

mod set;

mod member;

mod skbinfo;

mod entry;

mod object;

mod commands;

mod wire;

mod text;

#[cfg(target_os = "linux")]
mod client;

#[cfg(target_os = "linux")]
mod operations;

mod reason;

mod error;

#[cfg(target_os = "linux")]
pub use client::Client;
pub use commands::{Command, Commands, Strictness, UnresolvedCopy};
pub use entry::{Counters, Entry, EntryFlags, ListPosition};
pub use error::{CommandAt, Error, RejectedCommand};
pub use ipnet;
pub use member::{Interface, MacAddr, Member, Port};
pub use name::{Comment, Name};
pub use object::{Key, Object, SetDump, Sets};
pub use reason::Reason;
pub use set::{Range, Set, SetFlags, Usage};
pub use set_type::{SetFamily, SetType};
pub use skbinfo::SkbInfo;
pub use text::ParseError;
pub use vipline_inet::{InvalidName, Protocol};
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};
pub use wire::{DumpDecoder, Request};

#[cfg(all(test, target_os = "linux"))]
vipline_netlink::assert_descriptors!(Client);

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
