//! nf_tables objects, expressions and atomic transactions over netlink.
//!
//! One call adds, replaces or deletes one object. This example adds a rule to the existing
//! chain `inet filter input`, and deletes the rule again:
//!
//! ```no_run
//! use vipline_nftables::expression::tcp_dport;
//! use vipline_nftables::statement::accept;
//! use vipline_nftables::{Client, Family, Name, Rule, RulePosition, TableId};
//!
//! let mut client = Client::open()?;
//! let (filter, input) = (TableId::new(Family::Inet, Name::new("filter")?), Name::new("input")?);
//! let ssh = Rule::new(filter.family, [tcp_dport().is(22), accept()])?;
//! let handle = client.add_rule(&filter, &input, RulePosition::Head, &ssh)?;
//! client.delete_rule(&filter, &input, handle)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Tables, chains with their rules, sets, maps, verdict maps and their elements
//! are values ([`Object`]). The difference of two states is a [`Transaction`],
//! which the kernel applies atomically, and only if no other program changed the
//! ruleset since the dump:
//!
//! ```no_run
//! use vipline_nftables::expr::CtState;
//! use vipline_nftables::expression::{ct_state, tcp_dport};
//! use vipline_nftables::statement::accept;
//! use vipline_nftables::{
//!     BaseChain, Chain, ChainType, Client, Family, Hook, Name, Policy, Rule, Table, TableId,
//!     Transaction, diff,
//! };
//!
//! let id = TableId::new(Family::Inet, Name::new("firewall")?);
//! let input = BaseChain::new(ChainType::Filter, Hook::Input, 0).with_policy(Policy::Drop);
//! let input = Chain::new(id.clone(), Name::new("input")?).with_base(input).with_rules([
//!     Rule::new(id.family, [ct_state().is(CtState::ESTABLISHED), accept()])?,
//!     Rule::new(id.family, [tcp_dport().is(22), accept()])?,
//! ]);
//! let desired = [Table::new(id.clone()).into(), input.into()];
//!
//! let mut client = Client::open()?;
//! let installed = client.dump(&[id])?;
//! let generation = installed.generation();
//! let edits = diff(installed, &desired);
//! client.commit_at(&Transaction::from_edits(&edits), generation)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rules are built from statements that read like nft syntax. Objects display as
//! scripts that `nft -f` loads. A [`Monitor`] reports the changes of other programs.
//!
//! # Limitations
//!
//! - No parser for nft scripts.
//! - Matches of adjacent header fields are not merged; nft merges them.
//! - Unknown kernel expressions are kept as raw attributes
//!   ([`expr::Expr::Other`]) and written back unchanged. Their text is
//!   `/* name hex */`, which `nft -f` does not load. The same holds for matches and
//!   targets of xtables ([`expr::Match`], [`expr::Target`]).
//! - Control groups are numbers in text ([`expr::SocketKey::Cgroupv2`]). `nft` reads only
//!   their paths.
//!
//! # Kernel interface
//!
//! Netlink messages of `linux/netfilter/nf_tables.h`; Linux 5.13 or later.
//! Requires `CAP_NET_ADMIN` in the user namespace of the network namespace.
//! The codecs are public and do no IO, for callers with a socket of their own:
//! [`Transaction::encode`] returns a batch, [`wire::Query`] encodes a request,
//! [`Assembler`] decodes the replies, and [`Notifications`] decodes change
//! notifications.
//!
//! # Modules
//!
//! - [`expression`]: expressions of the nft language, such as `tcp dport`
//! - [`statement`]: statements of the nft language, such as `accept`
//! - [`expr`]: expressions that the kernel executes (`struct nft_expr`)
//! - [`wire`]: requests and replies
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "only sockets use some functions")
)]

mod name;

mod family;

mod value;

pub mod expr;

mod language;

mod object;

mod transaction;

mod text;

pub mod wire;

#[cfg(target_os = "linux")]
mod client;

mod monitor;

mod error;

#[cfg(target_os = "linux")]
pub use client::Client;
pub use error::{Error, RejectedOperation};
pub use family::Family;
pub use ipnet;
pub use language::{
    Constant, Expression, Field, Ifname, IntoFields, InvalidValue, Operand, Parts, Statement,
    expression, statement,
};
pub use monitor::{
    Change, ChangeCounts, Commit, CommitCounter, Event, EventObject, Notifications, Process,
};
#[cfg(target_os = "linux")]
pub use monitor::{Monitor, Notification};
pub use name::{Comment, Name};
pub use object::{
    BaseChain, Chain, ChainFlags, ChainType, Compat, CtExpectation, CtHelper, CtTimeout, DataKind,
    Element, ElementData, Flowtable, FlowtableFlags, Generation, Hook, Key, KeyPrefix, Object,
    Objects, Policy, Rule, RuleHandle, RulePosition, Ruleset, Set, SetFlags, SetKey, SetPolicy,
    SetSpec, State, StatefulObject, Synproxy, Table, TableFlags, TableId,
};
pub use transaction::{Action, Operation, Subject, Transaction};
pub use value::{Bytes, Data, Datatype, Value, Verdict};
pub use vipline_inet::{self as inet, InvalidName};
pub use vipline_netlink as netlink;
pub use vipline_reconcile::{Edit, Keyed, diff};
pub use wire::added::{Added, Handle};
pub use wire::builder::{BatchBuilder, Operations};
pub use wire::dump::{DumpOptions, RecordedDump};
pub use wire::hooks::HookEntry;
pub use wire::rule::InstalledRule;
pub use wire::{Assembler, Batch, RecordedMessage};

#[cfg(all(test, target_os = "linux"))]
vipline_netlink::assert_descriptors!(Client, Monitor);

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
