//! Why a text is no rule.

use thiserror::Error;

/// A text that is no rule.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{word:?} at byte {at}: {problem}")]
pub struct RuleError {
    word: Box<str>,
    at: usize,
    problem: Problem,
}

/// What is wrong with a word.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(crate) enum Problem {
    #[error("its value is missing")]
    NoValue,
    #[error("an option was expected")]
    UnexpectedWord,
    #[error("its quote is not closed")]
    UnclosedQuote,
}

impl RuleError {
    /// Names the word that begins at a byte of the text.
    pub(crate) fn new(text: &str, at: usize, problem: Problem) -> Self {
        let word = text[at..].split([' ', '\t', '\n']).next();
        Self {
            word: word.unwrap_or_default().into(),
            at,
            problem,
        }
    }

    /// Returns the word, or its beginning if it has blanks.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Returns the byte of the text at which the word begins.
    pub fn at(&self) -> usize {
        self.at
    }
}
