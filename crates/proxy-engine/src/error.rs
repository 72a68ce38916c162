//! Errors of the engine.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;

use vipline_netlink::{ClientError, RejectedRequest};
use vipline_reconcile::Reason;
use vipline_service_model::Family;

/// Errors of the engine, its kernel or its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, a program or a kernel of the caller failed, and a retry may succeed. Holds
    /// the error of the crate that noticed, such as `vipline_conntrack::Error`.
    #[error(transparent)]
    Temporary(Box<dyn StdError + Send + Sync>),
    /// The same, and a retry cannot succeed: a privilege, a program or a kernel feature is
    /// missing.
    #[error(transparent)]
    Permanent(Box<dyn StdError + Send + Sync>),
    /// The engine was created without a kernel.
    #[error("no kernel: this engine only plans")]
    NoKernel,
    /// The bit number of a packet mark is above 31.
    #[error("a packet mark has no bit {0}")]
    NoSuchBit(u8),
    /// The mode does not exist or is not built in.
    #[error("no proxy mode {name:?}; built in: {built_in}")]
    NoSuchMode {
        /// The name.
        name: Box<str>,
        /// The names of the modes that are built in, separated by commas.
        built_in: Box<str>,
    },
    /// The kernel rejected an object that the rules of all Services need.
    #[error("{object}: {reason}")]
    Rejected {
        /// The object, as the mode's native tool names it.
        object: String,
        /// Reason for the rejection.
        reason: Reason,
    },
    /// The kernel does not support the objects that a mode needs regardless of Services.
    #[error("the kernel does not support mode {mode} for {family}: {reasons}")]
    Unsupported {
        /// Name of the mode.
        mode: &'static str,
        /// The family.
        family: Family,
        /// The rejected operations with their reasons, separated by semicolons.
        reasons: String,
    },
    /// The kernel accepted an invalid table, so the check of a mode says nothing.
    #[error("the kernel accepted an invalid table; the check is not possible")]
    ProbeAccepted,
    /// An operation failed.
    #[error("{operation}")]
    Operation {
        /// The operation: a shell command, or words such as `list the addresses of the
        /// interfaces`.
        operation: Box<str>,
        /// The error.
        source: Box<Self>,
    },
    /// A program that a cleanup needs is missing.
    #[error("{name} is not installed")]
    NotInstalled {
        /// Name of the program, without the suffixes `-save` and `-restore`.
        name: Box<str>,
    },
    /// Objects are visible in the kernel, but the program that reads them is missing.
    #[error(
        "{objects}: not checked: {program} is not installed; rules of an earlier kube-proxy \
         there stay and decide about packets"
    )]
    NotChecked {
        /// The objects.
        objects: Box<str>,
        /// Name of the program.
        program: Box<str>,
    },
    /// The kernel rejected a step of a cleanup.
    #[error("{step}: {reason}")]
    NotRemoved {
        /// The step, as a shell command.
        step: Box<str>,
        /// The reason.
        reason: Box<str>,
    },
    /// A line of a saved kernel state is not of the form. Lines are counted from 1.
    #[error("line {0} is no part of a kernel state")]
    StateLine(usize),
    /// The text of a kernel state ends before this line, its last one.
    #[error("the kernel state is incomplete: line {0} is missing")]
    IncompleteState(usize),
}

impl Error {
    /// Creates an error of a kernel of the caller, which a retry may resolve.
    ///
    /// ```
    /// use proxy_engine::Error;
    ///
    /// let error = Error::custom("the switch is offline");
    /// assert_eq!(error.to_string(), "the switch is offline");
    /// assert!(!error.is_permanent());
    /// assert!(Error::custom_permanent("no such switch").is_permanent());
    /// ```
    pub fn custom(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Temporary(source.into())
    }

