//! nf_tables errors.

use std::fmt;

use thiserror::Error;
use vipline_netlink::{Errno, KernelError, Rejected, RejectedList, RejectedRequest};

use crate::{Operation, Subject};

/// An error of a dump, a commit or a monitor.
///
/// [`committed`](Self::committed) returns whether a failed commit may have been
/// applied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction exceeds the length that the socket can send at once.
    #[error("a transaction of {bytes} bytes exceeds the limit of the socket, {limit} bytes")]
    BatchTooLarge {
        /// Length of the transaction.
        bytes: usize,
        /// Maximum length.
        limit: usize,
    },
    /// `CAP_NET_ADMIN` is missing.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The ruleset changed during every attempt to dump it.
    #[error("the ruleset changed during each of {attempts} attempts to dump it")]
    Interrupted {
        /// Number of attempts.
        attempts: usize,
    },
    /// The kernel rejected a request.
    #[error("{operation} {object}: {error}")]
    Kernel {
        /// Operation, such as `list rules`.
        operation: &'static str,
        /// Table or set of the request, in nft syntax.
        object: Box<str>,
        /// Error of the kernel.
        error: KernelError,
    },
    /// The kernel does not know the request; later versions do.
    #[error("{operation} {object}: the kernel is older than Linux {since}")]
    KernelTooOld {
        /// Operation, such as `reset element`.
        operation: &'static str,
        /// Object of the request, in nft syntax.
        object: Box<str>,
        /// First version with the request, such as `6.5`.
        since: &'static str,
    },
    /// The exchange of messages with the kernel failed.
    #[error(transparent)]
    Netlink(vipline_netlink::Error),
    /// The ruleset does not have the required generation: another process changed it.
    /// Nothing was applied.
    #[error("nothing was committed: another process changed the ruleset since the dump")]
    Outdated,
    /// Replies were lost because the socket's receive buffer was full.
    #[error("netlink replies were lost: the state of the kernel is unknown")]
    Overrun,
    /// The kernel rejected a transaction and applied nothing.
    #[error("{}", RejectedList::new(rejected).with_more(*more))]
    Rejected {
        /// Rejected operations, in order of the transaction; never empty.
        rejected: Vec<RejectedOperation>,
        /// Number of further rejected operations. `None` if it is unknown, because
        /// acknowledgments were lost.
        more: Option<usize>,
    },
    /// The kernel lacks nf_tables.
    #[error("the kernel does not support nf_tables: {option} is off, or its module is missing")]
    Unsupported {
        /// Missing kernel configuration option.
        option: &'static str,
        /// Error number that the kernel returned.
        errno: Errno,
    },
}

impl Error {
    /// Returns whether a failed commit may have been applied.
    pub fn committed(&self) -> Committed {
        match self {
            Self::BatchTooLarge { .. }
            | Self::Denied
            | Self::KernelTooOld { .. }
            | Self::Outdated
            | Self::Rejected { .. }
            | Self::Unsupported { .. } => Committed::No,
            _ => Committed::Unknown,
        }
    }

    /// Returns whether all errors of the kernel are `ENOENT`: no such object.
    pub fn is_not_found(&self) -> bool {
        self.is_only(Errno::NOENT)
    }

    /// Returns whether all errors of the kernel are `EEXIST`: the object exists.
    pub fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    /// Returns whether all errors of the kernel are `EBUSY`: the object is in use.
    pub fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    /// Returns the error number; of several, that of the first rejected operation.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Outdated => Some(Errno::RESTART),
            Self::Netlink(error) => error.errno(),
            Self::Rejected { rejected, .. } => rejected.first().map(|first| first.errno),
            Self::Kernel { error, .. } => Some(error.errno),
            Self::Unsupported { errno, .. } => Some(*errno),
            _ => None,
        }
    }

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

    /// Returns whether the ruleset has another generation than the batch requires:
    /// [`Outdated`](Self::Outdated). Another process committed meanwhile.
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Outdated)
    }

    /// Returns the error of rejected operations.
    ///
    /// The kernel reports a missing capability and missing nf_tables for the batch as a
    /// whole.
    pub(crate) fn from_rejected(rejected: Vec<RejectedOperation>, more: Option<usize>) -> Self {
        if let [whole] = &*rejected
            && whole.request.subject == Subject::Transaction
        {
            match whole.errno {
                Errno::PERM => return Self::Denied,
                // The kernel reports ERESTART for the begin message only.
                Errno::RESTART => return Self::Outdated,
                errno @ (Errno::INVAL | Errno::OPNOTSUPP) => return Self::unsupported(errno),
                _ => {}
            }
        }
        Self::Rejected { rejected, more }
    }

    /// Adds operation and object to the error of a request.
    pub(crate) fn from_request(
        operation: &'static str,
        object: String,
        error: vipline_netlink::Error,
    ) -> Self {
        match error {
            vipline_netlink::Error::Kernel(error) if error.errno == Errno::PERM => Self::Denied,
            vipline_netlink::Error::Kernel(error) => Self::Kernel {
                operation,
                object: object.into(),
                error,
            },
            other => other.into(),
        }
    }

    /// Converts the error of a request that is always valid to `Unsupported`.
    ///
    /// Without nf_tables the kernel rejects a request with `EINVAL` and a batch with
    /// `EOPNOTSUPP`.
    pub(crate) fn into_unsupported(self) -> Self {
        match self.errno() {
            Some(errno @ (Errno::INVAL | Errno::OPNOTSUPP))
                if matches!(self, Self::Kernel { .. }) =>
            {
                Self::unsupported(errno)
            }
            _ => self,
        }
    }

    /// Returns the error for a kernel without nf_tables.
    pub(crate) fn unsupported(errno: Errno) -> Self {
        Self::Unsupported {
            option: "CONFIG_NF_TABLES",
            errno,
        }
    }
}

