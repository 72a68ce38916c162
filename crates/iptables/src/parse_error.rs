//! The error of text that is not valid: of a document, a rule, or a value.

use std::fmt;

use thiserror::Error;

use crate::InvalidName;

/// Maximum length of a quoted line in an error, in bytes.
const QUOTED: usize = 60;

/// The error of text that iptables would not accept, or of saved text that is no output of
/// `iptables-save`.
///
/// Each function that parses fails with few of the variants, and its documentation lists them.
///
/// ```
/// use vipline_iptables::{Expected, ParseError, Tables};
///
/// let error = Tables::parse("*filter\n:INPUT OK [0:0]\nCOMMIT\n").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"line 2: expected the policy ACCEPT or DROP, or -, in ":INPUT OK [0:0]""#
/// );
/// assert_eq!((error.line(), error.expected()), (Some(2), Some(Expected::Policy)));
/// ```
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// A line of a document is invalid or misplaced.
    #[error("{}expected {expected}{}", Place(*line), Quoted(quoted.as_deref()))]
    Line {
        /// Line number, from 1. `None` if the text is a single line.
        line: Option<usize>,
        /// What the line should be or contain.
        expected: Expected,
        /// The beginning of the line, or `None` at the end of the document.
        quoted: Option<Box<str>>,
    },
    /// A rule or a command is invalid.
    #[error("{word:?} at byte {at}: {problem}")]
    Rule {
        /// The word, up to its first blank.
        word: Box<str>,
        /// Byte offset of the word.
        at: usize,
        /// The problem with the word.
        problem: RuleProblem,
    },
    /// A saved document has a command other than `-A`.
    #[error("table {table}: unexpected command: {command}")]
    Command {
        /// Name of the table.
        table: Box<str>,
        /// The command.
        command: Box<str>,
    },
    /// A table or chain has an invalid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The text is no time in jiffies.
    #[error("a time in jiffies is three numbers: time, frequency or 0, and tolerance")]
    Jiffies,
    /// The text is no probability.
    #[error("invalid probability {0:?}: expected a number from 0 to 1")]
    Probability(Box<str>),
}

impl ParseError {
    /// Creates the error of a line whose number [`in_line`](Self::in_line) adds.
    pub(crate) fn of_line(expected: Expected, text: &str) -> Self {
        let ends = (0..=QUOTED).rev();
        let part = ends.into_iter().find_map(|end| text.get(..end));
        let quoted = match part {
            _ if text.len() <= QUOTED => text.into(),
            part => format!("{}…", part.unwrap_or_default()).into(),
        };
        Self::Line {
            line: None,
            expected,
            quoted: Some(quoted),
        }
    }

    /// Adds the number of the line to the error of a line.
    pub(crate) fn in_line(mut self, number: usize) -> Self {
        if let Self::Line { line, .. } = &mut self {
            *line = Some(number);
        }
        self
    }

    /// Creates the error of the word at a byte offset of a rule or command.
    pub(crate) fn of_word(text: &str, at: usize, problem: RuleProblem) -> Self {
        let word = text[at..].split([' ', '\t', '\n']).next();
        Self::Rule {
            word: word.unwrap_or_default().into(),
            at,
            problem,
        }
    }

    /// Returns the number of the invalid line of a document, from 1.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Line { line, .. } => *line,
            _ => None,
        }
    }

    /// Returns what the invalid line should be or contain.
    pub fn expected(&self) -> Option<Expected> {
        match self {
            Self::Line { expected, .. } => Some(*expected),
            _ => None,
        }
    }

    /// Returns the problem with a word of a rule or command.
    pub fn problem(&self) -> Option<RuleProblem> {
        match self {
            Self::Rule { problem, .. } => Some(*problem),
            _ => None,
        }
    }
}

/// Prints the number of a line.
struct Place(Option<usize>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, "line {line}: "),
            None => Ok(()),
        }
    }
}

