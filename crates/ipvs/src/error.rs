//! IPVS errors.

use std::{fmt, io};

use thiserror::Error;
use vipline_netlink::{Errno, Rejected, RejectedList, RejectedRequest};

use crate::{Command, ParseError};

/// An IPVS error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection table has a line that could not be parsed.
    #[error("connection table: {0}")]
    ConnectionTable(#[from] ParseError),
    /// The process lacks `CAP_NET_ADMIN`.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The connection table could not be read.
    #[error("cannot read the connection table")]
    Io(#[source] io::Error),
    /// The kernel rejected a request other than a command.
    #[error("{operation} {object}: {errno}")]
    Kernel {
        /// The request, such as `list real servers of`.
        operation: &'static str,
        /// Object of the request, in `ipvsadm` syntax.
        object: Box<str>,
        /// Error number.
        errno: Errno,
    },
    /// The exchange of messages with the kernel failed; commands may have been
    /// applied.
    #[error(transparent)]
    Netlink(vipline_netlink::Error),
    /// Replies were lost because the receive buffer was full; commands may have been
    /// applied.
    #[error("the receive buffer was full and replies were lost: the state of IPVS is unknown")]
    Overrun,
    /// The kernel rejected commands and applied all others.
    #[error("{}", RejectedList::new(rejected))]
    Rejected {
        /// The rejected commands in their order; never empty.
        rejected: Vec<RejectedCommand>,
    },
    /// The kernel lacks IPVS, or the module is not loaded.
    #[error("the kernel lacks IPVS: load the module {module}")]
    Unsupported {
        /// The missing kernel module.
        module: &'static str,
    },
}

impl Error {
    /// Returns whether all rejected commands, or the rejected request, failed because a
    /// server does not exist.
    ///
    /// The kernel has two error numbers for a missing server: `ESRCH` for a service
    /// and `ENOENT` for a real server.
    pub fn is_not_found(&self) -> bool {
        let is_absent = |errno| matches!(errno, Errno::SRCH | Errno::NOENT);
        self.all(|command, errno| is_absent(errno) && !command.is_scheduler_missing(errno))
            || matches!(self, Self::Kernel { errno, .. } if is_absent(*errno))
    }

    /// Returns whether all rejected commands, or the rejected request, failed because the
    /// object already exists (`EEXIST`).
    pub fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    /// Returns whether all rejected commands, or the rejected request, failed because the
    /// object is in use (`EBUSY`).
    pub fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    /// Returns whether all rejected commands have a weight or threshold out of range
    /// (`ERANGE`).
    pub fn is_out_of_range(&self) -> bool {
        self.is_only(Errno::RANGE)
    }

    /// Returns whether all rejected commands failed because the kernel lacks the
    /// scheduler or persistence engine.
    pub fn is_scheduler_missing(&self) -> bool {
        self.all(Command::is_scheduler_missing)
    }

    /// Returns the error number. For several rejected commands, returns that of the
    /// first.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Netlink(error) => error.errno(),
            Self::Rejected { rejected } => rejected.first().map(|first| first.errno),
            Self::Unsupported { .. } => Some(Errno::NOENT),
            _ => None,
        }
    }

    /// Returns whether all rejected commands, or the rejected request, have this
    /// error number.
    fn is_only(&self, errno: Errno) -> bool {
        self.all(|_, one| one == errno)
            || matches!(self, Self::Kernel { errno: one, .. } if *one == errno)
    }

    /// Returns whether the error is a rejection and all rejected commands meet a
    /// condition.
    fn all(&self, is: impl Fn(&Command, Errno) -> bool) -> bool {
        match self {
            Self::Rejected { rejected } => rejected.iter().all(|one| is(&one.request, one.errno)),
            _ => false,
        }
    }

    /// Adds the operation and its object to a netlink error.
    pub(crate) fn from_netlink(
        operation: &'static str,
        object: impl fmt::Display,
        error: vipline_netlink::Error,
    ) -> Self {
        match error {
            vipline_netlink::Error::Kernel(rejection) if rejection.errno == Errno::PERM => {
                Self::Denied
            }
            vipline_netlink::Error::Kernel(rejection) => Self::Kernel {
                operation,
                object: object.to_string().into(),
                errno: rejection.errno,
            },
            other => other.into(),
        }
    }
}

impl From<vipline_netlink::Error> for Error {
    fn from(error: vipline_netlink::Error) -> Self {
        match error {
            vipline_netlink::Error::Overrun => Self::Overrun,
            other => Self::Netlink(other),
        }
    }
}

/// A rejected command.
pub type RejectedCommand = Rejected<Command>;

impl Command {
    /// Returns whether the kernel lacks the scheduler or persistence engine of a virtual
    /// server, for a command that the kernel rejected with `errno`.
    pub fn is_scheduler_missing(&self, errno: Errno) -> bool {
        matches!(self, Self::Add(_) | Self::Edit(_)) && errno == Errno::NOENT
    }
}

impl RejectedRequest for Command {
    fn fmt_rejected(rejected: &RejectedCommand, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, errno) = (&rejected.request, rejected.errno);
        write!(f, "ipvsadm {command}: ")?;
        match command {
            Self::Add(server) | Self::Edit(server) if command.is_scheduler_missing(errno) => {
                write!(f, "load the module ip_vs_{}", server.scheduler)?;
                match server.persistence_engine {
                    None => Ok(()),
                    Some(engine) => write!(f, " or ip_vs_pe_{}", engine.as_str()),
                }
            }
            _ if errno == Errno::SRCH => f.write_str("no such service"),
            _ => write!(f, "{}", rejected.reason()),
        }
    }
}
