//! ip_set errors.

use std::fmt;

use vipline_netlink::{
    ClientError, Condition, Errno, Feature, KernelError, Rejected, RejectedRequest,
};

use crate::{Command, Reason};

/// An ip_set error.
///
/// [`Reason::of`] returns the reason of a rejection. Commands are executed up to the first
/// rejected one, so [`Error::Rejected`](ClientError::Rejected) has one command, and as many are
/// done as precede it.
pub type Error = ClientError<CommandAt>;

/// A rejected command.
pub type RejectedCommand = Rejected<CommandAt>;

/// A command at its place among those of a commit, and why the kernel rejected it.
///
/// Displays like `command 2, add a 10.0.0.1`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CommandAt {
    /// Index of the command, from 0.
    pub index: usize,
    /// The command.
    pub command: Command,
    /// Reason for the rejection: the meaning of the error number, which depends on the type of
    /// the set.
    pub reason: Reason,
}

impl CommandAt {
    /// Creates a command at a place.
    pub fn new(index: usize, command: Command, reason: Reason) -> Self {
        Self {
            index,
            command,
            reason,
        }
    }
}

impl fmt::Display for CommandAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {}, {}", self.index + 1, self.command)
    }
}

impl RejectedRequest for CommandAt {
    const FEATURE: Feature = Feature::new("ip_set")
        .with_module("ip_set")
        .with_option("CONFIG_IP_SET");

    fn condition(request: Option<&Self>, errno: Errno) -> Option<Condition> {
        match request.map_or_else(|| Reason::of_query(errno), |it| it.reason) {
            Reason::UnknownType => Some(Condition::Unsupported),
            reason => Condition::of(reason.errno()?),
        }
    }

    fn fmt_rejected(rejected: &Rejected<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, message) = (&rejected.request, rejected.message.as_deref());
        write!(f, "{request}: ")?;
        fmt_reason(request.reason, message, f)
    }

    fn fmt_reason(error: &KernelError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_reason(Reason::of_query(error.errno), error.message.as_deref(), f)
    }
}

/// Writes a reason, and the message of the extended ACK in parentheses.
fn fmt_reason(reason: Reason, message: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match message {
        Some(message) => write!(f, "{reason} ({message})"),
        None => write!(f, "{reason}"),
    }
}

/// Returns the error of a query that the kernel rejects in fact, by an empty reply.
#[cfg(target_os = "linux")]
pub(crate) fn query_error(
    operation: &'static str,
    object: impl fmt::Display,
    errno: Errno,
) -> Error {
    let ack = vipline_netlink::message::Ack::default();
    Error::from_request(operation, object, KernelError::new(0, errno, ack).into())
}

/// Returns the error of a command that the kernel rejected after others.
#[cfg(target_os = "linux")]
pub(crate) fn rejected(command: CommandAt, error: KernelError) -> Error {
    let done = command.index;
    Error::Rejected {
        rejected: vec![Rejected::from_kernel(command, error)],
        more: Some(0),
        done,
    }
}

/// Converts a rejected query of a command to a rejection of the command.
#[cfg(target_os = "linux")]
pub(crate) fn command_error(error: Error, index: usize, command: Option<&Command>) -> Error {
    let Some(command) = command.cloned() else {
        return error;
    };
    match error {
        Error::Kernel { error, .. } => {
            let reason = Reason::of_query(error.errno);
            rejected(CommandAt::new(index, command, reason), *error)
        }
        Error::Rejected { rejected, more, .. } => {
            let convert = |one: RejectedCommand| {
                let command = command.clone();
                one.map(|CommandAt { reason, .. }| CommandAt::new(index, command, reason))
            };
            Error::Rejected {
                rejected: rejected.into_iter().map(convert).collect(),
                more,
                done: index,
            }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_command_decides_what_its_error_number_means() {
        let error = |reason| {
            let command = Command::Flush(crate::Name::new("a").unwrap());
            let command = CommandAt::new(2, command, reason);
            Error::from_rejected(vec![Rejected::new(command, Errno(4103))])
        };
        assert!(error(Reason::Missing).is_not_found());
        assert!(error(Reason::Exists).is_already_exists());
        assert!(error(Reason::InUse).is_busy());
        assert!(error(Reason::UnknownType).is_unsupported());
        let full = error(Reason::Full);
        assert!(!full.is_already_exists() && !full.is_unsupported());
        assert_eq!(full.to_string(), "command 3, flush a: the set is full");
        assert_eq!(full.errno(), Some(Errno(4103)));
        assert_eq!(Reason::of(&full), Some(Reason::Full));
    }

    #[test]
    fn the_error_numbers_of_ip_set_have_words_in_queries() {
        let mut ack = vipline_netlink::message::Ack::default();
        ack.message = Some("no type");
        let error = KernelError::new(0, Errno(4098), ack);
        let error = Error::from_request("revisions of", "hash:none", error.into());
        assert_eq!(
            error.to_string(),
            "revisions of hash:none: the kernel does not support the type, its revision or its \
             family (no type)"
        );
        assert_eq!(Reason::of(&error), Some(Reason::UnknownType));
        let denied = KernelError::new(0, Errno::PERM, vipline_netlink::message::Ack::default());
        assert!(Error::from_request("list", "a", denied.into()).is_denied());
    }
}
