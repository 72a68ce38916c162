//! Parser, typed rules and restore documents for `iptables-save` and
//! `iptables-restore`, legacy and nft variants.
//!
//! ```no_run
//! use vipline_iptables::matches::Match;
//! use vipline_iptables::targets::Target;
//! use vipline_iptables::{ChainName, Client, Family, Rule, SaveOptions, SingleCommands};
//! use vipline_iptables::{TableName, Tables, Transport};
//!
//! let (filter, input) = (TableName::FILTER, ChainName::INPUT);
//! let ssh = Rule::new()
//!     .with_protocol(Transport::Tcp)
//!     .with_match(Match::dport(Transport::Tcp, 22))
//!     .with_target(Target::Accept);
//!
//! let mut client = Client::open(Family::V4)?;
//! client.ensure(filter, input, &ssh)?;
//! let saved = client.save_with(SaveOptions::new().with_counters())?;
//! for rule in Tables::parse(&saved)?.iter().flat_map(|table| table.rules()) {
//!     println!("{}: {} {:?}", rule.chain(), rule.spec(), rule.counters());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Tables`]: a losslessly parsed document that borrows from its text and prints
//!   the same bytes. [`Line`]: a single line.
//! - [`Command`]: a typed command of a hand-written document. [`Ruleset`]: the rules
//!   that documents lead to, without a kernel.
//! - [`Rule`]: a typed rule with [`matches`](mod@matches) and a
//!   [target](mod@targets). Unknown parts are preserved as text.
//! - [`Object`]: chains, and rules of chains that several programs share, as keyed
//!   objects. [`Restore`] formats edits as a document for `iptables-restore
//!   --noflush`.
//! - [`Client`]: runs the programs. [`Error`] has the cause of a failure. [`nfacct`]
//!   manages the counters for `-m nfacct`.
//!
//! Only the clients do IO.
//!
//! # Features
//!
//! Without features, the crate parses, prints and compares, and does no IO.
//!
//! - `client` (default): [`Client`], which runs the programs.
//! - `nfacct` (default): counters of nfacct over netlink.
//! - `nft`: rules in the form in which the nft variant stores them in nf_tables
//!   (module `nft`), with vipline-nftables.
//!
//! The difference of two states as a restore document:
//!
//! ```
//! use vipline_iptables::matches::Match;
//! use vipline_iptables::targets::Target;
//! use vipline_iptables::{ChainName, Restore, Rule, TableName, Tables, Transport, diff};
//!
//! let saved = "*filter\n:INPUT ACCEPT [0:0]\n:MINE - [0:0]\n-A INPUT -j MINE\nCOMMIT\n";
//! let tables = Tables::parse(saved)?;
//! assert_eq!(tables.to_string(), saved);
//!
//! let ssh = Rule::new()
//!     .with_protocol(Transport::Tcp)
//!     .with_match(Match::dport(Transport::Tcp, 22))
//!     .with_target(Target::Accept);
//! let mine = vipline_iptables::Chain::new(TableName::FILTER, ChainName::new("MINE")?)
//!     .with_rules([ssh].into_iter().collect());
//! let installed = tables.objects()?;
//! let mut wanted = installed.clone();
//! wanted[1] = mine.into();
//! assert_eq!(
//!     Restore::from_edits(&diff(installed, &wanted)).to_string(),
//!     "*filter\n:MINE - [0:0]\n-A MINE -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only clients use some functions")
)]

mod name;

mod counters;

mod version;

mod options;

mod extensions;

#[cfg_attr(not(feature = "nft"), allow(dead_code, reason = "for the feature nft"))]
pub mod matches;

#[cfg_attr(not(feature = "nft"), allow(dead_code, reason = "for the feature nft"))]
pub mod targets;

mod parse_error;

mod rule;

mod object;

mod document;

mod ruleset;

mod single_commands;

#[cfg(feature = "client")]
mod client;

#[cfg(feature = "nfacct")]
pub mod nfacct;

#[cfg(feature = "nft")]
pub mod nft;

#[cfg(feature = "client")]
pub use client::{Client, DocumentLine, Error, Reason, SaveOptions};
pub use counters::Counters;
pub use document::{
    ChainLine, Command, CommandLine, Line, Policy, Restore, RuleLine, RuleSpec, Table, TableLine,
    Tables, jump_target,
};
pub use ipnet;
pub use matches::recent_list::{Jiffies, RecentEntry};
pub use name::{ChainName, TableName};
pub use object::{Chain, Contents, Key, Object, Position, Rules, SharedRule};
pub use options::{
    Direction, Masked, MaskedMatch, Negatable, Network, Ports, Range, SetDirections, Text,
};
pub use parse_error::{Expected, ParseError, RuleProblem};
pub use rule::Rule;
pub use ruleset::{
    ChainState, Problem as RestoreProblem, RestoreError, RestoreOptions, RuleState, Ruleset,
};
#[cfg(any(feature = "client", feature = "nft"))]
pub use single_commands::Committed;
pub use single_commands::{Refusal, SingleCommands};
pub use version::{Variant, Version, program_name};
pub use vipline_inet::{Family, InvalidName, Protocol, Transport};
#[cfg(any(feature = "nfacct", feature = "nft"))]
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};

// `Client` runs programs, and has no descriptor.
#[cfg(all(test, feature = "nfacct", target_os = "linux"))]
vipline_netlink::assert_descriptors!(nfacct::Client);
#[cfg(all(test, feature = "nft", target_os = "linux"))]
vipline_netlink::assert_descriptors!(nft::Client);

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
