//! What goes wrong with links and addresses.

use std::{fmt, io};

use thiserror::Error;
use vipline_netlink::{DecodeError, Errno, KernelError};

use crate::Command;

/// Why a dump or a commit failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The program may not do this.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// Links or addresses changed under every attempt to dump them.
    #[error("{what} changed under every attempt to list them")]
    Interrupted {
        /// What was being listed: `links` or `addresses`.
        what: &'static str,
    },
    /// The machine failed.
    #[error("{operation}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused to tell something.
    #[error("list {object}: {refusal}")]
    Kernel {
        /// What it was asked about.
        object: Box<str>,
        /// Why not.
        refusal: KernelError,
    },
    /// Answers were lost because the socket's buffer was full.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel refused commands, and did all the others.
    #[error("{}", Listed(refused))]
    Refused {
        /// What it refused, in the order of the commands, never empty.
        refused: Vec<Refused>,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not answer in time")]
    Timeout,
}

impl Error {
    /// Tells whether all that was refused was refused for lack of a link or an
    /// address.
    pub fn is_not_found(&self) -> bool {
        self.all(|errno| matches!(errno, Errno::NODEV | Errno::ADDRNOTAVAIL))
    }

    /// Tells whether all that was refused was refused because it exists.
    pub fn is_already_exists(&self) -> bool {
        self.all(|errno| errno == Errno::EXIST)
    }

    /// Tells whether all that was refused was refused because it is in use.
    pub fn is_busy(&self) -> bool {
        self.all(|errno| errno == Errno::BUSY)
    }

    /// Tells whether all that was refused is nothing that this kernel can do.
    ///
    /// It lacks the kind of link, such as the module `dummy`, or IPv6.
    pub fn is_unsupported(&self) -> bool {
        self.all(|errno| matches!(errno, Errno::OPNOTSUPP | Errno::AFNOSUPPORT))
    }

    /// Returns the error number; of several refusals, that of the first.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel { refusal, .. } => Some(refusal.errno),
            Self::Refused { refused } => refused.first().map(|first| first.errno),
            _ => None,
        }
    }

    /// Tells whether there is nothing but refusals, and this is true of each.
    fn all(&self, is: impl Fn(Errno) -> bool) -> bool {
        match self {
            Self::Kernel { refusal, .. } => is(refusal.errno),
            Self::Refused { refused } => refused.iter().all(|one| is(one.errno)),
            _ => false,
        }
    }

    /// Names what the kernel was asked about.
    pub(crate) fn asking(object: impl fmt::Display, error: vipline_netlink::Error) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::Kernel(refusal) if refusal.errno == Errno::PERM => Self::Denied,
            Netlink::Kernel(refusal) => Self::Kernel {
                object: object.to_string().into(),
                refusal,
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
                operation: "talk to the kernel",
                source: io::Error::other(other),
            },
        }
    }
}

/// A command that the kernel refused.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Refused {
    /// The command.
    pub command: Command,
    /// Why not.
    pub errno: Errno,
    /// What the kernel has to say about it, in its own words.
    pub text: Option<Box<str>>,
}

impl Refused {
    /// Returns the refusal of a command.
    pub fn new(command: Command, refusal: KernelError) -> Self {
        Self {
            command,
            errno: refusal.errno,
            text: refusal.message,
        }
    }

    /// Returns the refusal of a command whose link is not there.
    pub(crate) fn without_link(command: Command) -> Self {
        Self {
            command,
            errno: Errno::NODEV,
            text: None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            command,
            errno,
            text,
        } = self;
        write!(f, "ip {command}: {errno}")?;
        match text {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

/// Refusals in a row.
struct Listed<'a>(&'a [Refused]);

impl Listed<'_> {
    /// How many are spelled out.
    const SHOWN: usize = 3;
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, one) in self.0.iter().take(Self::SHOWN).enumerate() {
            if place > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{one}")?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
