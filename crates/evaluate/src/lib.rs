//! Packets through rules of nftables and iptables and through virtual servers of IPVS, without a
//! kernel.
//!
//! An [`Evaluator`] sends a [`Packet`] through the base chains of a [`Ruleset`], which is a
//! dump of a kernel or a plan. It returns every possible [`Outcome`] with its exact
//! probability, the rules and elements that decided, the packet after translation, and the
//! state that the kernel would learn. So a test of a firewall needs neither privileges nor
//! traffic:
//!
//! ```
//! use vipline_evaluate::{Disposition, Evaluator, Host, Packet};
//! use vipline_nftables::expression::tcp_dport;
//! use vipline_nftables::statement::accept;
//! use vipline_nftables::{
//!     BaseChain, Chain, ChainType, Family, Hook, Name, Policy, Rule, Ruleset, Table, TableId,
//! };
//!
//! let id = TableId::new(Family::Inet, Name::new("firewall")?);
//! let input = BaseChain::new(ChainType::Filter, Hook::Input, 0).with_policy(Policy::Drop);
//! let input = Chain::new(id.clone(), Name::new("input")?).with_base(input);
//! let ssh = Rule::new(id.family, [tcp_dport().is(22), accept()])?;
//! let ruleset: Ruleset = [Table::new(id).into(), input.with_rules([ssh]).into()]
//!     .into_iter()
//!     .collect();
//!
//! let host = Host::new().with_addr("eth0", "192.0.2.1/24".parse()?);
//! let evaluator = Evaluator::new(&ruleset);
//! let packet = |port: u16| {
//!     let packet = Packet::tcp(([192, 0, 2, 7], 40_000).into(), ([192, 0, 2, 1], port).into());
//!     packet.with_input("eth0")
//! };
//! let outcomes = evaluator.evaluate(&packet(22), &host)?;
//! assert_eq!(outcomes[0].disposition, Disposition::Delivered);
//! let rule = outcomes[0].trace.matches().last().map(ToString::to_string);
//! assert_eq!(rule.as_deref(), Some("input inet firewall input rule 1: tcp dport 22 accept"));
//! let outcomes = evaluator.evaluate(&packet(23), &host)?;
//! assert_eq!(outcomes[0].disposition, Disposition::Dropped);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Unknown properties
//!
//! An unknown property results in an [`Error`] that names the rule and the expression,
//! never a rule that does not match. A [`Packet`] has unknown bytes unless it is created
//! from bytes. An [`Environment`] answers what the ruleset does not contain: routes, types
//! of addresses, and whether limits are exceeded. [`Host`] answers from tables.
//!
//! # Random numbers
//!
//! Results of `numgen`, `meta random` and `symhash`, and of `jhash` without a seed, are
//! uniform distributions. In the kernel their deviation from uniformity is below one part
//! in four million for moduli up to 1,000. With a seed, the result of `jhash` is exact.
//!
//! # Differences from the kernel
//!
//! - Only IPv4 and IPv6 packets are evaluated; chains of families `arp` and `bridge` are
//!   ignored.
//! - The kernel runs base chains with equal priorities in the reverse order of their
//!   registration, which a ruleset does not have for chains of several tables.
//!   [`Evaluator::with_hooks`] sets it. Without it, an evaluation fails if its outcomes depend on
//!   the order. Of more than three tables, not all orders are compared.
//! - A base chain with the priority of connection tracking or of address translation
//!   precedes it.
//! - A packet that the host sends to itself passes no chain at hook `egress` of `lo`.
//! - No other connection uses the addresses and ports of a translation.
//! - Translated addresses from a range are equally probable.
//! - Sockets, routes (`rt`), IPsec and optional headers are not supported.
//!
//! # Rules of iptables, and IPVS
//!
//! Rules of iptables-nft contain matches and targets of xtables. An [`Extensions`]
//! evaluates them: a packet passes tables of nf_tables and of iptables in one evaluation.
//! The module `iptables` implements it, and also takes saves and planned rules.
//!
//! IPVS and other kernel modules have functions at the hooks, between the chains. A
//! [`HookFunction`] is one; the module `ipvs` has that of IPVS.
//!
//! # Features
//!
//! - `iptables` (default): the module `iptables`, with vipline-iptables.
//! - `ipvs` (default): the module `ipvs`, with vipline-ipvs.
//!
//! [`Ruleset`]: vipline_nftables::Ruleset
#![forbid(unsafe_code)]

mod probability;

mod choices;

mod cause;

mod packet;

mod interface;

mod environment;

mod host;

mod loss;

mod registers;

mod index;

mod trace;

mod outcome;

mod order;

mod error;

mod symmetric;

mod walk;

mod question;

mod context;

mod extension;

mod function;

mod sets;

mod nat;

mod expr;

mod chains;

mod hooks;

mod evaluator;

#[cfg(feature = "iptables")]
pub mod iptables;

#[cfg(feature = "ipvs")]
pub mod ipvs;

pub use cause::{Cause, MAX_JUMPS, MAX_OUTCOMES, MAX_RULES};
pub use context::Context;
pub use environment::{Discard, Environment, Limited, Route, RouteQuery};
pub use error::Error;
pub use evaluator::Evaluator;
pub use extension::Extensions;
pub use function::{HookFunction, HookVerdict, IpvsConnection};
pub use host::Host;
pub use interface::Interface;
pub use loss::{Loss, ReversePath};
pub use nat::NatRange;
pub use outcome::{Disposition, Outcome, SetUpdate};
pub use packet::Packet;
pub use packet::connection::{Connection, Tracking, Tuple};
pub use probability::Probability;
pub use question::{ListUpdate, Question, RecentLookup, SetEntry, SetField, SetLookup};
pub use trace::{Event, RuleResult, RuleStep, Trace};
pub use walk::Flow;

#[cfg(test)]
mod tests;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
