//! Links and addresses over rtnetlink: a dummy link, and addresses on it.
//!
//! A host answers to addresses that stand on no wire when they are on a link of
//! type dummy, which throws away what is sent through it.
//! This crate makes such links, and reads and changes the addresses of any link,
//! without `ip`.
//!
//! - [`Link`] and [`Address`]: what there is, as values; a [`Name`] is checked.
//! - [`Object`]: either of them as a keyed object; [`Addresses`]: all of them.
//! - [`Commands`]: edits in the order in which the kernel takes them, with the
//!   text that `ip -batch` reads.
//! - [`Client`]: dumps all, or one link with its addresses, and commits
//!   commands, many in one send.
//! - [`wire`]: the messages, for those who bring a socket of their own.
//! - [`Error`]: what goes wrong; a refusal names its command.
//!
//! It does nothing else of rtnetlink: no routes, no neighbours, no properties of
//! links.
//!
//! ```
//! use vipline_reconcile::diff;
//! use vipline_rtnl::{Address, Addresses, Commands, Link, Name, Object};
//!
//! let name = Name::new("services0")?;
//! let mut installed = Addresses::default();
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
//! Changes need `CAP_NET_ADMIN`; reading needs nothing.
#![forbid(unsafe_code)]

mod name;

mod link;

mod address;

mod object;

mod commands;

pub mod wire;

mod client;

mod error;

pub use address::{Address, AddressFlags, Scope};
pub use client::Client;
pub use commands::{Command, Commands};
pub use error::{Error, Refused};
pub use link::{Kind, Link, LinkFlags};
pub use name::{InvalidName, Name};
pub use object::{Addresses, Key, Object};
