//! Matches and targets of xtables, which an extension evaluates.

use std::fmt;

use vipline_nftables::expr::{Match, Target};
use vipline_nftables::{Chain, Rule};

use super::cause::Cause;
use super::context::Context;
use super::walk::Flow;

/// Evaluates the matches and targets of xtables in rules of iptables-nft.
///
/// `iptables::Xtables` (feature `iptables`) is an implementation.
/// [`Evaluator::with_extensions`](super::Evaluator::with_extensions) registers it.
pub trait Extensions: fmt::Debug + Send + Sync {
    /// Evaluates a match: [`Flow::Next`] if the packet matches, otherwise [`Flow::Break`].
    ///
    /// A match drops a malformed packet with the verdict `drop`.
    ///
    /// # Errors
    ///
    /// [`Cause::Unsupported`] for a match that is not implemented, and [`Cause::Unknown`]
    /// if neither packet nor environment determines the result.
    fn evaluate_match(&self, one: &Match, context: &mut Context<'_, '_>) -> Result<Flow, Cause>;

    /// Evaluates a target.
    ///
    /// # Errors
    ///
    /// The same as [`evaluate_match`](Self::evaluate_match).
    fn evaluate_target(
        &self,
        target: &Target,
        context: &mut Context<'_, '_>,
    ) -> Result<Flow, Cause>;

    /// Returns a rule in the syntax of iptables, for traces and errors.
    ///
    /// `None`: traces contain the rule in nft syntax. Only rules with a match or target of
    /// xtables, and rules of tables with such rules, are passed.
    fn rule_text(&self, chain: &Chain, rule: &Rule) -> Option<String>;
}
