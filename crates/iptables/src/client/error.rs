//! Errors of the iptables programs.

use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

use crate::client::readable::readable_debug;
use crate::{Committed, Refusal, TableName, Version};

/// An error of a save or restore.
///
/// [`committed`](Self::committed) returns whether a failed restore may have changed
/// rules.
///
/// `Debug` writes a sentence with the sources, and the fields in the alternate form.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// A program exceeded the timeout and was killed.
    #[error("{program} did not end within {timeout:?} and was killed")]
    Timeout {
        /// Name of the program.
        program: Box<str>,
        /// The timeout.
        timeout: Duration,
    },
    /// The output of a program is not UTF-8.
    #[error("{program}: line {line} of the output is not UTF-8")]
    Decode {
        /// Name of the program.
        program: Box<str>,
        /// Line number, from 1.
        line: usize,
    },
    /// A capability is missing.
    #[error(
        "{program}: operation not permitted: CAP_NET_ADMIN is missing, or CAP_NET_RAW, which \
         the legacy variant also requires ({message})"
    )]
    Denied {
        /// Name of the program.
        program: Box<str>,
        /// The error message of the program.
        message: Box<str>,
    },
    /// The table has rules from `nft` that the nft variant cannot list.
    #[error(
        "table {table} cannot be saved: it has rules that only nft can list; move them to a \
         table of another name"
    )]
    Incompatible {
        /// Name of the table.
        table: TableName,
    },
    /// A system call failed.
    #[error("{operation}")]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// A program was killed by a signal from outside.
    #[error("{program} was killed by signal {signal}")]
    Killed {
        /// Name of the program.
        program: Box<str>,
        /// Signal number.
        signal: i32,
    },
    /// Another program held the xtables lock of the legacy variant.
    #[error(
        "another program held the xtables lock for {wait} s; `lslocks` shows the process \
         ({message})"
    )]
    Locked {
        /// Waiting time in seconds.
        wait: u32,
        /// The error message of the program.
        message: Box<str>,
    },
    /// A program is missing.
    #[error("{program} not found: install iptables")]
    MissingProgram {
        /// Name or path of the program.
        program: Box<str>,
    },
    /// A program is too old.
    #[error(
        "{program} is too old: version {} or later is required, --version printed `{answer}`",
        Version::MINIMUM
    )]
    Outdated {
        /// Name of the program.
        program: Box<str>,
        /// The output of `--version`.
        answer: Box<str>,
    },
    /// A program or the kernel rejected a document.
    #[error("{program}: {}{message}", At(line.as_ref(), command.as_deref()))]
    Rejected {
        /// Name of the program.
        program: Box<str>,
        /// Exit status.
        status: i32,
        /// The rejected single command; `None` for a document.
        command: Option<Box<str>>,
        /// The rejected line of the document.
        ///
        /// The `COMMIT` line if the kernel rejected a table as a whole.
        line: Option<DocumentLine>,
        /// The error message of the program.
        message: Box<str>,
    },
    /// A program could not be started.
    #[error("cannot run {program}")]
    Spawn {
        /// Name of the program.
        program: Box<str>,
        /// The system error.
        source: io::Error,
    },
    /// The kernel lacks the table or the variant.
    #[error(
        "{program}: the kernel does not support this table or variant, or a module is missing ({message})"
    )]
    Unsupported {
        /// Name of the program.
        program: Box<str>,
        /// The error message of the program.
        message: Box<str>,
    },
}

readable_debug!(Error {
    Timeout { program, timeout },
    Decode { program, line },
    Denied { program, message },
    Incompatible { table },
    Io { operation, source },
    Killed { program, signal },
    Locked { wait, message },
    MissingProgram { program },
    Outdated { program, answer },
    Rejected { program, status, command, line, message },
    Spawn { program, source },
    Unsupported { program, message },
});

impl Error {
    /// Returns whether a failed restore may have changed rules.
    pub fn committed(&self) -> Committed {
        match self {
            Self::MissingProgram { .. } | Self::Outdated { .. } | Self::Spawn { .. } => {
                Committed::No
            }
            Self::Rejected {
                line: Some(line), ..
            } if line.commits == 0 => Committed::No,
            Self::Rejected {
                command: Some(_), ..
            } => Committed::No,
            _ => Committed::Unknown,
        }
    }

    /// Returns whether a program is missing.
    pub fn is_program_missing(&self) -> bool {
        matches!(self, Self::MissingProgram { .. })
    }

