//! nf_tables objects, expressions and atomic transactions over netlink.
//!
//! Tables, chains with their rules, sets, maps, verdict maps and their elements
//! are values ([`Object`]); what changes between two states is a
//! [`Transaction`], which the kernel does as a whole or not at all.
//! Rules are built of statements that read as in nft, and everything prints as
//! a script that `nft -f` loads.
//!
//! ```no_run
//! use vipline_nftables::expr::CtState;
//! use vipline_nftables::expression::{ct_state, tcp_dport};
//! use vipline_nftables::statement::accept;
//! use vipline_nftables::{
//!     BaseChain, Chain, ChainType, Client, Family, Hook, Name, Policy, Rule, Table, TableId,
//!     Transaction,
//! };
//! use vipline_reconcile::{Edit, diff};
//!
//! let id = TableId::new(Family::Inet, Name::new("firewall")?);
//! let input = BaseChain::new(ChainType::Filter, Hook::Input, 0).with_policy(Policy::Drop);
//! let input = Chain::new(id.clone(), Name::new("input")?).with_base(input).with_rules([
//!     Rule::new(id.family, [ct_state().is(CtState::ESTABLISHED), accept()]),
//!     Rule::new(id.family, [tcp_dport().is(22_u16), accept()]),
//! ]);
//! let wanted = [Table::new(id.clone()).into(), input.into()];
//!
//! let mut client = Client::open()?;
//! let edits = diff(client.dump(&[id])?, &wanted);
//! client.commit(&Transaction::from_edits(&edits))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it does not do
//!
//! It parses no nft scripts.
//! Flowtables and named counters, quotas and the like can be used by rules,
//! but are not objects here.
//! Two matches of adjacent header fields stay two, where nft joins them.
//! Expressions it does not know are kept as bytes ([`expr::Expr::Other`]) and
//! written back as they came.
//!
//! # The kernel's side
//!
//! Netlink messages of `linux/netfilter/nf_tables.h`, for Linux 6.1 and later.
//! `CAP_NET_ADMIN` is needed in the user namespace of the network namespace.
//! The codecs do no IO and are public: [`Transaction::encode`] gives a batch,
//! [`wire::Query`] a question, [`Assembler`] takes the answers and [`Notifications`]
//! what the kernel tells of changes, for those who have a socket of their own.
//!
//! # Features
//!
//! - `nftnl`: libnftnl can make the messages of transactions, and libmnl send
//!   them ([`Client::open_with`]). libnftnl is GPL-2.0-or-later, and makes a
//!   program that is linked with it GPL.
//!
//! # Modules
//!
//! Names, families and values come first; then [`expression`] and [`statement`],
//! what rules are built of; [`expr`], what the kernel runs; rules, chains and
//! objects; their text; [`wire`], their bytes; transactions and rulesets; the
//! [`Client`]; and the [`Monitor`] of what others change.
#![cfg_attr(not(feature = "nftnl"), forbid(unsafe_code))]

mod name;

mod family;

mod bytes;

mod datatype;

mod value;

mod verdict;

mod set;

mod element;

mod header;

pub mod expression;

pub mod statement;

mod comparison;

mod lower;

pub mod expr;

mod rule;

mod chain;

mod object;

mod literal;

mod text;

mod display;

mod userdata;

pub mod wire;

mod transaction;

mod batch;

mod operation;

mod ruleset;

mod script;

mod client;

#[cfg(feature = "nftnl")]
pub mod nftnl;

mod monitor;

mod error;

pub use batch::Batch;
pub use bytes::Bytes;
pub use chain::{BaseChain, Chain, ChainType, Hook, Policy};
pub use client::{Client, Encoder, Generation};
pub use datatype::Datatype;
pub use element::{Element, ElementData, InvalidElement, KeyPrefix};
pub use error::{Committed, Error, RejectedOperation};
pub use expression::Expression;
pub use family::Family;
pub use monitor::{Change, ChangeCounts, Commit, Monitor, Notification, Notifications, Process};
pub use name::{Comment, InvalidName, Name};
pub use object::{Key, Object, SetKey, Table, TableFlags, TableId};
pub use operation::{Action, Operation, Subject};
pub use rule::Rule;
pub use ruleset::{Assembler, Objects, Ruleset};
pub use set::{DataKind, Field, Set, SetFlags, SetSpec};
pub use statement::Statement;
pub use transaction::Transaction;
pub use value::Value;
pub use verdict::{Data, Verdict};
