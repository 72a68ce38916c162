//! What goes wrong with sets.

use std::io;

use thiserror::Error;
use vipline_netlink::{DecodeError, Errno};

use crate::{Command, Name, Reason};

/// Why sets could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The capability `CAP_NET_ADMIN` is missing.
    #[error("the kernel lets nobody see or change sets without CAP_NET_ADMIN")]
    Denied,
    /// The sets changed under every attempt to read them.
    #[error("sets changed under each of {attempts} attempts to read them")]
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
    /// The kernel refused to tell something.
    #[error("{operation} {object}: {reason}")]
    Kernel {
        /// What was asked for, such as `list`.
        operation: &'static str,
        /// The set, entry or type it was asked about.
        object: Box<str>,
        /// Why not.
        reason: Reason,
    },
    /// Answers were lost because the socket's buffer was full.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel refused a command.
    ///
    /// The commands before it are done, those after it are not.
    #[error("command {}, {command}: {reason}", index + 1)]
    Rejected {
        /// Which one it is, counted from 0.
        index: usize,
        /// The command, as `ipset restore` reads it, with set and entry.
        command: Box<str>,
        /// The set it is about.
        set: Name,
        /// Why.
        reason: Reason,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not answer in time")]
    Timeout,
    /// The kernel cannot do this.
    #[error("the kernel has no sets: CONFIG_IP_SET is off, its module is missing or too old")]
    Unsupported {
        /// The error number that told so, if one did.
        errno: Option<Errno>,
    },
}

impl Error {
    /// Returns the reason of the kernel, if it refused.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Kernel { reason, .. } | Self::Rejected { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Tells whether a set or an entry was refused for not being there.
    pub fn is_not_found(&self) -> bool {
        self.reason() == Some(Reason::Missing)
    }

    /// Tells whether a set or an entry was refused for being there already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some(Reason::Exists)
    }

    /// Tells whether it was refused because a rule or a list uses the set.
    pub fn is_busy(&self) -> bool {
        self.reason() == Some(Reason::InUse)
    }

    /// Returns the error number of the system, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Unsupported { errno } => *errno,
            _ => match self.reason()? {
                Reason::Errno(errno) => Some(errno),
                Reason::Exists => Some(Errno::EXIST),
                Reason::Missing => Some(Errno::NOENT),
                Reason::InUse => Some(Errno::BUSY),
                _ => None,
            },
        }
    }

    /// Says what an error of netlink means that is no refusal.
    pub(crate) fn from_netlink(error: vipline_netlink::Error) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::Decode(error) => Self::Decode(error),
            Netlink::Io { operation, source } => match source.raw_os_error().map(Errno) {
                errno @ Some(Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) => {
                    Self::Unsupported { errno }
                }
                _ => Self::Io { operation, source },
            },
            Netlink::Overrun => Self::Overrun,
            Netlink::Timeout => Self::Timeout,
            other => Self::Io {
                operation: "talk to the kernel",
                source: io::Error::other(other),
            },
        }
    }
}

/// A command that the kernel refused, while it did others.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RejectedCommand {
    /// Position of the command, from 0.
    pub index: usize,
    /// The command.
    pub command: Command,
    /// Why.
    pub reason: Reason,
}

impl RejectedCommand {
    /// Returns the refusal of a command.
    pub fn new(index: usize, command: Command, reason: Reason) -> Self {
        Self {
            index,
            command,
            reason,
        }
    }

    /// Returns the error number of the system, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        Error::from(self.clone()).errno()
    }
}

impl From<RejectedCommand> for Error {
    fn from(refused: RejectedCommand) -> Self {
        Self::Rejected {
            index: refused.index,
            command: refused.command.to_string().into(),
            set: refused.command.set().clone(),
            reason: refused.reason,
        }
    }
}
