//! What goes wrong with IPVS.

use std::{fmt, io};

use thiserror::Error;
use vipline_netlink::{DecodeError, Errno};

use crate::Command;

/// Why a dump, a commit or another request failed.
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
    /// The kernel refused to tell or do something that is no command.
    #[error("{operation} {object}: {errno}")]
    Kernel {
        /// What was asked for, such as `list real servers of`.
        operation: &'static str,
        /// What it was asked about, as `ipvsadm` names it.
        object: Box<str>,
        /// Why not.
        errno: Errno,
    },
    /// Answers were lost because the socket's buffer was full.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel refused commands, and did all the others.
    #[error("{}", List(rejected))]
    Rejected {
        /// What it refused, in the order of the commands, never empty.
        rejected: Vec<RejectedCommand>,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not answer in time")]
    Timeout,
    /// The kernel has no IPVS.
    #[error("the kernel has no IPVS: load the module {module}")]
    Unsupported {
        /// The module that has it.
        module: &'static str,
    },
}

impl Error {
    /// Tells whether all that was refused was refused for lack of a server.
    ///
    /// The kernel says so in two ways: the service is not there, or the real
    /// server is not.
    pub fn is_not_found(&self) -> bool {
        let is_absent = |errno| matches!(errno, Errno::SRCH | Errno::NOENT);
        self.all(|refused| is_absent(refused.errno) && !refused.is_scheduler_missing())
            || matches!(self, Self::Kernel { errno, .. } if is_absent(*errno))
    }

    /// Tells whether all that was refused was refused because it exists.
    pub fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    /// Tells whether all that was refused was refused because it is in use.
    pub fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    /// Tells whether all that was refused has a weight or a threshold that is
    /// out of range.
    pub fn is_out_of_range(&self) -> bool {
        self.is_only(Errno::RANGE)
    }

    /// Tells whether all that was refused lacks its scheduler or its
    /// persistence engine.
    pub fn is_scheduler_missing(&self) -> bool {
        self.all(RejectedCommand::is_scheduler_missing)
    }

    /// Returns the error number; of several refusals, that of the first.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Rejected { rejected } => rejected.first().map(|first| first.errno),
            Self::Unsupported { .. } => Some(Errno::NOENT),
            _ => None,
        }
    }

    /// Tells whether there is nothing but refusals with this number.
    fn is_only(&self, errno: Errno) -> bool {
        self.all(|refused| refused.errno == errno)
            || matches!(self, Self::Kernel { errno: one, .. } if *one == errno)
    }

    /// Tells whether there is nothing but refusals, and this is true of each.
    fn all(&self, is: impl Fn(&RejectedCommand) -> bool) -> bool {
        matches!(self, Self::Rejected { rejected } if rejected.iter().all(is))
    }

    /// Names what a request to the kernel was about.
    pub(crate) fn asking(
        operation: &'static str,
        object: impl fmt::Display,
        error: vipline_netlink::Error,
    ) -> Self {
        match error {
            vipline_netlink::Error::Kernel(refusal) if refusal.errno == Errno::PERM => Self::Denied,
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
            refused @ Netlink::Kernel(_) => Self::asking("talk to", "IPVS", refused),
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

/// A command that the kernel refused.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RejectedCommand {
    /// The command.
    pub command: Command,
    /// Why not.
    pub errno: Errno,
}

impl RejectedCommand {
    /// Returns the refusal of a command.
    pub fn new(command: Command, errno: Errno) -> Self {
        Self { command, errno }
    }

    /// Tells whether the kernel lacks the scheduler or the persistence engine
    /// of a virtual server.
    pub fn is_scheduler_missing(&self) -> bool {
        let is_server = matches!(self.command, Command::Add(_) | Command::Edit(_));
        is_server && self.errno == Errno::NOENT
    }
}

impl fmt::Display for RejectedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, errno } = self;
        write!(f, "ipvsadm {command}: ")?;
        match command {
            Command::Add(server) | Command::Edit(server) if self.is_scheduler_missing() => {
                write!(f, "load the module ip_vs_{}", server.scheduler)?;
                match server.persistence_engine {
                    None => Ok(()),
                    Some(engine) => write!(f, " or ip_vs_pe_{}", engine.as_str()),
                }
            }
            _ if *errno == Errno::SRCH => f.write_str("no such service"),
            _ => write!(f, "{errno}"),
        }
    }
}

/// Refusals in a row.
struct List<'a>(&'a [RejectedCommand]);

impl List<'_> {
    /// How many are spelled out.
    const SHOWN: usize = 3;
}

impl fmt::Display for List<'_> {
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
