//! The state of one evaluation.

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
    /// Another order of base chains than that of the index.
    pub(super) order: Option<&'a Order>,
    pub(super) environment: &'a dyn Environment,
    pub(super) choices: &'a mut Choices,
    pub(super) packet: Packet,
    pub(super) tracked: Tracked,
    pub(super) place: Place,
    pub(super) registers: Registers,
    pub(super) trace: Trace,
    pub(super) updates: Vec<SetUpdate>,
    /// Updates outside of nf_tables.
    pub(super) lists: Vec<ListUpdate>,
    /// Hashes of connections that were chosen so far.
    pub(super) hashes: Symmetric,
    /// IPVS connection of the packet.
    pub(super) ipvs: Option<IpvsConnection>,
    /// Whether the packet of a process must be routed again after hook `output`.
    pub(super) is_rerouted: bool,
    /// Number of rules that were visited, in all outcomes.
    pub(super) visited: &'a mut usize,
}

/// The hook at which a packet is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) hook: Hook,
    pub(super) input: Option<Interface>,
    pub(super) output: Option<Interface>,
    /// Table of the current rule.
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
    /// Not at all.
    End(Disposition),
}

impl Flow {
    /// Continues if the condition holds, and otherwise breaks the rule.
    pub fn next_if(condition: bool) -> Self {
        if condition { Self::Next } else { Self::Break }
    }
}

/// The expressions of a rule after the current one.
pub(super) type Rest<'r> = &'r [Expr];

impl<'a> Walk<'a> {
    /// Returns the base chains of the hook.
    pub(super) fn base_chains(&self) -> &'a [Arc<Installed>] {
        let hook = self.place.hook;
        match self.order.filter(|it| it.hook == hook) {
            Some(order) => &order.chains,
            None => self.index.base_chains(hook, self.packet.family()),
        }
    }

    /// Starts a rule.
    pub(super) fn enter_rule(&mut self, installed: &Arc<Installed>, index: usize) {
        self.registers = Registers::new();
        self.place.table = Some(installed.chain.table.clone());
        self.trace.events.push(Event::Rule(RuleStep {
            installed: Arc::clone(installed),
            extensions: self.index.extensions(),
            index,
            hook: self.place.hook,
            result: RuleResult::Pending,
            elements: Vec::new(),
            executed: 0,
        }));
    }

    /// Returns the current rule.
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

    /// Returns the table of the current rule.
    pub(super) fn table(&self) -> Result<&TableId, Cause> {
        self.place.table.as_ref().ok_or(Cause::Operand)
    }

    /// Returns the family as rules see it (`meta nfproto`).
    pub(super) fn protocol_family(&self) -> Family {
        match self.place.hook {
            Hook::Ingress | Hook::Egress => Family::Netdev,
            _ => self.packet.family(),
        }
    }

    /// Returns the assumption about a limit.
    pub(super) fn is_over(&self, limited: Limited<'_>, name: &str) -> Result<bool, Cause> {
        let unknown = || Cause::unknown(format_args!("whether the packet exceeds the {name}"));
        self.environment.is_over(limited).ok_or_else(unknown)
    }
}