    /// Creates an error of a kernel of the caller, which a retry cannot resolve.
    pub fn custom_permanent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Permanent(source.into())
    }

    /// Returns a function that adds an operation to an error, for `map_err`.
    pub fn of<E: Into<Self>>(operation: impl std::fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Operation {
            operation: operation.to_string().into(),
            source: Box::new(error.into()),
        }
    }

    /// Returns whether a retry cannot succeed, because a privilege, a program or a kernel
    /// feature is missing, or an argument is invalid.
    ///
    /// `false` for all other errors, also if their cause is unknown. A caller may exit if
    /// the first sync fails with a permanent error, because later syncs fail, too.
    ///
    /// ```
    /// use proxy_engine::{Error, Mark, conntrack};
    ///
    /// assert!(Error::from(conntrack::Error::Denied).is_permanent());
    /// assert!(Mark::from_bit(32).unwrap_err().is_permanent());
    /// assert!(!Error::from(conntrack::Error::Overrun).is_permanent());
    /// ```
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Permanent(_)
            | Self::NoKernel
            | Self::NoSuchBit(_)
            | Self::NoSuchMode { .. }
            | Self::Unsupported { .. }
            | Self::NotInstalled { .. }
            | Self::StateLine(_)
            | Self::IncompleteState(_) => true,
            Self::Operation { source, .. } => source.is_permanent(),
            Self::Temporary(_)
            | Self::Rejected { .. }
            | Self::ProbeAccepted
            | Self::NotChecked { .. }
            | Self::NotRemoved { .. } => false,
        }
    }

    /// Returns the error of a client or of a kernel of the caller, if it has this type.
    ///
    /// ```
    /// use proxy_engine::{Error, conntrack};
    ///
    /// let error = Error::from(conntrack::Error::Denied);
    /// assert!(matches!(error.downcast_ref(), Some(conntrack::Error::Denied)));
    /// ```
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        match self {
            Self::Temporary(source) | Self::Permanent(source) => source.downcast_ref(),
            _ => None,
        }
    }
}

/// Errors of the netlink clients of all crates.
///
/// Permanent if a privilege or what the client needs of the kernel is missing. A single object
/// that the kernel does not support is not: other objects work.
impl<R: RejectedRequest + Send + Sync + 'static> From<ClientError<R>> for Error {
    fn from(error: ClientError<R>) -> Self {
        match error {
            ClientError::Denied | ClientError::Unsupported { .. } => Self::custom_permanent(error),
            _ => Self::custom(error),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::custom(error)
    }
}

impl From<Box<dyn StdError + Send + Sync>> for Error {
    fn from(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self::custom(error)
    }
}

impl From<Infallible> for Error {
    fn from(error: Infallible) -> Self {
        match error {}
    }
}

#[cfg(feature = "memory")]
impl From<vipline_reconcile::MemoryError> for Error {
    fn from(error: vipline_reconcile::MemoryError) -> Self {
        Self::custom(format!("in-memory kernel: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use vipline_conntrack as conntrack;
    use vipline_netlink::{Errno, Error as Netlink};

    use super::*;

    #[test]
    fn missing_privileges_and_kernel_features_are_permanent() {
        let errors: [Error; 6] = [
            conntrack::Error::Denied.into(),
            conntrack::Error::unsupported(None).into(),
            conntrack::Error::unsupported(Some(Errno::OPNOTSUPP)).into(),
            Error::of("set timeouts")(conntrack::Error::Denied),
            Error::custom_permanent("no such switch"),
            Error::NoKernel,
        ];
        for error in errors {
            assert!(error.is_permanent(), "{error}");
        }
    }

    #[test]
    fn errors_that_may_pass_are_not_permanent() {
        let errors: [Error; 4] = [
            conntrack::Error::from(Netlink::Timeout).into(),
            conntrack::Error::from(Netlink::Overrun).into(),
            Error::custom("the switch is offline"),
            Error::ProbeAccepted,
        ];
        for error in errors {
            assert!(!error.is_permanent(), "{error}");
        }
    }
}
