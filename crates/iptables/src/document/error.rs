//! Errors of the document parser.

use std::fmt;

use thiserror::Error;

/// Maximum length of a quoted line in an error, in bytes.
const QUOTED: usize = 60;

/// The error of an invalid document.
///
/// ```
/// use vipline_iptables::Tables;
///
/// let error = Tables::parse("*filter\n:INPUT OK [0:0]\nCOMMIT\n").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"line 2: expected the policy ACCEPT or DROP, or -, in ":INPUT OK [0:0]""#
/// );
/// ```
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    pub(crate) line: usize,
    pub(crate) reason: LineError,
}

impl ParseError {
    /// Returns the line number, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the error of the line.
    pub fn reason(&self) -> &LineError {
        &self.reason
    }
}

/// The error of an invalid or misplaced line.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("expected {expected}{}", Quoted(quoted.as_deref()))]
pub struct LineError {
    pub(crate) expected: Expected,
    /// The beginning of the line, or `None` at the end of the document.
    pub(crate) quoted: Option<Box<str>>,
}

impl LineError {
    pub(crate) fn new(expected: Expected, text: &str) -> Self {
        let ends = (0..=QUOTED).rev();
        let part = ends.into_iter().find_map(|end| text.get(..end));
        let quoted = match part {
            _ if text.len() <= QUOTED => text.into(),
            part => format!("{}…", part.unwrap_or_default()).into(),
        };
        Self {
            expected,
            quoted: Some(quoted),
        }
    }

    /// Returns the expected item.
    pub fn expected(&self) -> Expected {
        self.expected
    }
}

/// Prints the position of an error.
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
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Expected {
    /// A chain name.
    #[error("a chain name of 1 to 28 bytes")]
    Chain,
    /// A rule or another command.
    #[error("a command such as -A, or a comment, or COMMIT,")]
    Command,
    /// The end of a table.
    #[error("COMMIT")]
    Commit,
    /// Counters.
    #[error("counters such as [0:0]")]
    Counters,
    /// A single line.
    #[error("one line")]
    Line,
    /// A policy.
    #[error("the policy ACCEPT or DROP, or -,")]
    Policy,
    /// An entry of a list of match `recent`.
    #[error("an entry of a list such as src=192.0.2.7 ttl: 64")]
    RecentEntry,
    /// The first line of a table.
    #[error("a table such as *nat, or a comment,")]
    Table,
    /// A table name.
    #[error("a table name of 1 to 28 bytes")]
    TableName,
}