/// Prints the text of an invalid line.
struct Quoted<'a>(Option<&'a str>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, " in {text:?}"),
            None => f.write_str(" before the end"),
        }
    }
}

/// The expected item of a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Expected {
    /// A chain name.
    Chain,
    /// A rule or another command.
    Command,
    /// The end of a table.
    Commit,
    /// Counters.
    Counters,
    /// A single line.
    Line,
    /// A policy.
    Policy,
    /// An entry of a list of match `recent`.
    RecentEntry,
    /// The first line of a table.
    Table,
    /// A table name.
    TableName,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain => f.write_str("a chain name of 1 to 28 bytes"),
            Self::Command => f.write_str("a command such as -A, or a comment, or COMMIT,"),
            Self::Commit => f.write_str("COMMIT"),
            Self::Counters => f.write_str("counters such as [0:0]"),
            Self::Line => f.write_str("one line"),
            Self::Policy => f.write_str("the policy ACCEPT or DROP, or -,"),
            Self::RecentEntry => f.write_str("an entry of a list such as src=192.0.2.7 ttl: 64"),
            Self::Table => f.write_str("a table such as *nat, or a comment,"),
            Self::TableName => f.write_str("a table name of 1 to 28 bytes"),
        }
    }
}

/// The problem with a word of a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RuleProblem {
    /// A chain name is too long or has invalid characters.
    InvalidChain,
    /// Counters are not in one of their forms.
    InvalidCounters,
    /// A rule number is not a number from 1.
    InvalidNumber,
    /// A policy is neither `ACCEPT` nor `DROP`.
    InvalidPolicy,
    /// A line does not begin with a command.
    NoCommand,
    /// An option lacks its value.
    NoValue,
    /// An option is not allowed in a document.
    NotAllowed,
    /// A line has a second command.
    SecondCommand,
    /// A word is neither an option nor a value.
    UnexpectedWord,
    /// A command without a rule has options of a rule.
    UnexpectedRule,
    /// A quote has no end.
    UnclosedQuote,
    /// A match, target or option requires one of these protocols in the rule, without
    /// negation.
    RequiresProtocol(&'static str),
    /// A match, target or option requires this option.
    RequiresOption(&'static str),
    /// A name has more bytes than the kernel stores.
    TooLong(usize),
    /// A list of addresses is negated.
    NegatedList,
    /// A number is not in the allowed range.
    OutOfRange,
    /// A target is only available in one of these tables.
    RequiresTable(&'static str),
    /// An option, match or target is not available in the built-in chain.
    WrongChain,
    /// A match, target or value is not of the address family.
    WrongFamily,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidChain => f.write_str("expected a chain name of 1 to 28 bytes"),
            Self::InvalidCounters => f.write_str("expected counters such as [0:0] or -c 0 0"),
            Self::InvalidNumber => f.write_str("expected a rule number of 1 or more"),
            Self::InvalidPolicy => f.write_str("expected the policy ACCEPT or DROP"),
            Self::NoCommand => f.write_str("expected a command such as -A"),
            Self::NoValue => f.write_str("missing value"),
            Self::NotAllowed => f.write_str("not allowed in a document"),
            Self::SecondCommand => f.write_str("second command"),
            Self::UnexpectedWord => f.write_str("expected an option"),
            Self::UnexpectedRule => f.write_str("the command has no rule"),
            Self::UnclosedQuote => f.write_str("unclosed quote"),
            Self::RequiresProtocol(value) => write!(f, "requires -p {value}"),
            Self::RequiresOption(value) => write!(f, "requires {value}"),
            Self::TooLong(value) => write!(f, "longer than {value} bytes"),
            Self::NegatedList => f.write_str("not allowed with several addresses"),
            Self::OutOfRange => f.write_str("out of range"),
            Self::RequiresTable(value) => write!(f, "only available in table {value}"),
            Self::WrongChain => f.write_str("not available in this chain"),
            Self::WrongFamily => f.write_str("not available in this address family"),
        }
    }
}
