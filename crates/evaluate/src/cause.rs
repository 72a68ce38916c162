//! Reasons why a packet cannot be evaluated.

use std::fmt;

#[cfg(feature = "ipvs")]
use vipline_ipvs::ServiceKey;
use vipline_nftables::{Name, TableId};

/// Maximum number of outcomes of an evaluation.
pub const MAX_OUTCOMES: usize = 1 << 14;

/// Maximum number of rules that an evaluation visits, in all outcomes together.
pub const MAX_RULES: usize = 1 << 20;

/// Maximum number of nested jumps (`NFT_JUMP_STACK_SIZE`).
pub const MAX_JUMPS: usize = 16;

/// Reason of an [`Error`](crate::Error).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The evaluator does not support the expression.
    Unsupported(String),
    /// The packet or the environment does not contain a required property.
    Unknown(String),
    /// The elements of a dynamic set are unknown: the dump contains none. The option
    /// [`DumpOptions::dynamic_elements`](vipline_nftables::DumpOptions::dynamic_elements) includes them.
    DynamicSet(Name),
    /// A rule reads a register that no expression of the rule wrote.
    Register,
    /// An operand is invalid; the kernel rejects the rule.
    Operand,
    /// The table has no set or map of this name.
    MissingSet(TableId, Name),
    /// The table has no chain of this name.
    MissingChain(TableId, Name),
    /// The table has no stateful object of this name.
    MissingObject(TableId, Name),
    /// More than 16 jumps without a return.
    Jumps,
    /// More rules than [`MAX_RULES`].
    Rules,
    /// More outcomes than [`MAX_OUTCOMES`].
    Outcomes,
    /// The fraction of a probability is [too long](crate::Probability).
    Probability,
    /// The bytes are no IPv4 or IPv6 packet.
    NotAPacket(&'static str),
    /// The state of a real server of IPVS is unknown.
    #[cfg(feature = "ipvs")]
    RealServers {
        /// Service.
        service: ServiceKey,
        /// State that is required.
        state: &'static str,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(expression) => write!(f, "cannot evaluate {expression}"),
            Self::Unknown(property) => write!(f, "unknown: {property}"),
            Self::DynamicSet(set) => write!(f, "unknown: elements of dynamic set {set}"),
            Self::Register => f.write_str("reads a register without a value"),
            Self::Operand => f.write_str("invalid operand"),
            Self::MissingSet(table, name) => write!(f, "table {table} has no set {name}"),
            Self::MissingChain(table, name) => write!(f, "table {table} has no chain {name}"),
            Self::MissingObject(table, name) => write!(f, "table {table} has no object {name}"),
            Self::Jumps => f.write_str("more than 16 nested jumps"),
            Self::Rules => write!(f, "more than {MAX_RULES} rules to evaluate"),
            Self::Outcomes => write!(f, "more than {MAX_OUTCOMES} outcomes"),
            Self::Probability => f.write_str("a probability is too long a fraction"),
            Self::NotAPacket(reason) => write!(f, "not an IPv4 or IPv6 packet: {reason}"),
            #[cfg(feature = "ipvs")]
            Self::RealServers { service, state } => {
                write!(f, "service {service}: unknown: {state}")
            }
        }
    }
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
