//! Errors of links and addresses.

use std::{fmt, io};

use thiserror::Error;
use vipline_netlink::{DecodeError, Errno, KernelError, Rejected, RejectedList, RejectedRequest};

use crate::Command;

/// An error of a dump or a commit.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A message from the kernel is malformed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// `CAP_NET_ADMIN` is missing.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// Links or addresses changed during every attempt of a dump.
    #[error("dump of {what} interrupted by changes in every attempt")]
    Interrupted {
        /// Kind of the dumped objects: `links` or `addresses`.
        what: &'static str,
    },
    /// A system call failed, or a reply was too large.
    #[error("{operation}")]
    Io {
        /// Failed operation.
        operation: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel rejected a request for links or addresses, other than a command.
    #[error("list {object}: {error}")]
    Kernel {
        /// Requested objects: `links`, `addresses`, or a link.
        object: Box<str>,
        /// Error of the kernel.
        error: KernelError,
    },
    /// Replies were lost because the receive buffer was full (`ENOBUFS`); commands may
    /// have been executed.
    #[error("receive buffer overrun: replies were lost")]
    Overrun,
    /// The kernel rejected some commands; all others were executed.
    #[error("{}", RejectedList::new(rejected))]
    Rejected {
        /// Rejected commands, in the order of the commands, never empty.
        rejected: Vec<RejectedCommand>,
    },
    /// The kernel did not reply within 10 s; commands may have been executed.
    #[error("the kernel did not reply in time")]
    Timeout,
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
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel { error, .. } => Some(error.errno),
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
            other => other.into(),
        }
    }
}

impl From<vipline_netlink::Error> for Error {
    fn from(error: vipline_netlink::Error) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::Decode(error) => Self::Decode(error),
            Netlink::Io { operation, source } => Self::Io { operation, source },
            Netlink::Overrun => Self::Overrun,
            Netlink::Timeout => Self::Timeout,
            other => Self::Io {
                operation: "exchange netlink messages",
                source: io::Error::other(other),
            },
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
