//! Errors of connection tracking.

use std::fmt;

use thiserror::Error;
use vipline_netlink::{Errno, Rejected, RejectedList, RejectedRequest};

use crate::Key;

/// An error of a dump, a deletion or another request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// `CAP_NET_ADMIN` is missing; only [`Client::open`](crate::Client::open) returns
    /// this error.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The kernel rejected a request for one object, or a dump.
    #[error("{operation} {object}: {errno}")]
    Kernel {
        /// Rejected operation, such as `list`.
        operation: &'static str,
        /// Object of the operation.
        object: Box<str>,
        /// Error number.
        errno: Errno,
    },
    /// The exchange of messages with the kernel failed; changes may have been applied.
    #[error(transparent)]
    Netlink(#[from] vipline_netlink::Error),
    /// The kernel rejected some of several changes; all others were applied.
    #[error("{operation} {}", RejectedList::new(rejected))]
    Rejected {
        /// Rejected operation, such as `delete`.
        operation: &'static str,
        /// All rejected changes, at least 1, in the order of the changes.
        rejected: Vec<RejectedFlow>,
        /// Number of applied changes.
        done: usize,
    },
    /// The kernel has no ctnetlink, or its module is not loaded.
    #[error("ctnetlink is not available: load the kernel module {module}")]
    Unsupported {
        /// Missing kernel module.
        module: &'static str,
    },
}

impl Error {
    /// Returns whether the flow does not exist (`ENOENT`).
    ///
    /// For several changes, all reported errors must be `ENOENT`.
    pub fn is_not_found(&self) -> bool {
        self.is_only(Errno::NOENT)
    }

    /// Returns whether a flow with one of the tuples exists already (`EEXIST`).
    ///
    /// For several changes, all reported errors must be `EEXIST`.
    pub fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    /// Returns whether the flow is offloaded to a flowtable or cannot be changed as
    /// requested (`EBUSY`).
    ///
    /// For several changes, all reported errors must be `EBUSY`.
    pub fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    /// Returns the error number; for several changes, that of the first rejected one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Netlink(error) => error.errno(),
            Self::Rejected { rejected, .. } => rejected.first().map(|one| one.errno),
            _ => None,
        }
    }

    fn is_only(&self, errno: Errno) -> bool {
        match self {
            Self::Kernel { errno: one, .. } => *one == errno,
            Self::Rejected { rejected, .. } => rejected.iter().all(|one| one.errno == errno),
            _ => false,
        }
    }

    /// Adds the operation and the object of a request to an error.
    pub(crate) fn from_request(
        operation: &'static str,
        object: impl fmt::Display,
        error: vipline_netlink::Error,
    ) -> Self {
        match error {
            vipline_netlink::Error::Kernel(error) => Self::Kernel {
                operation,
                object: object.to_string().into(),
                errno: error.errno,
            },
            other => Self::Netlink(other),
        }
    }
}

/// The key of a flow whose change was rejected.
pub type RejectedFlow = Rejected<Key>;

impl RejectedRequest for Key {
    fn fmt_rejected(rejected: &RejectedFlow, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", rejected.request, rejected.reason())
    }
}
