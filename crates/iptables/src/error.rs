//! What goes wrong with the programs of iptables.

use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

use crate::{TableName, Version};

/// Why a save or a restore failed.
///
/// [`committed`](Self::committed) tells what a failed restore left behind.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A program ran for too long, and was killed.
    #[error("{program} was killed because it had not ended after {timeout:?}")]
    Timeout {
        /// Its name.
        program: Box<str>,
        /// How long it was let run.
        timeout: Duration,
    },
    /// What a program printed is no text.
    #[error("{program} printed a line that is not UTF-8: line {line}")]
    Decode {
        /// Its name.
        program: Box<str>,
        /// The number of the line, from 1.
        line: usize,
    },
    /// The caller may not do this.
    #[error(
        "{program}: operation not permitted: CAP_NET_ADMIN is missing, or CAP_NET_RAW, which \
         the legacy variant needs, too ({message})"
    )]
    Denied {
        /// The program that was refused.
        program: Box<str>,
        /// Its words.
        message: Box<str>,
    },
    /// `nft` wrote what the nft variant cannot show as rules of iptables.
    #[error(
        "table {table} cannot be saved: it has rules that only nft can list; move them to a \
         table of another name"
    )]
    Incompatible {
        /// The table.
        table: TableName,
    },
    /// The machine failed.
    #[error("{operation}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program was killed by somebody else.
    #[error("{program} was killed by signal {signal}")]
    Killed {
        /// Its name.
        program: Box<str>,
        /// The signal.
        signal: i32,
    },
    /// Another program had the lock of the legacy variant.
    #[error(
        "another program held the lock of iptables for the {wait} s it was waited for; \
         `lslocks` tells which ({message})"
    )]
    Locked {
        /// For how many seconds it was waited for.
        wait: u32,
        /// The words of the program.
        message: Box<str>,
    },
    /// There is no such program.
    #[error("{program} is not there: install iptables")]
    NotFound {
        /// Its name or path.
        program: Box<str>,
    },
    /// A program is too old.
    #[error(
        "{program} is too old: version {} or later is needed, and its answer to --version is \
         `{answer}`",
        Version::MINIMUM
    )]
    Outdated {
        /// Its name.
        program: Box<str>,
        /// What it answered when it was asked for its version.
        answer: Box<str>,
    },
    /// A program or the kernel refused what it was told to do.
    #[error("{program}: {}{message}", At(line.as_ref()))]
    Refused {
        /// The name of the program.
        program: Box<str>,
        /// Its exit status.
        status: i32,
        /// The line of the document that it refused.
        ///
        /// A table that the kernel refused as a whole is known by its `COMMIT`.
        line: Option<DocumentLine>,
        /// Its words.
        message: Box<str>,
    },
    /// A program could not be run.
    #[error("cannot run {program}")]
    Spawn {
        /// Its name.
        program: Box<str>,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel does not have the table, or not the variant.
    #[error("{program}: the kernel cannot do this, or a module of it is missing ({message})")]
    Unsupported {
        /// The name of the program.
        program: Box<str>,
        /// Its words.
        message: Box<str>,
    },
}

impl Error {
    /// Tells what a failed restore left behind.
    pub fn committed(&self) -> Committed {
        match self {
            Self::NotFound { .. } | Self::Outdated { .. } | Self::Spawn { .. } => Committed::No,
            Self::Refused {
                line: Some(line), ..
            } if line.commits == 0 => Committed::No,
            _ => Committed::Unknown,
        }
    }

    /// Tells whether a program is missing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Tells whether another program had the lock.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. })
    }

    /// Returns the line of the document that was refused.
    pub fn line(&self) -> Option<&DocumentLine> {
        match self {
            Self::Refused { line, .. } => line.as_ref(),
            _ => None,
        }
    }
}

/// One line of a document that was to be restored.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DocumentLine {
    /// The number of the line, from 1.
    pub number: usize,
    /// The line; `None` when the document has no such line.
    pub text: Option<Box<str>>,
    /// How many `COMMIT`s come before it: what they end is done.
    pub commits: usize,
}

/// What a failed restore left behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Committed {
    /// Nothing of the document is done.
    No,
    /// Up to each `COMMIT` all is done, or nothing: a save will tell.
    Unknown,
}

/// Where in the document, and what stands there.
struct At<'a>(Option<&'a DocumentLine>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(DocumentLine {
                number,
                text: Some(text),
                ..
            }) => write!(f, "line {number} (`{text}`): "),
            Some(DocumentLine { number, .. }) => write!(f, "line {number}: "),
        }
    }
}
