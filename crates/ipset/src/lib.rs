//! ip_set over netlink: sets, entries, batched commands, and the text format of
//! `ipset save`.
//!
//! iptables and nftables rules match addresses and ports against sets.
//! This crate dumps and changes the sets of a network namespace without the `ipset`
//! program, with many entries in one message.
//!
//! - [`Set`], [`SetType`], [`SetFamily`]: sets and their properties.
//! - [`Entry`], [`Member`], [`Port`]: set entries and their elements.
//! - [`Object`]: sets and entries as keyed objects, for comparing two states.
//! - [`Sets`]: dumped sets.
//! - [`Commands`]: ordered commands, built from edits, or parsed from `ipset
//!   restore` input.
//! - [`Client`]: the netlink client; all other types do no IO.
//! - [`Request`], [`DumpDecoder`]: message encoder and decoder, for callers with
//!   their own socket.
//! - [`Error`], [`Reason`]: errors, with the rejected command and the reason.
//!
//! Sets of types other than those in [`SetType`] are dumped and preserved as bytes.
//! The crate does not resolve names of hosts and ports.
//! It does not interpret the marks of `skbinfo`, which are kept as bytes.
//!
//! ```no_run
//! use vipline_ipset::{Client, Command, Commands, Entry, SetFamily, SetType, Member, Name, Set};
//! use vipline_ipset::{Port, Strictness};
//!
//! let mut client = Client::open()?;
//! let name = Name::new("web")?;
//! let set = Set::new(name.clone(), SetType::HashIpPort, SetFamily::V4);
//! let entry = Entry::new(name.clone(), Member::IpPort("10.0.0.1".parse()?, Port::tcp(80)));
//! let mut commands = Commands::new();
//! commands.push(Command::Create(set.into(), Strictness::Strict));
//! commands.push(Command::Add(entry.into(), Strictness::Strict));
//! client.commit(&commands)?;
//! print!("{}", client.list(&name)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Requires Linux 5.13 or later and `CAP_NET_ADMIN`.
#![forbid(unsafe_code)]

mod set_type;

mod name;

mod set;

mod entry;

mod object;

mod commands;

mod wire;

mod text;

mod client;

mod reason;

mod error;

pub use client::Client;
pub use commands::{Command, Commands, Strictness};
pub use entry::{Counters, Entry, EntryFlags, Member, Port};
pub use error::{Error, RejectedCommand};
pub use ipnet;
pub use name::{Comment, InvalidName, Name};
pub use object::{Key, Object, SetDump, Sets};
pub use reason::Reason;
pub use set::{Range, Set, SetFlags, Usage};
pub use set_type::{SetFamily, SetType};
pub use text::ParseError;
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};
pub use wire::{DumpDecoder, Request};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
