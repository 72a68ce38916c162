//! Errors of the client.

use std::error::Error as StdError;
use std::fmt;

use vipline_netlink::{ClientError, Condition, Feature, Rejected, RejectedRequest};
use vipline_nftables as nftables;

use super::Unsupported;
use crate::{Refusal, TableName};

/// An error of a dump or commit.
///
/// A rule that has no encoding is [`Error::NotEncoded`](ClientError::NotEncoded), with an
/// [`Unsupported`] as reason. If its IP set does not exist, the error
/// [is not found](ClientError::is_not_found).
/// [`may_be_applied`](ClientError::may_be_applied) returns whether a failed commit may have
/// been applied.
pub type Error = ClientError<Operation>;

/// An operation that the kernel rejected.
pub type RejectedOperation = Rejected<Operation>;

impl RejectedRequest for Operation {
    const FEATURE: Feature = <nftables::Operation as RejectedRequest>::FEATURE;

    fn condition_of(reason: &(dyn StdError + 'static)) -> Option<Condition> {
        let reason = reason.downcast_ref::<Unsupported>()?;
        reason.missing_set().map(|_| Condition::NotFound)
    }
}

impl Refusal for Error {
    /// Returns whether all errors are about an object that does not exist: a chain, a rule,
    /// an IP set or an nfacct object.
    fn is_not_found(&self) -> bool {
        Self::is_not_found(self)
    }

    fn is_already_exists(&self) -> bool {
        Self::is_already_exists(self)
    }

    fn is_busy(&self) -> bool {
        Self::is_busy(self)
    }

    fn is_denied(&self) -> bool {
        Self::is_denied(self)
    }
}

/// Returns the error of a rule without encoding.
pub(super) fn not_encoded(operation: Operation, source: Unsupported) -> Error {
    let request = Box::new(operation);
    let reason = source.into();
    Error::NotEncoded { request, reason }
}

/// Converts the error of a query to nf_tables, or of a batch without edits.
#[cfg(target_os = "linux")]
pub(super) fn from_nftables(error: nftables::Error) -> Error {
    error.map(|_| Operation::whole())
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

#[cfg(test)]
mod tests {
    use vipline_netlink::Errno;

    use super::*;

    #[test]
    fn a_rejected_operation_names_table_line_and_reason() {
        let operation = Operation {
            edit: Some(7),
            table: Some(TableName::NAT),
            line: "-A MINE -j MISSING".into(),
        };
        let error = Error::Rejected {
            rejected: vec![
                Rejected::new(operation, Errno::NOENT),
                Rejected::new(Operation::whole(), Errno(12)).with_message("too large"),
            ],
            more: Some(0),
            done: 0,
        };
        assert_eq!(
            error.to_string(),
            "table nat: -A MINE -j MISSING: no such file or directory; \
             COMMIT: cannot allocate memory (too large)"
        );
        assert!(!error.may_be_applied());
        assert_eq!(error.errno(), Some(Errno::NOENT));
    }

    #[test]
    fn a_missing_set_is_not_found_and_another_part_is_not() {
        let set = |missing_set| {
            let mut part = Unsupported::new("-m set");
            part.missing_set = missing_set;
            not_encoded(Operation::whole(), part)
        };
        let missing = set(Some("blocked".into()));
        assert!(missing.is_not_found());
        assert_eq!(
            missing.to_string(),
            "COMMIT: IP set \"blocked\" does not exist"
        );
        let other = set(None);
        assert!(!other.is_not_found() && !other.may_be_applied());
    }
}
