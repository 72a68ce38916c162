//! ip_set errors.

use thiserror::Error;
use vipline_netlink::{Errno, KernelError};

use crate::{Command, Name, Reason};

/// An ip_set error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The capability `CAP_NET_ADMIN` is missing.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// The sets changed during every attempt to dump them.
    #[error("sets changed during each of {attempts} attempts to dump them")]
    Interrupted {
        /// Number of attempts.
        attempts: usize,
    },
    /// The kernel rejected a query: a request that changes nothing.
    #[error("{operation} {object}: {reason}{}", detail(kernel.as_deref()))]
    Kernel {
        /// The query, such as `list`.
        operation: &'static str,
        /// The requested set, entry or type.
        object: Box<str>,
        /// Reason for the rejection.
        reason: Reason,
        /// The error message of the kernel: error number and extended ACK. `None` if a
        /// reply has no object.
        kernel: Option<Box<KernelError>>,
    },
    /// The exchange of messages with the kernel failed; commands may have been
    /// applied.
    #[error(transparent)]
    Netlink(vipline_netlink::Error),
    /// Replies were lost because the receive buffer was full; commands may have been
    /// applied.
    #[error("the receive buffer was full and replies were lost: the state of the sets is unknown")]
    Overrun,
    /// The kernel rejected a command.
    ///
    /// The commands before it are applied, those after it are not.
    #[error("command {}, {command}: {reason}{}", index + 1, detail(kernel.as_deref()))]
    Rejected {
        /// Index of the command, from 0.
        index: usize,
        /// The command in `ipset restore` syntax, with set and entry.
        command: Box<str>,
        /// Name of the set; `None` if the command applies to all sets.
        set: Option<Name>,
        /// Reason for the rejection.
        reason: Reason,
        /// The error message of the kernel: error number and extended ACK. `None` if the
        /// error was made without one.
        ///
        /// [`Reason::error_name`] returns the name of the error number.
        kernel: Option<Box<KernelError>>,
    },
    /// The kernel does not support ip_set.
    #[error(
        "the kernel does not support ip_set: CONFIG_IP_SET is off, or the module is missing or too old"
    )]
    Unsupported {
        /// Error number from the kernel, if any.
        errno: Option<Errno>,
    },
}

/// Returns the text of the extended ACK in parentheses, if the kernel sent one.
fn detail(kernel: Option<&KernelError>) -> String {
    match kernel.and_then(|kernel| kernel.message.as_deref()) {
        Some(message) => format!(" ({message})"),
        None => String::new(),
    }
}

impl Error {
    /// Returns the error message of the kernel: error number and extended ACK.
    pub fn kernel_error(&self) -> Option<&KernelError> {
        match self {
            Self::Kernel { kernel, .. } | Self::Rejected { kernel, .. } => kernel.as_deref(),
            _ => None,
        }
    }

    /// Returns the reason, if the kernel rejected a query or command.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Kernel { reason, .. } | Self::Rejected { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Returns whether a set or entry does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason() == Some(Reason::Missing)
    }

    /// Returns whether a set or entry already exists.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some(Reason::Exists)
    }

    /// Returns whether a rule or list uses the set.
    pub fn is_busy(&self) -> bool {
        self.reason() == Some(Reason::InUse)
    }

    /// Returns the error number, if the error has one.
    ///
    /// [`Reason::Exists`], [`Reason::Missing`] and [`Reason::InUse`] correspond to
    /// `EEXIST`, `ENOENT` and `EBUSY`. Other numbers of ip_set are not returned.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Netlink(error) => error.errno(),
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
}

impl From<vipline_netlink::Error> for Error {
    fn from(error: vipline_netlink::Error) -> Self {
        match error {
            vipline_netlink::Error::Overrun => Self::Overrun,
            _ => match error.missing_protocol() {
                errno @ Some(_) => Self::Unsupported { errno },
                None => Self::Netlink(error),
            },
        }
    }
}

/// A rejected command of [`Client::commit_each`](crate::Client::commit_each).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RejectedCommand {
    /// Index of the command, from 0.
    pub index: usize,
    /// The rejected command.
    pub command: Command,
    /// Reason for the rejection.
    pub reason: Reason,
    /// The error message of the kernel: error number and extended ACK.
    pub kernel: Option<Box<KernelError>>,
}

impl RejectedCommand {
    /// Creates a rejected command.
    pub fn new(index: usize, command: Command, reason: Reason) -> Self {
        Self {
            index,
            command,
            reason,
            kernel: None,
        }
    }

    /// Returns the error number, as [`Error::errno`] does.
    pub fn errno(&self) -> Option<Errno> {
        Error::from(self.clone()).errno()
    }
}

impl From<RejectedCommand> for Error {
    fn from(rejected: RejectedCommand) -> Self {
        Self::Rejected {
            index: rejected.index,
            command: rejected.command.to_string().into(),
            set: rejected.command.set().cloned(),
            reason: rejected.reason,
            kernel: rejected.kernel,
        }
    }
}

/// Adds the operation and its object to an error.
pub(crate) fn query_error(
    operation: &'static str,
    object: impl ToString,
    error: vipline_netlink::Error,
) -> Error {
    match error {
        vipline_netlink::Error::Kernel(rejection) if rejection.errno == Errno::PERM => {
            Error::Denied
        }
        vipline_netlink::Error::Kernel(rejection) => {
            let reason = Reason::from_errno(rejection.errno, None, true);
            kernel_error(operation, object, reason, Some(rejection))
        }
        other => other.into(),
    }
}

/// Creates the error of a query.
pub(crate) fn kernel_error(
    operation: &'static str,
    object: impl ToString,
    reason: Reason,
    kernel: Option<KernelError>,
) -> Error {
    Error::Kernel {
        operation,
        object: object.to_string().into(),
        reason,
        kernel: kernel.map(Box::new),
    }
}

/// Converts a rejected query of a command to a rejection of the command.
pub(crate) fn command_error(error: Error, index: usize, command: Option<&Command>) -> Error {
    match (error, command) {
        (
            Error::Kernel { reason, kernel, .. } | Error::Rejected { reason, kernel, .. },
            Some(command),
        ) => Error::Rejected {
            index,
            command: command.to_string().into(),
            set: command.set().cloned(),
            reason,
            kernel,
        },
        (error, _) => error,
    }
}
