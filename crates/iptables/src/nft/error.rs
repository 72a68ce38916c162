//! Errors of the client.

use std::fmt;

use thiserror::Error;
use vipline_netlink::{Errno, Rejected, RejectedList, RejectedRequest};
use vipline_nftables as nftables;

use super::Unsupported;
use crate::{Committed, Refusal, TableName};

/// An error of a dump or commit.
///
/// [`committed`](Self::committed) returns whether a failed commit may have been applied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The ruleset changed during every attempt.
    #[error("the ruleset changed during each of {attempts} attempts")]
    Interrupted {
        /// Number of attempts.
        attempts: usize,
    },
    /// A rule names an IP set that does not exist. Nothing was sent.
    #[error("{operation}: IP set {name:?} does not exist")]
    MissingSet {
        /// The operation with the rule.
        operation: Box<Operation>,
        /// Name of the set.
        name: Box<str>,
    },
    /// A request about extensions or IP sets failed.
    #[error(transparent)]
    Netlink(#[from] vipline_netlink::Error),
    /// A request to nf_tables failed: a missing capability, no nf_tables, and others.
    #[error(transparent)]
    Nftables(nftables::Error),
    /// The kernel rejected a batch and applied nothing.
    #[error("{}", RejectedList::new(rejected).with_more(*more))]
    Rejected {
        /// Rejected operations, in order of the batch; never empty.
        rejected: Vec<RejectedOperation>,
        /// Number of further rejected operations. `None` if it is unknown, because
        /// acknowledgments were lost.
        more: Option<usize>,
    },
    /// A rule has no encoding. Nothing was sent.
    #[error("{operation}: {source}")]
    Unsupported {
        /// The operation with the rule.
        operation: Box<Operation>,
        /// The part of the rule.
        source: Unsupported,
    },
}

impl Error {
    /// Returns whether a failed commit may have been applied.
    pub fn committed(&self) -> Committed {
        match self {
            Self::Nftables(error) => match error.may_be_applied() {
                false => Committed::No,
                true => Committed::Unknown,
            },
            Self::Interrupted { .. }
            | Self::MissingSet { .. }
            | Self::Netlink(_)
            | Self::Rejected { .. }
            | Self::Unsupported { .. } => Committed::No,
        }
    }

    /// Returns the error number; of several, that of the first rejected operation.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Netlink(error) => error.errno(),
            Self::Nftables(error) => error.errno(),
            Self::Rejected { rejected, .. } => rejected.first().map(|first| first.errno),
            Self::Interrupted { .. } | Self::MissingSet { .. } | Self::Unsupported { .. } => None,
        }
    }
}

impl Refusal for Error {
    /// Returns whether all errors are about an object that does not exist: a chain, a rule,
    /// an IP set or an nfacct object.
    fn is_not_found(&self) -> bool {
        matches!(self, Self::MissingSet { .. }) || self.is_only(Errno::NOENT)
    }

    fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    fn is_denied(&self) -> bool {
        matches!(self, Self::Nftables(nftables::Error::Denied)) || self.is_only(Errno::PERM)
    }
}

impl Error {
    /// Returns whether all errors of the kernel have this number.
    fn is_only(&self, errno: Errno) -> bool {
        match self {
            Self::Rejected {
                rejected,
                more: Some(0),
            } => rejected.iter().all(|one| one.errno == errno),
            Self::Rejected { .. } => false,
            _ => self.errno() == Some(errno),
        }
    }

    /// Returns the error of a rule without encoding.
    pub(super) fn not_encoded(operation: Operation, source: Unsupported) -> Self {
        let operation = Box::new(operation);
        match source.missing_set {
            Some(name) => Self::MissingSet { operation, name },
            None => Self::Unsupported { operation, source },
        }
    }
}

impl From<nftables::Error> for Error {
    fn from(error: nftables::Error) -> Self {
        Self::Nftables(error)
    }
}

/// An operation of a commit, as the line of the equivalent restore document.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// Index of the edit. `None` for a table, a built-in chain that a shared rule needs,
    /// and the whole batch.
    pub edit: Option<usize>,
    /// Table. `None` for the whole batch.
    pub table: Option<TableName>,
    /// The line, such as `:MINE - [0:0]`, `-A MINE -j ACCEPT`, `-X MINE` or `COMMIT`.
    pub line: Box<str>,
}

impl Operation {
    /// Returns the operation for the whole batch.
    pub(super) fn whole() -> Self {
        Self {
            edit: None,
            table: None,
            line: "COMMIT".into(),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.table {
            Some(table) => write!(f, "table {table}: {}", self.line),
            None => f.write_str(&self.line),
        }
    }
}

/// An operation that the kernel rejected.
pub type RejectedOperation = Rejected<Operation>;

impl RejectedRequest for Operation {
    fn fmt_rejected(rejected: &RejectedOperation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", rejected.request, rejected.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_operation_names_table_line_and_reason() {
        let operation = Operation {
            edit: Some(7),
            table: Some(TableName::new("nat").unwrap()),
            line: "-A MINE -j MISSING".into(),
        };
        let error = Error::Rejected {
            rejected: vec![
                Rejected::new(operation, Errno::NOENT),
                Rejected::new(Operation::whole(), Errno(12)).with_message("too large"),
            ],
            more: Some(0),
        };
        assert_eq!(
            error.to_string(),
            "table nat: -A MINE -j MISSING: no such file or directory; \
             COMMIT: cannot allocate memory (too large)"
        );
        assert_eq!(error.committed(), Committed::No);
        assert_eq!(error.errno(), Some(Errno::NOENT));
    }
}
