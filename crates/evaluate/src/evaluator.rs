//! The entry point of an evaluation.

use std::sync::Arc;

use vipline_nftables::expr::CtStatus;
use vipline_nftables::{Element, Hook, HookEntry, Ruleset, Set};

use super::cause::{Cause, MAX_OUTCOMES};
use super::choices::Choices;
use super::environment::Environment;
use super::error::Error;
use super::extension::Extensions;
use super::function::HookFunction;
use super::hooks;
use super::index::Index;
use super::order::{self, Order};
use super::outcome::{Disposition, Outcome};
use super::packet::Packet;
use super::packet::connection::Tracked;
use super::registers::Registers;
use super::symmetric::Symmetric;
use super::trace::Trace;
use super::walk::{Place, Walk};

/// Evaluates packets against a ruleset.
///
/// See the [module](super) for an example.
#[derive(Debug)]
pub struct Evaluator {
    index: Index,
}

impl Evaluator {
    /// Prepares a ruleset: a dump of the kernel, or planned objects that were collected.
    ///
    /// A dump has elements of dynamic sets only with the option
    /// [`DumpOptions::dynamic_elements`](vipline_nftables::DumpOptions::dynamic_elements). A lookup
    /// fails if the dump has no elements of the dynamic set, also if the kernel has none.
    /// [`with_elements`](Self::with_elements) sets the elements of such a set.
    pub fn new(ruleset: &Ruleset) -> Self {
        Self {
            index: Index::new(ruleset),
        }
    }

    /// Sets the elements of a set, such as those of
    /// [`Client::elements`](vipline_nftables::Client::elements).
    #[must_use]
    pub fn with_elements(mut self, set: &Set, elements: Vec<Element>) -> Self {
        self.index.set_elements(set, elements);
        self
    }

    /// Sets the order of base chains with equal priorities: that of
    /// [`Client::hooks`](vipline_nftables::Client::hooks).
    ///
    /// Chains that the entries do not have, such as those of type `nat`, keep an unknown order.
    #[must_use]
    pub fn with_hooks(mut self, entries: &[HookEntry]) -> Self {
        self.index.set_order(entries);
        self
    }

    /// Sets the evaluator of matches and targets of xtables.
    ///
    /// Without extensions, a rule with a match or target results in [`Cause::Unsupported`].
    #[must_use]
    pub fn with_extensions(mut self, extensions: Arc<dyn Extensions>) -> Self {
        self.index.set_extensions(extensions);
        self
    }

    /// Adds a function of another kernel module, such as that of IPVS.
    #[must_use]
    pub fn with_function(mut self, function: Arc<dyn HookFunction>) -> Self {
        self.index.add_function(function);
        self
    }

    /// Returns all possible outcomes for a packet. Their probabilities sum to 1.
    ///
    /// # Errors
    ///
    /// [`Error`] with the rule and the expression. The cause is [`Cause::Unknown`] or
    /// [`Cause::DynamicSet`] if a rule reads what the packet or the environment does not
    /// contain, or if the outcomes depend on the unknown order of base chains with equal
    /// priorities, [`Cause::Unsupported`] if the evaluator does not know the expression,
    /// [`Cause::Outcomes`], [`Cause::Rules`] or [`Cause::Probability`] if the result is too
    /// large, and others if the kernel would reject the ruleset.
    pub fn evaluate(
        &self,
        packet: &Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<Outcome>, Error> {
        let outcomes = self.evaluate_in(None, packet, environment)?;
        for order in self.index.other_orders(packet.family()) {
            let others = self.evaluate_in(Some(&order), packet, environment);
            if !others.is_ok_and(|others| order::is_equal(&outcomes, &others)) {
                return Err(order.unknown().into());
            }
        }
        Ok(outcomes)
    }

    /// Evaluates a packet in one order of the base chains.
    fn evaluate_in(
        &self,
        order: Option<&Order>,
        packet: &Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<Outcome>, Error> {
        let (mut choices, mut visited) = (Choices::default(), 0);
        let mut outcomes: Vec<Outcome> = Vec::new();
        loop {
            let mut walk = self.walk(packet, environment, &mut choices, &mut visited);
            walk.order = order;
            let outcome = finish(walk)?;
            match outcomes.last_mut().filter(|it| is_same(it, &outcome)) {
                Some(last) => {
                    let sum = last.probability.either(&outcome.probability);
                    last.probability = sum.ok_or(Cause::Probability)?;
                }
                None => outcomes.push(outcome),
            }
            if outcomes.len() > MAX_OUTCOMES {
                return Err(Cause::Outcomes.into());
            }
            if !choices.advance() {
                return Ok(outcomes);
            }
        }
    }

    fn walk<'a>(
        &'a self,
        packet: &Packet,
        environment: &'a dyn Environment,
        choices: &'a mut Choices,
        visited: &'a mut usize,
    ) -> Walk<'a> {
        Walk {
            index: &self.index,
            order: None,
            environment,
            choices,
            packet: packet.clone(),
            tracked: Tracked::Unseen,
            place: Place {
                hook: Hook::Prerouting,
                input: None,
                output: None,
                table: None,
            },
            registers: Registers::new(),
            trace: Trace::default(),
            updates: Vec::new(),
            lists: Vec::new(),
            hashes: Symmetric::default(),
            is_rerouted: false,
            ipvs: None,
            visited,
        }
    }
}

/// Evaluates the packet with the current choices.
fn finish(mut walk: Walk<'_>) -> Result<Outcome, Error> {
    let disposition = hooks::travel(&mut walk)?;
    let is_kept = matches!(
        disposition,
        Disposition::Delivered | Disposition::Sent(_) | Disposition::Queued(_)
    );
    let connection = walk.tracked.entry().map(|entry| entry.connection.clone());
    let is_visible = |status: CtStatus| is_kept || status.contains(CtStatus::CONFIRMED);
    let probability = walk.choices.probability().ok_or(Cause::Probability)?;
    Ok(Outcome {
        probability,
        disposition,
        packet: walk.packet,
        trace: walk.trace,
        updates: walk.updates,
        lists: walk.lists,
        connection: connection.filter(|it| is_visible(it.status)),
    })
}

/// Returns whether both outcomes differ at most in their probability.
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    one.disposition == other.disposition
        && one.trace == other.trace
        && one.packet == other.packet
        && one.updates == other.updates
        && one.lists == other.lists
        && one.connection == other.connection
}
