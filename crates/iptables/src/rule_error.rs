//! The error of an invalid rule.

use thiserror::Error;

/// The error of an invalid rule.
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
    #[error("missing value")]
    NoValue,
    #[error("expected an option")]
    UnexpectedWord,
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
