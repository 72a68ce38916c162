//! The error of an invalid rule or command.

use thiserror::Error;

/// The error of an invalid rule or command.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{word:?} at byte {at}: {problem}")]
pub struct RuleError {
    word: Box<str>,
    at: usize,
    problem: RuleProblem,
}

/// The problem with a word of a rule.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RuleProblem {
    /// A chain name is too long or has invalid characters.
    #[error("expected a chain name of 1 to 28 bytes")]
    InvalidChain,
    /// Counters are not in one of their forms.
    #[error("expected counters such as [0:0] or -c 0 0")]
    InvalidCounters,
    /// A rule number is not a number from 1.
    #[error("expected a rule number of 1 or more")]
    InvalidNumber,
    /// A policy is neither `ACCEPT` nor `DROP`.
    #[error("expected the policy ACCEPT or DROP")]
    InvalidPolicy,
    /// A line does not begin with a command.
    #[error("expected a command such as -A")]
    NoCommand,
    /// An option lacks its value.
    #[error("missing value")]
    NoValue,
    /// An option is not allowed in a document.
    #[error("not allowed in a document")]
    NotAllowed,
    /// A line has a second command.
    #[error("second command")]
    SecondCommand,
    /// A word is neither an option nor a value.
    #[error("expected an option")]
    UnexpectedWord,
    /// A command without a rule has options of a rule.
    #[error("the command has no rule")]
    UnexpectedRule,
    /// A quote has no end.
    #[error("unclosed quote")]
    UnclosedQuote,
    /// A match, target or option requires one of these protocols in the rule, without
    /// negation.
    #[error("requires -p {0}")]
    RequiresProtocol(&'static str),
    /// A match, target or option requires this option.
    #[error("requires {0}")]
    RequiresOption(&'static str),
    /// A name has more bytes than the kernel stores.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// A list of addresses is negated.
    #[error("not allowed with several addresses")]
    NegatedList,
    /// A number is not in the allowed range.
    #[error("out of range")]
    OutOfRange,
    /// A target is only available in one of these tables.
    #[error("only available in table {0}")]
    RequiresTable(&'static str),
    /// An option, match or target is not available in the built-in chain.
    #[error("not available in this chain")]
    WrongChain,
    /// A match, target or value is not of the address family.
    #[error("not available in this address family")]
    WrongFamily,
}

impl RuleError {
    /// Creates an error for the word at a byte offset.
    pub(crate) fn new(text: &str, at: usize, problem: RuleProblem) -> Self {
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

    /// Returns the problem with the word.
    pub fn problem(&self) -> RuleProblem {
        self.problem
    }
}
