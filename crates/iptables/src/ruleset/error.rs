//! Errors of a restore.

use thiserror::Error;

use crate::{Counters, RuleError};

/// The error of a document or command that `iptables-restore` rejects.
///
/// Tables with a `COMMIT` before the line are changed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line} (`{text}`): {problem}")]
#[non_exhaustive]
pub struct RestoreError {
    /// Line number, from 1.
    pub line: usize,
    /// The line.
    pub text: Box<str>,
    /// The reason.
    pub problem: Problem,
}

/// The reason why a command is rejected.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// A chain to delete or rename is built in.
    #[error("chain {0} is built in")]
    BuiltInChain(Box<str>),
    /// A chain to create already exists.
    #[error("chain {0} already exists")]
    ChainExists(Box<str>),
    /// A rule jumps to the chain to delete.
    #[error("a rule jumps to chain {0}")]
    ChainInUse(Box<str>),
    /// A chain to delete has rules.
    #[error("chain {0} is not empty")]
    ChainNotEmpty(Box<str>),
    /// Counters of a policy are missing.
    #[error("counters such as {} are missing", Counters::default())]
    MissingCounters,
    /// A chain does not exist.
    #[error("chain {0} does not exist")]
    MissingChain(Box<str>),
    /// No rule equals the rule to check or delete.
    #[error("the rule does not exist")]
    MissingRule,
    /// The chain has fewer rules.
    #[error("chain {chain} has {count} rules")]
    NumberTooLarge {
        /// Name of the chain.
        chain: Box<str>,
        /// Number of its rules.
        count: usize,
    },
    /// A policy is for built-in chains.
    #[error("chain {0} is user-defined and has no policy")]
    PolicyOfUserChain(Box<str>),
    /// The command or rule is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A replacement must be one rule.
    #[error("a replacement has one source and one destination")]
    SeveralRules,
    /// iptables has no such table.
    #[error("table {0} does not exist")]
    UnknownTable(Box<str>),
}
