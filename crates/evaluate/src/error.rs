//! The error of an evaluation, with its place.

use std::fmt;

use thiserror::Error;

use super::cause::Cause;
use super::trace::RuleStep;

/// Error: the ruleset, the packet or the environment does not determine the outcomes.
///
/// Names the rule and the kernel expression, if the evaluation was in one.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub struct Error {
    /// Reason.
    pub cause: Cause,
    /// Rule that was evaluated.
    pub rule: Option<Box<RuleStep>>,
    /// The kernel's name of the expression that was evaluated, such as `payload`.
    pub expression: Option<String>,
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            rule: None,
            expression: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write!(f, "{rule}: ")?;
        }
        if let Some(expression) = &self.expression {
            write!(f, "expression {expression}: ")?;
        }
        write!(f, "{}", self.cause)
    }
}
