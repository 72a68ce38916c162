//! The state of one walk: everything that a rule can read or change.
//!
//! A walk is one packet on one path with one combination of random choices. It starts with a
//! copy of the packet and ends with one [`Outcome`](super::Outcome); the next combination is a
//! new walk from the first hook on (`evaluator.rs`).
//!
//! There are two kinds of fields. What one outcome must not pass on to the next one is owned:
//! the packet, its connection, registers, the trace, updates. What all walks of an evaluation
//! share is borrowed: the ruleset, the environment, the choices, and the count of visited
//! rules. For example, `numgen random mod 2 vmap { 0 : goto a, 1 : goto b }` is two walks with
//! two packets, but their rules count against one limit.
//!
//! Three other files change this state: `hooks.rs` moves the packet from hook to hook,
//! `chains.rs` from rule to rule, and `expr` from expression to expression. Each expression gets
//! the whole walk. An expression by itself would need a trait for registers, packet, connection,
//! trace and choices, and that trait would have to stand in vipline-nftables beside the
//! expressions, which shall not contain an evaluation.

use std::sync::Arc;

use vipline_nftables::expr::Expr;
use vipline_nftables::{Element, Family, Hook, TableId, Verdict};

use super::cause::Cause;
use super::choices::Choices;
use super::environment::{Environment, Limited};
use super::function::IpvsConnection;
use super::index::{Index, Installed};
use super::interface::Interface;
use super::order::Order;
use super::outcome::{Disposition, SetUpdate};
use super::packet::Packet;
use super::packet::connection::Tracked;
use super::question::ListUpdate;
use super::registers::Registers;
use super::symmetric::Symmetric;
use super::trace::{Event, RuleResult, RuleStep, Trace};

/// A packet on its path, with everything that an expression can read or change.
pub(super) struct Walk<'a> {
    pub(super) index: &'a Index,
    /// Another order of base chains than that of the index, at one hook. `None`: that of the
    /// index at all hooks. See `order.rs`.
    pub(super) order: Option<&'a Order>,
    pub(super) environment: &'a dyn Environment,
    pub(super) choices: &'a mut Choices,
    pub(super) packet: Packet,
    pub(super) tracked: Tracked,
    pub(super) place: Place,
    pub(super) registers: Registers,
    pub(super) trace: Trace,
    /// Elements that rules added or deleted. Later rules of this walk see them, as in the
    /// kernel, although the index stays as it is.
    pub(super) updates: Vec<SetUpdate>,
    /// The same for lists outside of nf_tables: IP sets, `recent`, templates of IPVS.
    pub(super) lists: Vec<ListUpdate>,
    /// Hashes of connections that were chosen so far. The kernel has one hash of a connection,
    /// so two rules with `symhash` must not choose independently.
    pub(super) hashes: Symmetric,
    /// IPVS connection of the packet.
    pub(super) ipvs: Option<IpvsConnection>,
    /// Whether the packet of a process must be routed again after hook `output`, because a rule
    /// changed what its route depends on.
    pub(super) is_rerouted: bool,
    /// Number of rules that were visited, in all outcomes: 10,000 outcomes of 100 rules are as
    /// much work as one outcome of a million.
    pub(super) visited: &'a mut usize,
}

/// The hook at which a packet is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) hook: Hook,
    /// Interface that received the packet. `None` for a packet of a process, and for all at hook
    /// `egress`.
    pub(super) input: Option<Interface>,
    /// Interface through which the packet leaves. `None` before its route is known, and for a
    /// delivered packet.
    pub(super) output: Option<Interface>,
    /// Table of the current rule, in which names of sets are looked up. `None` before the first
    /// rule.
    pub(super) table: Option<TableId>,
}

