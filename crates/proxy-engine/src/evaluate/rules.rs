//! Rules that are prepared for the evaluation of packets.

use std::fmt;

use vipline_evaluate::{self as evaluate, Environment, Packet};

use super::Outcome;

/// Rules of a mode in one family.
///
/// A mode implements this trait for its form of rules.
pub trait Evaluate: Send + Sync {
    /// Returns all possible outcomes for a packet. Their probabilities sum to 1.
    ///
    /// # Errors
    ///
    /// The error of [`Evaluator::evaluate`](evaluate::Evaluator::evaluate).
    fn evaluate(
        &self,
        packet: &Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<evaluate::Outcome>, evaluate::Error>;
}

impl Evaluate for evaluate::Evaluator {
    fn evaluate(
        &self,
        packet: &Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<evaluate::Outcome>, evaluate::Error> {
        Self::evaluate(self, packet, environment)
    }
}

/// The rules of one family, prepared for the evaluation of packets.
pub struct Rules {
    rules: Box<dyn Evaluate>,
    has_proxy: bool,
    unread: Vec<String>,
}

impl Rules {
    /// Wraps the rules of a mode. `has_proxy` is whether they include those of a proxy in
    /// this mode.
    pub fn new(rules: impl Evaluate + 'static, has_proxy: bool) -> Self {
        Self {
            rules: Box::new(rules),
            has_proxy,
            unread: Vec::new(),
        }
    }

    /// Sets what could not be read.
    #[must_use]
    pub fn with_unread(mut self, unread: Vec<String>) -> Self {
        self.unread = unread;
        self
    }

    /// Returns whether the rules include those of a kube-proxy in the same mode.
    pub fn has_proxy(&self) -> bool {
        self.has_proxy
    }

    /// Returns the rules that may decide as well and could not be read, each with the reason:
    /// `rules of iptables-legacy are not evaluated: its programs are not installed`. Outcomes
    /// hold if none of them matches.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Returns all possible outcomes for a packet. Their probabilities sum to 1.
    ///
    /// Outcomes of endpoints without a difference between them are separate: each has its
    /// own rules or elements.
    ///
    /// # Errors
    ///
    /// A rule reads something that neither the packet nor the environment contains, or the
    /// evaluator does not support it. The error names the rule.
    pub fn evaluate(
        &self,
        packet: &Packet,
        environment: &dyn Environment,
    ) -> Result<Vec<Outcome>, evaluate::Error> {
        let outcomes = self.rules.evaluate(packet, environment)?.into_iter();
        Ok(outcomes
            .map(|outcome| Outcome::new(packet, outcome))
            .collect())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rules")
    }
}
