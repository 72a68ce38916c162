//! nfacct errors.

use vipline_netlink::Errno;

use super::Name;

/// An nfacct error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process lacks `CAP_NET_ADMIN`.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The counters changed during every attempt to dump them.
    #[error("the counters changed during each of {attempts} attempts to dump them")]
    Interrupted {
        /// Number of attempts.
        attempts: usize,
    },
    /// The kernel rejected a request.
    #[error("{operation} {}: {errno}", name.as_ref().map_or("counters", Name::as_str))]
    Kernel {
        /// The operation that failed.
        operation: &'static str,
        /// Name of the counter; `None` for all counters.
        name: Option<Name>,
        /// Error number.
        errno: Errno,
    },
    /// The exchange of messages with the kernel failed; changes may have been
    /// applied.
    #[error(transparent)]
    Netlink(vipline_netlink::Error),
    /// Replies were lost because the receive buffer was full.
    #[error(
        "the receive buffer was full and replies were lost: the state of the counters is unknown"
    )]
    Overrun,
    /// The kernel does not support nfacct.
    #[error(
        "the kernel does not support nfacct: CONFIG_NETFILTER_NETLINK_ACCT is off, or the module is missing"
    )]
    Unsupported,
}

impl Error {
    /// Returns whether the counter does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    /// Returns whether the counter already exists.
    pub fn is_already_exists(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// Returns whether rules still use the counter.
    pub fn is_busy(&self) -> bool {
        self.errno() == Some(Errno::BUSY)
    }

    /// Returns the errno value, if the error has one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Netlink(error) => error.errno(),
            _ => None,
        }
    }

    /// Adds the operation and the counter to a netlink error.
    pub(super) fn from_netlink(
        operation: &'static str,
        name: Option<&Name>,
        error: vipline_netlink::Error,
    ) -> Self {
        let vipline_netlink::Error::Kernel(rejection) = error else {
            return error.into();
        };
        match rejection.errno {
            Errno::PERM => Self::Denied,
            // The kernel rejects messages of an unknown subsystem as invalid; messages of
            // this crate are valid.
            Errno::INVAL | Errno::OPNOTSUPP => Self::Unsupported,
            errno => Self::Kernel {
                operation,
                name: name.cloned(),
                errno,
            },
        }
    }
}

impl From<vipline_netlink::Error> for Error {
    fn from(error: vipline_netlink::Error) -> Self {
        match error {
            vipline_netlink::Error::Overrun => Self::Overrun,
            _ if error.missing_protocol().is_some() => Self::Unsupported,
            other => Self::Netlink(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use vipline_netlink::message::Ack;
    use vipline_netlink::{Error as Netlink, KernelError};

    use super::*;

    fn rejected(errno: Errno) -> Error {
        let name = Name::new("hits").unwrap();
        let rejection = KernelError::new(1, errno, Ack::default());
        Error::from_netlink("delete counter", Some(&name), rejection.into())
    }

    #[test]
    fn a_rejection_names_the_counter() {
        assert_eq!(
            rejected(Errno::NOENT).to_string(),
            "delete counter hits: no such file or directory"
        );
        assert!(rejected(Errno::NOENT).is_not_found());
        assert!(rejected(Errno::EXIST).is_already_exists());
        assert!(rejected(Errno::BUSY).is_busy());
    }

    #[test]
    fn every_errno_of_a_kernel_without_nfacct_is_unsupported() {
        let socket = Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(93),
        };
        for error in [
            rejected(Errno::INVAL),
            rejected(Errno::OPNOTSUPP),
            Error::from_netlink("open", None, socket),
        ] {
            assert!(matches!(error, Error::Unsupported), "{error:?}");
        }
        assert!(matches!(rejected(Errno::PERM), Error::Denied));
    }
}