impl From<vipline_netlink::Error> for Error {
    fn from(error: vipline_netlink::Error) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::BatchTooLarge { bytes, limit } => Self::BatchTooLarge { bytes, limit },
            Netlink::Overrun => Self::Overrun,
            _ => match error.missing_protocol() {
                Some(errno) => Self::unsupported(errno),
                None => Self::Netlink(error),
            },
        }
    }
}

/// An operation of a transaction that the kernel rejected.
pub type RejectedOperation = Rejected<Operation>;

impl RejectedRequest for Operation {
    fn fmt_rejected(rejected: &RejectedOperation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", rejected.request, rejected.reason())
    }
}

/// Whether a failed commit was applied.
///
/// Exhaustive: a transaction is either not applied, or its effect is unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Committed {
    /// The transaction was not applied.
    No,
    /// The transaction was applied completely or not at all. A dump shows which.
    Unknown,
}

#[cfg(test)]
mod tests {
    use std::io;

    use vipline_netlink::Error as Netlink;
    use vipline_netlink::message::Ack;

    use super::*;
    use crate::Action;

    fn kernel(errno: Errno) -> Netlink {
        KernelError::new(1, errno, Ack::default()).into()
    }

    fn rejected(errno: Errno, message: Option<&str>) -> RejectedOperation {
        let operation = Operation::new(Action::Commit, Subject::Transaction);
        let rejected = Rejected::new(operation, errno);
        match message {
            Some(message) => rejected.with_message(message),
            None => rejected,
        }
    }

    #[test]
    fn every_errno_of_a_kernel_without_nf_tables_is_unsupported() {
        let socket = Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(93),
        };
        let request = |errno| Error::from_request("list table", "ip t".to_owned(), kernel(errno));
        for error in [
            Error::from(socket),
            request(Errno::INVAL).into_unsupported(),
            request(Errno::OPNOTSUPP).into_unsupported(),
        ] {
            assert_eq!(error.committed(), Committed::No);
            assert!(error.to_string().contains("CONFIG_NF_TABLES"), "{error}");
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        }
    }

    #[test]
    fn another_failure_to_open_the_socket_is_an_io_error() {
        let error = Error::from(Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(24),
        });
        assert_eq!(error.to_string(), "open a netlink socket");
        assert_eq!(error.errno(), Some(Errno(24)));
    }

    #[test]
    fn a_missing_capability_is_named() {
        let error = Error::from_request("list table", "ip t".to_owned(), kernel(Errno::PERM));
        assert_eq!(
            error.to_string(),
            "operation not permitted: CAP_NET_ADMIN is missing"
        );
        assert_eq!(error.errno(), Some(Errno::PERM));
    }

    #[test]
    fn a_failed_request_names_its_object() {
        let error = Error::from_request("list table", "ip t".to_owned(), kernel(Errno::NOENT));
        assert_eq!(
            error.to_string(),
            "list table ip t: no such file or directory"
        );
        assert!(error.is_not_found());
    }

    #[test]
    fn lost_replies_leave_the_commit_unknown() {
        for error in [Netlink::Overrun, Netlink::Timeout] {
            assert_eq!(Error::from(error).committed(), Committed::Unknown);
        }
        let error = Error::from(Netlink::BatchTooLarge { bytes: 9, limit: 5 });
        assert_eq!(error.committed(), Committed::No);
    }

    #[test]
    fn the_first_rejections_are_shown_and_the_others_counted() {
        let one = rejected(Errno::BUSY, Some("in use by a rule"));
        let error = |count, more| Error::Rejected {
            rejected: vec![one.clone(); count],
            more,
        };
        let text = "commit transaction: device or resource busy (in use by a rule)";
        assert_eq!(error(1, Some(0)).to_string(), text);
        assert_eq!(error(2, Some(0)).to_string(), format!("{text}; {text}"));
        assert_eq!(
            error(4, Some(10)).to_string(),
            format!("{text}; {text}; {text}; and 11 more")
        );
    }

    #[test]
    fn a_predicate_requires_the_errno_of_every_rejection() {
        let error = |errnos: &[Errno], more| Error::Rejected {
            rejected: errnos.iter().map(|errno| rejected(*errno, None)).collect(),
            more,
        };
        assert!(error(&[Errno::NOENT, Errno::NOENT], Some(0)).is_not_found());
        assert!(!error(&[Errno::NOENT, Errno::BUSY], Some(0)).is_not_found());
        assert!(!error(&[Errno::NOENT], Some(1)).is_not_found());
        assert!(!error(&[Errno::NOENT], None).is_not_found());
        assert!(error(&[Errno::EXIST], Some(0)).is_already_exists());
        assert!(error(&[Errno::BUSY], Some(0)).is_busy());
    }
}
