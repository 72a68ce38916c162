//! ip_set over netlink: sets, entries, batches of commands, and their text.
//!
//! A set is what rules of iptables and nftables look addresses and ports up
//! in.
//! This crate reads and writes the sets of a network namespace, many entries
//! in one message, without the program `ipset`.
//!
//! - [`Set`], [`SetType`], [`Family`]: sets and their properties.
//! - [`Entry`], [`Member`], [`Port`]: what is in them.
//! - [`Object`]: both, with keys, for those who compare two states.
//! - [`Sets`]: what the kernel has.
//! - [`Commands`]: a change, made of edits, read from or printed as a document
//!   of `ipset restore`.
//! - [`Client`]: the connection; all else does no IO.
//! - [`Request`], [`DumpDecoder`]: messages and a decoder, for those who have a
//!   socket of their own.
//! - [`Error`], [`Reason`]: what goes wrong, with set and entry.
//!
//! Sets of other types than those of [`SetType`] are read and kept as they are.
//! It does not look up names of hosts and ports, does not wait for entries to
//! time out, and has no words for the marks of `skbinfo`: they are kept as
//! bytes.
//!
//! ```no_run
//! use vipline_ipset::{Client, Command, Commands, Entry, Family, SetType, Member, Name, Set};
//! use vipline_ipset::{Port, Strictness};
//!
//! let mut client = Client::open()?;
//! let name = Name::new("web")?;
//! let set = Set::new(name.clone(), SetType::HashIpPort, Family::V4);
//! let entry = Entry::new(name.clone(), Member::IpPort("10.0.0.1".parse()?, Port::tcp(80)));
//! let mut commands = Commands::new();
//! commands.push(Command::Create(set.into(), Strictness::Strict));
//! commands.push(Command::Add(entry.into(), Strictness::Strict));
//! client.commit(&commands)?;
//! print!("{}", client.list(&name)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Needs Linux 3.18 or later and `CAP_NET_ADMIN`.
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
pub use name::{Comment, InvalidName, Name};
pub use object::{Key, Object, SetDump, Sets};
pub use reason::Reason;
pub use set::{Range, Set, SetFlags, Usage};
pub use set_type::{Family, SetType};
pub use text::ParseError;
pub use wire::{DumpDecoder, Request};
