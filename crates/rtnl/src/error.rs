//! Errors of links and addresses.

use std::fmt;

use thiserror::Error;
use vipline_netlink::{Errno, KernelError, Rejected, RejectedList, RejectedRequest};

use crate::Command;

/// An error of a dump or a commit.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// `CAP_NET_ADMIN` is missing.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// Links or addresses changed during every attempt of a dump.
    #[error("dump of {what} interrupted by changes in every attempt")]
    Interrupted {
        /// Kind of the dumped objects: `links` or `addresses`.
        what: &'static str,
    },
    /// The kernel rejected a request for links or addresses, other than a command.
    #[error("list {object}: {error}")]
    Kernel {
        /// Requested objects: `links`, `addresses`, or a link.
        object: Box<str>,
        /// Error of the kernel.
        error: KernelError,
    },
    /// The exchange of messages with the kernel failed; commands may have been
    /// executed.
    #[error(transparent)]
    Netlink(#[from] vipline_netlink::Error),
    /// The kernel rejected some commands; all others were executed.
    #[error("{}", RejectedList::new(rejected))]
    Rejected {
        /// Rejected commands, in the order of the commands, never empty.
        rejected: Vec<RejectedCommand>,
    },
}

impl Error {
    /// Returns whether all rejections mean that a link or an address does not exist
    /// (`ENODEV`, `EADDRNOTAVAIL`).
    pub fn is_not_found(&self) -> bool {
        self.all(|errno| matches!(errno, Errno::NODEV | Errno::ADDRNOTAVAIL))
    }

    /// Returns whether all rejections mean that the object exists (`EEXIST`).
    pub fn is_already_exists(&self) -> bool {
        self.all(|errno| errno == Errno::EXIST)
    }

    /// Returns whether all rejections mean that the object is in use (`EBUSY`).
    pub fn is_busy(&self) -> bool {
        self.all(|errno| errno == Errno::BUSY)
    }

    /// Returns whether all rejections mean that the kernel lacks a feature
    /// (`EOPNOTSUPP`, `EAFNOSUPPORT`).
    ///
    /// Such features are a link type, for example the module `dummy`, and IPv6.
    pub fn is_unsupported(&self) -> bool {
        self.all(|errno| matches!(errno, Errno::OPNOTSUPP | Errno::AFNOSUPPORT))
    }

    /// Returns the error number; for several commands, that of the first rejected one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Kernel { error, .. } => Some(error.errno),
            Self::Netlink(error) => error.errno(),
            Self::Rejected { rejected } => rejected.first().map(|first| first.errno),
            _ => None,
        }
    }

    /// Returns whether the error is a rejection, and `is` returns `true` for all errnos.
    fn all(&self, is: impl Fn(Errno) -> bool) -> bool {
        match self {
            Self::Kernel { error, .. } => is(error.errno),
            Self::Rejected { rejected } => rejected.iter().all(|one| is(one.errno)),
            _ => false,
        }
    }

    /// Adds the requested object to an error.
    pub(crate) fn from_request(object: impl fmt::Display, error: vipline_netlink::Error) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::Kernel(error) if error.errno == Errno::PERM => Self::Denied,
            Netlink::Kernel(error) => Self::Kernel {
                object: object.to_string().into(),
                error,
            },
            other => Self::Netlink(other),
        }
    }
}

/// A rejected command.
pub type RejectedCommand = Rejected<Command>;

impl RejectedRequest for Command {
    fn fmt_rejected(rejected: &RejectedCommand, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip {}: {}", rejected.request, rejected.reason())
    }
}