    /// Returns whether another program held the xtables lock.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. })
    }

    /// Returns the reason of a rejection that iptables reported, if it is a known one.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Rejected { message, .. } => Reason::of(message),
            _ => None,
        }
    }

    /// Returns the rejected line of the document.
    pub fn line(&self) -> Option<&DocumentLine> {
        match self {
            Self::Rejected { line, .. } => line.as_ref(),
            _ => None,
        }
    }
}

impl Refusal for Error {
    /// Returns whether a chain, a rule or an IP set does not exist, by the words of
    /// iptables. The kernel uses the same words for a match or target that it lacks.
    fn is_not_found(&self) -> bool {
        use Reason::{MissingChain, MissingRule, MissingSet, NumberTooLarge};
        matches!(
            self.reason(),
            Some(MissingChain | MissingRule | MissingSet | NumberTooLarge)
        )
    }

    fn is_already_exists(&self) -> bool {
        self.reason() == Some(Reason::ChainExists)
    }

    fn is_busy(&self) -> bool {
        self.reason() == Some(Reason::ChainInUse)
    }

    fn is_denied(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

/// The reason of a rejection, by the words of iptables.
///
/// The programs use the same words for a few different reasons.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// A chain to create or a new name exists: "Chain already exists".
    ChainExists,
    /// A chain to delete has rules, or a rule jumps to it: "Directory not empty" and "Too
    /// many links" of the legacy variant, "Device or resource busy" of the nft variant.
    ChainInUse,
    /// A chain or a named nfacct object does not exist, or the kernel lacks a match or
    /// target: "No chain/target/match by that name". The nft variant also uses these words
    /// for a rule number that is too large, and "No such file or directory" for an object.
    /// For a jump to a missing chain, the legacy variant says "Couldn't load target", and
    /// the nft variant "Chain 'NAME' does not exist".
    MissingChain,
    /// No rule equals the rule to check or delete, or the chain does not exist: "Bad
    /// rule".
    MissingRule,
    /// An IP set does not exist: "Set NAME doesn't exist".
    MissingSet,
    /// A rule number is too large: "Index of insertion too big".
    NumberTooLarge,
}

impl Reason {
    fn of(message: &str) -> Option<Self> {
        if message.starts_with("Set ") && message.contains(" doesn't exist") {
            return Some(Self::MissingSet);
        }
        if message.contains("Chain '") && message.contains("' does not exist") {
            return Some(Self::MissingChain);
        }
        let reasons = [
            ("Chain already exists", Self::ChainExists),
            ("Directory not empty", Self::ChainInUse),
            ("Too many links", Self::ChainInUse),
            ("Device or resource busy", Self::ChainInUse),
            ("Couldn't load target `", Self::MissingChain),
            ("No chain/target/match by that name", Self::MissingChain),
            ("failed (No such file or directory)", Self::MissingChain),
            ("Bad rule (does a matching rule exist", Self::MissingRule),
            ("Index of ", Self::NumberTooLarge),
        ];
        let found = reasons
            .into_iter()
            .find(|(words, _)| message.contains(words));
        found.map(|(_, reason)| reason)
    }
}

/// A line of a restore document.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DocumentLine {
    /// Line number, from 1.
    pub number: usize,
    /// Text of the line; `None` if the document has no such line.
    pub text: Option<Box<str>>,
    /// Number of `COMMIT` lines before this line. Their tables are changed.
    pub commits: usize,
}

/// Prints the line number and text, or the command.
struct At<'a>(Option<&'a DocumentLine>, Option<&'a str>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(command) = self.1 {
            return write!(f, "`{command}`: ");
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_form_is_a_sentence_with_the_sources() {
        let error = Error::Spawn {
            program: "iptables-save".into(),
            source: io::Error::other("no memory"),
        };
        assert_eq!(format!("{error:?}"), "cannot run iptables-save: no memory");
        let error = Error::Rejected {
            program: "iptables-restore".into(),
            status: 1,
            command: None,
            line: Some(DocumentLine {
                number: 3,
                text: Some("-A MINE -j NONE".into()),
                commits: 0,
            }),
            message: "No chain/target/match by that name".into(),
        };
        assert_eq!(format!("{error:?}"), error.to_string());
        let fields = format!("{error:#?}");
        assert!(fields.contains("status: 1"), "{fields}");
        assert!(fields.starts_with("Rejected {\n"), "{fields}");
    }
}
