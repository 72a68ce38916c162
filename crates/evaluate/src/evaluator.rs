//! The entry point of an evaluation: all outcomes of a packet, in all orders of base chains.
//!
//! The problem: rules choose at random, and a test of a firewall needs to know everything that can
//! happen, with exact probabilities. Samples could miss the one of 16,384 outcomes that is wrong.
//!
//! The idea: a rule that chooses asks [`Choices`], which answers from the current combination. One
//! [`Walk`] is deterministic then, and a loop repeats it until all combinations have been used.
//! For example, `numgen random mod 2 vmap { 0 : goto a, 1 : goto b }`, and in `b` another `numgen
//! random mod 3` that tells its numbers apart:
//!
//! ```text
//! walk 1: 0      1/2
//! walk 2: 1, 0   1/2 * 1/3
//! walk 3: 1, 1   1/2 * 1/3
//! walk 4: 1, 2   1/2 * 1/3
//! ```
//!
//! Each walk starts at the first hook again, although the walks 2 to 4 have their beginning in
//! common. So no expression needs to know that there are other outcomes, and nothing of a walk has
//! to be copied in the middle of a rule. The price is a limit on all rules of all walks, `MAX_RULES`.
//!
//! The second unknown is the order of base chains with equal priorities, which a ruleset does not
//! have. It is no distribution: one kernel has one order, and probabilities would claim more than
//! anybody knows. So the evaluation is repeated in other orders, and fails if that matters.
//!
//! What must stay true: a walk depends on nothing but the packet, the environment and the choices.
//! A map with a random order of iteration in an expression would give the choices of one walk to
//! other rules of the next one, and the probabilities would no longer sum to 1.

use std::sync::Arc;

use vipline_nftables::expr::CtStatus;
use vipline_nftables::{Element, Hook, HookEntry, Object, Ruleset, Set};

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

    /// Lets the dynamic sets be empty that have no elements in a ruleset: a plan without the
    /// elements that packets will add, or a dump with the option of [`new`](Self::new).
    #[must_use]
    pub fn with_empty_dynamic_sets(self, ruleset: &Ruleset) -> Self {
        let sets = ruleset.objects().filter_map(|object| match object {
            Object::Set(set) if set.is_dynamic() => Some(set),
            _ => None,
        });
        let is_empty = |set: &Set| {
            let found = ruleset.set(&set.table, set.name.as_str());
            found.is_none_or(|(_, elements)| elements.is_empty())
        };
        let sets: Vec<_> = sets.filter(is_empty).collect();
        let evaluators = sets.into_iter();
        evaluators.fold(self, |evaluator, set| {
            evaluator.with_elements(&set, Vec::new())
        })
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
        // Usually there are none: only chains of several tables with equal priorities at one hook,
        // whose order nobody said, have other orders.
        for order in self.index.other_orders(packet.family()) {
            let others = self.evaluate_in(Some(&order), packet, environment);
            // An order that fails counts as different: the kernel may have it, and then a rule
            // reads something that this evaluation does not know. Traces may differ, see
            // `order::is_equal`; the end of the packet may not.
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
        // Both outlive a walk: the choices are the state of the enumeration, and the limit on rules
        // is one of the whole evaluation.
        let (mut choices, mut visited) = (Choices::default(), 0);
        let mut outcomes: Vec<Outcome> = Vec::new();
        loop {
            let mut walk = self.walk(packet, environment, &mut choices, &mut visited);
            walk.order = order;
            // One walk that fails is the result of all: the probabilities of the others would not
            // sum to 1.
            let outcome = finish(walk)?;
            // Only the last one is compared. The last choice changes first, so outcomes that differ
            // in nothing but an irrelevant number follow each other, and a search among all
            // of them for each walk would be quadratic.
            match outcomes.last_mut().filter(|last| is_same(last, &outcome)) {
                Some(last) => {
                    // `None`: the fraction is too long to compute with (`probability.rs`). A
                    // rounded one would be wrong without a sign of it.
                    let sum = last.probability.either(&outcome.probability);
                    last.probability = sum.ok_or(Cause::Probability)?;
                }
                None => outcomes.push(outcome),
            }
            // Outcomes hold a packet and a trace each. `MAX_RULES` does not limit them: a walk may
            // have a choice and only one rule.
            if outcomes.len() > MAX_OUTCOMES {
                return Err(Cause::Outcomes.into());
            }
            if !choices.advance() {
                return Ok(outcomes);
            }
        }
    }

    /// Creates a walk that has not begun, with a copy of the packet.
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
            // `hooks::travel` sets the real place before the first rule.
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
    // The kernel frees the new entry of a packet that it drops, so no caller may see it. It stays if
    // the packet does (a queued one is not confirmed yet), and if it was confirmed before: that of an
    // older connection, or of a packet that was lost after hook `postrouting`.
    let is_kept = matches!(
        disposition,
        Disposition::Delivered | Disposition::Sent(_) | Disposition::Queued(_)
    );
    let connection = walk.tracked.entry().map(|entry| entry.connection.clone());
    let is_visible = |status: CtStatus| is_kept || status.contains(CtStatus::CONFIRMED);
    // After the walk, which makes the choices.
    let probability = walk.choices.probability().ok_or(Cause::Probability)?;
    Ok(Outcome {
        probability,
        disposition,
        packet: walk.packet,
        trace: walk.trace,
        updates: walk.updates,
        lists: walk.lists,
        connection: connection.filter(|connection| is_visible(connection.status)),
    })
}

/// Returns whether both outcomes differ at most in their probability.
///
/// In contrast to `order::is_equal` the traces count: outcomes that have the same end by different
/// rules stay apart, because callers read why.
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    one.disposition == other.disposition
        && one.trace == other.trace
        && one.packet == other.packet
        && one.updates == other.updates
        && one.lists == other.lists
        && one.connection == other.connection
}
