//! Errors of a restore.

use std::fmt;

use thiserror::Error;

use crate::{Counters, ParseError};

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
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// A chain to delete or rename is built in.
    BuiltInChain(Box<str>),
    /// A chain to create already exists.
    ChainExists(Box<str>),
    /// A rule jumps to the chain to delete.
    ChainInUse(Box<str>),
    /// A chain to delete has rules.
    ChainNotEmpty(Box<str>),
    /// Counters of a policy are missing.
    MissingCounters,
    /// A chain does not exist.
    MissingChain(Box<str>),
    /// No rule equals the rule to check or delete.
    MissingRule,
    /// The chain has fewer rules.
    NumberTooLarge {
        /// Name of the chain.
        chain: Box<str>,
        /// Number of its rules.
        count: usize,
    },
    /// A policy is for built-in chains.
    PolicyOfUserChain(Box<str>),
    /// The command or rule is invalid.
    Rule(ParseError),
    /// A replacement must be one rule.
    SeveralRules,
    /// iptables has no such table.
    UnknownTable(Box<str>),
}

impl From<ParseError> for Problem {
    fn from(error: ParseError) -> Self {
        Self::Rule(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltInChain(chain) => write!(f, "chain {chain} is built in"),
            Self::ChainExists(chain) => write!(f, "chain {chain} already exists"),
            Self::ChainInUse(chain) => write!(f, "a rule jumps to chain {chain}"),
            Self::ChainNotEmpty(chain) => write!(f, "chain {chain} is not empty"),
            Self::MissingCounters => {
                write!(f, "counters such as {} are missing", Counters::default())
            }
            Self::MissingChain(chain) => write!(f, "chain {chain} does not exist"),
            Self::MissingRule => f.write_str("the rule does not exist"),
            Self::NumberTooLarge { chain, count } => write!(f, "chain {chain} has {count} rules"),
            Self::PolicyOfUserChain(chain) => {
                write!(f, "chain {chain} is user-defined and has no policy")
            }
            Self::Rule(error) => error.fmt(f),
            Self::SeveralRules => f.write_str("a replacement has one source and one destination"),
            Self::UnknownTable(table) => write!(f, "table {table} does not exist"),
        }
    }
}
