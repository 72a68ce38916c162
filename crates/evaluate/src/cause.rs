//! Reasons why a packet cannot be evaluated.

use std::fmt;

use thiserror::Error;
use vipline_nftables::{Name, TableId};

/// Maximum number of outcomes of an evaluation.
pub const MAX_OUTCOMES: usize = 1 << 14;

/// Maximum number of rules that an evaluation visits, in all outcomes together.
pub const MAX_RULES: usize = 1 << 20;

/// Maximum number of nested jumps (`NFT_JUMP_STACK_SIZE`).
pub const MAX_JUMPS: usize = 16;

/// Reason why a packet cannot be evaluated.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The evaluator does not support the expression.
    #[error("cannot evaluate {0}")]
    Unsupported(String),
    /// The packet or the environment does not contain a required property.
    #[error("unknown: {0}")]
    Unknown(String),
    /// The elements of a dynamic set are unknown: the dump contains none. The option
    /// [`DumpOptions::dynamic_elements`](vipline_nftables::DumpOptions::dynamic_elements) includes them.
    #[error("unknown: elements of dynamic set {0}")]
    DynamicSet(Name),
    /// A rule reads a register that no expression of the rule wrote.
    #[error("reads a register without a value")]
    Register,
    /// An operand is invalid; the kernel rejects the rule.
    #[error("invalid operand")]
    Operand,
    /// The table has no set or map of this name.
    #[error("table {0} has no set {1}")]
    MissingSet(TableId, Name),
    /// The table has no chain of this name.
    #[error("table {0} has no chain {1}")]
    MissingChain(TableId, Name),
    /// The table has no stateful object of this name.
    #[error("table {0} has no object {1}")]
    MissingObject(TableId, Name),
    /// More than 16 jumps without a return.
    #[error("more than 16 nested jumps")]
    Jumps,
    /// More rules than [`MAX_RULES`].
    #[error("more than {} rules to evaluate", MAX_RULES)]
    Rules,
    /// More outcomes than [`MAX_OUTCOMES`].
    #[error("more than {} outcomes", MAX_OUTCOMES)]
    Outcomes,
    /// The fraction of a probability is [too long](crate::Probability).
    #[error("a probability is too long a fraction")]
    Probability,
}

impl Cause {
    /// Creates the cause of an unknown property.
    pub fn unknown(property: impl fmt::Display) -> Self {
        Self::Unknown(property.to_string())
    }

    /// Creates the cause of an expression that is not supported.
    pub fn unsupported(expression: impl fmt::Display) -> Self {
        Self::Unsupported(expression.to_string())
    }
}