/// How evaluation continues after an expression, a match or a target.
///
/// Exhaustive: these are the results of an expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Flow {
    /// With the next expression of the rule. A match matches the packet.
    Next,
    /// With the next rule. A match does not match the packet.
    Break,
    /// As the verdict says.
    Verdict(Verdict),
    /// Not at all: `reject`, `queue` and `fwd` end the path of the packet. They are no verdicts
    /// here, because their ends say more: the ICMP type, the queue, the device.
    End(Disposition),
}

impl Flow {
    /// Continues if the condition holds, and otherwise breaks the rule.
    pub fn next_if(condition: bool) -> Self {
        if condition { Self::Next } else { Self::Break }
    }
}

/// The expressions of a rule after the current one.
///
/// `numgen` looks ahead: numbers that the rest of the rule treats alike are one choice, so that
/// `numgen random mod 1000 < 300` has 2 outcomes instead of 1,000.
pub(super) type Rest<'r> = &'r [Expr];

impl<'a> Walk<'a> {
    /// Returns the base chains of the current hook, in the order in which they run.
    ///
    /// They live as long as the index, not as long as the borrow of the walk: callers change
    /// the walk while they go through them.
    pub(super) fn base_chains(&self) -> &'a [Arc<Installed>] {
        let hook = self.place.hook;
        match self.order.filter(|order| order.hook == hook) {
            Some(order) => &order.chains,
            None => self.index.base_chains(hook, self.packet.family()),
        }
    }

    /// Starts a rule.
    pub(super) fn enter_rule(&mut self, installed: &Arc<Installed>, index: usize) {
        // A rule that reads what an earlier rule left in a register is an error (`Cause::Register`),
        // not a result that depends on the rules before.
        self.registers = Registers::new();
        self.place.table = Some(installed.chain.table.clone());
        self.trace.events.push(Event::Rule(RuleStep {
            installed: Arc::clone(installed),
            extensions: self.index.extensions(),
            index,
            hook: self.place.hook,
            // Stays in the trace of an error: the rule whose expression failed has no result.
            result: RuleResult::Pending,
            elements: Vec::new(),
            // `chains.rs` counts after each expression, also after one that fails.
            executed: 0,
        }));
    }

    /// Finds the current rule: the last event of the trace, if it is one.
    ///
    /// Otherwise the packet is between rules, for example after a policy or a translation. Then an
    /// error names no rule, and a matched element has none to be recorded at.
    pub(super) fn step(&mut self) -> Option<&mut RuleStep> {
        match self.trace.events.last_mut() {
            Some(Event::Rule(step)) => Some(step),
            _ => None,
        }
    }

    /// Records that an element matched.
    pub(super) fn record(&mut self, element: &Element) {
        if let Some(step) = self.step() {
            step.elements.push(element.clone());
        }
    }

    /// Returns the table of the current rule, because a rule names a set without its table.
    ///
    /// # Errors
    ///
    /// [`Cause::Operand`] outside of all rules, where no name of a set can be looked up.
    pub(super) fn table(&self) -> Result<&TableId, Cause> {
        self.place.table.as_ref().ok_or(Cause::Operand)
    }

    /// Returns the family as rules see it (`meta nfproto`).
    ///
    /// It is that of the hook, not of the packet: chains at a device see `netdev` also for an
    /// IPv4 packet, so `meta nfproto ipv4` never matches there.
    pub(super) fn protocol_family(&self) -> Family {
        match self.place.hook {
            Hook::Ingress | Hook::Egress => Family::Netdev,
            _ => self.packet.family(),
        }
    }

    /// Asks the environment whether the packet exceeds a limit. `name` is that of the expression,
    /// for the error.
    ///
    /// Limits depend on packets before this one, which an evaluation does not have. So the
    /// environment must say it, and what it does not know is an error instead of a guess.
    pub(super) fn is_over(&self, limited: Limited<'_>, name: &str) -> Result<bool, Cause> {
        let unknown = || Cause::unknown(format_args!("whether the packet exceeds the {name}"));
        self.environment.is_over(limited).ok_or_else(unknown)
    }
}
