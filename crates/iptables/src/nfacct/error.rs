//! What goes wrong with counters.

use std::io;

use vipline_netlink::{DecodeError, Errno};

use super::Name;

/// Why the kernel did not do what it was asked about counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The program may not do this.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The counters changed under every attempt to list them.
    #[error("the counters changed during each of {attempts} attempts to list them")]
    Interrupted {
        /// How often it was tried.
        attempts: usize,
    },
    /// The machine failed.
    #[error("{operation}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("{operation} {}: {errno}", name.as_ref().map_or("counters", Name::as_str))]
    Kernel {
        /// What was being done.
        operation: &'static str,
        /// The counter; `None` when it was about all.
        name: Option<Name>,
        /// Why not.
        errno: Errno,
    },
    /// Answers were lost because the socket's buffer was full.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel did not answer in time.
    #[error("the kernel did not answer in time")]
    Timeout,
    /// The kernel has no such counters.
    #[error(
        "the kernel has no nfacct: CONFIG_NETFILTER_NETLINK_ACCT is off, or its module is missing"
    )]
    Unsupported,
}

impl Error {
    /// Tells whether there is no counter of the name.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    /// Tells whether there was a counter of the name already.
    pub fn is_already_exists(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// Tells whether rules still count in the counter.
    pub fn is_busy(&self) -> bool {
        self.errno() == Some(Errno::BUSY)
    }

    /// Returns the error number behind the failure, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Names what a message to the kernel was about.
    pub(super) fn asking(
        operation: &'static str,
        name: Option<&Name>,
        error: vipline_netlink::Error,
    ) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::Decode(error) => Self::Decode(error),
            Netlink::Io { operation, source } => match source.raw_os_error().map(Errno) {
                Some(Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) => Self::Unsupported,
                _ => Self::Io { operation, source },
            },
            Netlink::Kernel(refusal) => match refusal.errno {
                Errno::PERM => Self::Denied,
                // Of a subsystem it does not have, the kernel calls any message
                // invalid; ours are valid.
                Errno::INVAL | Errno::OPNOTSUPP => Self::Unsupported,
                errno => Self::Kernel {
                    operation,
                    name: name.cloned(),
                    errno,
                },
            },
            Netlink::Overrun => Self::Overrun,
            Netlink::Timeout => Self::Timeout,
            other => Self::Io {
                operation,
                source: io::Error::other(other),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::Ack;
    use vipline_netlink::{Error as Netlink, KernelError};

    use super::*;

    fn refused(errno: Errno) -> Error {
        let name = Name::new("hits").unwrap();
        let refusal = KernelError::new(1, errno, Ack::default());
        Error::asking("delete counter", Some(&name), refusal.into())
    }

    #[test]
    fn a_refusal_names_the_counter() {
        assert_eq!(
            refused(Errno::NOENT).to_string(),
            "delete counter hits: no such file or directory"
        );
        assert!(refused(Errno::NOENT).is_not_found());
        assert!(refused(Errno::EXIST).is_already_exists());
        assert!(refused(Errno::BUSY).is_busy());
    }

    #[test]
    fn a_kernel_without_counters_is_told_by_every_errno_it_has_for_it() {
        let socket = Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(93),
        };
        for error in [
            refused(Errno::INVAL),
            refused(Errno::OPNOTSUPP),
            Error::asking("open", None, socket),
        ] {
            assert!(matches!(error, Error::Unsupported), "{error:?}");
        }
        assert!(matches!(refused(Errno::PERM), Error::Denied));
    }
}
