//! What goes wrong with connection tracking.

use std::{fmt, io};

use thiserror::Error;
use vipline_netlink::{DecodeError, Errno};

use crate::Key;

/// Why a dump, a delete or another request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The program may not do this.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The machine failed.
    #[error("{operation}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("{operation} {object}: {errno}")]
    Kernel {
        /// What was asked for, such as `list`.
        operation: &'static str,
        /// What it was asked about.
        object: Box<str>,
        /// Why not.
        errno: Errno,
    },
    /// Answers were lost because the socket's buffer was full.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel refused some of many changes, and did all the others.
    #[error("{}", Listed { operation, first, count: *count })]
    Refused {
        /// What was to be done, such as `delete`.
        operation: &'static str,
        /// How many were refused, at least one.
        count: usize,
        /// The first few that were.
        first: Vec<Refused>,
        /// How many were done.
        done: usize,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not answer in time")]
    Timeout,
    /// The kernel has no ctnetlink.
    #[error("the kernel does not tell of flows: load the module {module}")]
    Unsupported {
        /// The module that does.
        module: &'static str,
    },
}

impl Error {
    /// How many refusals of many changes are kept; the others are counted.
    pub const KEPT: usize = 8;

    /// Tells whether the flow is not there.
    pub fn is_not_found(&self) -> bool {
        self.is_only(Errno::NOENT)
    }

    /// Tells whether the flow, or one like it, is there already.
    ///
    /// Of many, those that are kept are asked.
    pub fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    /// Tells whether the flow is carried by a flow table, or cannot be what it
    /// should.
    ///
    /// Of many, those that are kept are asked.
    pub fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    /// Returns the error number; of several refusals, that of the first.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Refused { first, .. } => first.first().map(|one| one.errno),
            _ => None,
        }
    }

    fn is_only(&self, errno: Errno) -> bool {
        match self {
            Self::Kernel { errno: one, .. } => *one == errno,
            Self::Refused { first, .. } => first.iter().all(|one| one.errno == errno),
            _ => false,
        }
    }

    /// Names what a request to the kernel was about.
    pub(crate) fn asking(
        operation: &'static str,
        object: impl fmt::Display,
        error: vipline_netlink::Error,
    ) -> Self {
        match error {
            vipline_netlink::Error::Kernel(refusal) => Self::Kernel {
                operation,
                object: object.to_string().into(),
                errno: refusal.errno,
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
            refused @ Netlink::Kernel(_) => Self::asking("talk to", "ctnetlink", refused),
            Netlink::Overrun => Self::Overrun,
            Netlink::Timeout => Self::Timeout,
            Netlink::Truncated { bytes, .. } => {
                Self::Decode(DecodeError::new("datagram of a bounded size", 0, bytes))
            }
            other => Self::Io {
                operation: "talk to the kernel",
                source: io::Error::other(other),
            },
        }
    }
}

/// A change of a flow that the kernel refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Refused {
    /// The flow.
    pub key: Key,
    /// Why not.
    pub errno: Errno,
}

impl Refused {
    pub(crate) fn new(key: Key, errno: Errno) -> Self {
        Self { key, errno }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.errno)
    }
}

/// Refusals in a row.
struct Listed<'a> {
    operation: &'a str,
    first: &'a [Refused],
    count: usize,
}

impl Listed<'_> {
    /// How many are spelled out.
    const SHOWN: usize = 3;
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        let shown = self.first.iter().take(Self::SHOWN);
        for (place, one) in shown.clone().enumerate() {
            let start = if place > 0 { "; " } else { " " };
            write!(f, "{start}{one}")?;
        }
        match self.count.saturating_sub(shown.len()) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
