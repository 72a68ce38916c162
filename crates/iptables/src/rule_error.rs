//! The error of an invalid rule or command.

use thiserror::Error;

/// The error of an invalid rule or command.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{word:?} at byte {at}: {problem}")]
pub struct RuleError {
    word: Box<str>,
    at: usize,
    problem: Problem,
}

/// The problem with a word.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(crate) enum Problem {
    #[error("expected a chain name of 1 to 28 bytes")]
    InvalidChain,
    #[error("expected counters such as [0:0] or -c 0 0")]
    InvalidCounters,
    #[error("expected a rule number of 1 or more")]
    InvalidNumber,
    #[error("expected the policy ACCEPT or DROP")]
    InvalidPolicy,
    #[error("expected a command such as -A")]
    NoCommand,
    #[error("missing value")]
    NoValue,
    #[error("not allowed in a document")]
    NotAllowed,
    #[error("second command")]
    SecondCommand,
    #[error("expected an option")]
    UnexpectedWord,
    #[error("the command has no rule")]
    UnexpectedRule,
    #[error("unclosed quote")]
    UnclosedQuote,
}

impl RuleError {
    /// Creates an error for the word at a byte offset.
    pub(crate) fn new(text: &str, at: usize, problem: Problem) -> Self {
        let word = text[at..].split([' ', '\t', '\n']).next();
        Self {
            word: word.unwrap_or_default().into(),
            at,
            problem,
        }
    }

    /// Returns the word, up to its first blank.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Returns the byte offset of the word.
    pub fn at(&self) -> usize {
        self.at
    }
}
