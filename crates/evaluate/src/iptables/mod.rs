//! Evaluation of packets against rules of iptables, without a kernel.
//!
//! The [`Evaluator`] is that of nf_tables: rules are evaluated in the form in which
//! iptables-nft stores them, and [`Xtables`] evaluates matches and targets of xtables.
//! [`Rules`] prepares saved tables, typed objects and dumps of a kernel. All hooks,
//! connection tracking and translations belong to one evaluation, together with tables of
//! nf_tables.
//!
//! ```
//! use vipline_evaluate::iptables::Rules;
//! use vipline_evaluate::{Disposition, Host, Packet};
//! use vipline_iptables::{Family, Tables};
//!
//! let saved = "*filter
//! :INPUT DROP [0:0]
//! -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
//! -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
//! COMMIT
//! ";
//! let rules = Rules::new().with_save(&Tables::parse(saved)?, Family::V4)?;
//! let evaluator = rules.evaluator();
//! let host = Host::new().with_addr("eth0", "192.0.2.1/24".parse()?);
//! let to = |port: u16| {
//!     let packet = Packet::tcp(([192, 0, 2, 7], 40_000).into(), ([192, 0, 2, 1], port).into());
//!     packet.with_input("eth0")
//! };
//!
//! let outcomes = evaluator.evaluate(&to(22), &host)?;
//! assert_eq!(outcomes[0].disposition, Disposition::Delivered);
//! let rule = outcomes[0].trace.matches().last().map(ToString::to_string);
//! let text = "input ip filter INPUT rule 2: -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT";
//! assert_eq!(rule.as_deref(), Some(text));
//! let outcomes = evaluator.evaluate(&to(23), &host)?;
//! assert_eq!(outcomes[0].disposition, Disposition::Dropped);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # State outside of the rules
//!
//! Contents of IP sets, lists of `recent`, limits, sockets and similar state are questions
//! to the [`Environment`]. [`Environment::answer`] and [`Environment::is_over`] return
//! `None` by default: the evaluation fails with an error that names the rule and the
//! question. An IP set is a lookup with addresses, ports, interfaces and protocol of the
//! packet:
//!
//! ```
//! use vipline_evaluate::iptables::Rules;
//! use vipline_evaluate::{
//!     Disposition, Environment, Host, Interface, Limited, Packet, Question, Route, RouteQuery,
//! };
//! use vipline_iptables::{Family, Tables};
//! use vipline_nftables::expr::AddrType;
//! use std::net::IpAddr;
//!
//! /// A host with one IP set.
//! struct WithSet(Host, Vec<IpAddr>);
//!
//! impl Environment for WithSet {
//!     fn answer(&self, question: &Question<'_>) -> Option<bool> {
//!         match question {
//!             Question::Set(lookup) if lookup.name == "blocked" => {
//!                 Some(self.1.contains(&lookup.entry.fields[0].addr))
//!             }
//!             _ => self.0.answer(question),
//!         }
//!     }
//!     fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
//!         self.0.route(query)
//!     }
//!     fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
//!         self.0.addr_type(addr, interface)
//!     }
//!     fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
//!         self.0.interface_addr(interface, destination)
//!     }
//!     fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
//!         self.0.is_over(limited)
//!     }
//! }
//!
//! let saved = "*filter\n-A INPUT -m set --match-set blocked src -j DROP\nCOMMIT\n";
//! let evaluator = Rules::new().with_save(&Tables::parse(saved)?, Family::V4)?.evaluator();
//! let packet = Packet::udp("192.0.2.7:1000".parse()?, "192.0.2.1:53".parse()?);
//! let packet = packet.with_input("eth0");
//! let host = Host::new().with_addr("eth0", "192.0.2.1/24".parse()?);
//! let error = evaluator.evaluate(&packet, &host).unwrap_err().to_string();
//! assert!(error.ends_with("unknown: whether IP set blocked contains the packet"));
//! let host = WithSet(host, vec!["192.0.2.7".parse()?]);
//! let outcomes = evaluator.evaluate(&packet, &host)?;
//! assert_eq!(outcomes[0].disposition, Disposition::Dropped);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Updates by match `recent` and target `SET` are in [`Outcome::lists`].
//!
//! # Probabilities
//!
//! Probabilities of `-m statistic --mode random` are exact multiples of 2⁻³¹. The kernel
//! counts packets of `--mode nth`. The count is unknown, so one of `--every` packets matches
//! with equal probability.
//!
//! # Differences from the kernel
//!
//! - Those of the [evaluator](crate#differences-from-the-kernel) apply.
//! - A bridged packet is not distinguished from others: match `physdev` is a question.
//! - Targets that no evaluation supports result in an error that names them: SYNPROXY,
//!   TPROXY, HMARK, DNPT, SNPT, zones of CT, and changes of TCP options of a packet whose
//!   options are known.
//!
//! [`Environment`]: crate::Environment
//! [`Environment::answer`]: crate::Environment::answer
//! [`Environment::is_over`]: crate::Environment::is_over
//! [`Evaluator`]: crate::Evaluator
//! [`Outcome::lists`]: crate::Outcome::lists

mod actions;

mod conditions;

mod rules;

mod xtables;

#[cfg(test)]
mod tests;

pub use rules::Rules;
pub use xtables::Xtables;
