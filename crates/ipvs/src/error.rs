//! IPVS errors.

use std::fmt;

use vipline_netlink::{ClientError, Condition, Errno, Feature, Rejected, RejectedRequest};

use crate::Command;

/// An IPVS error.
///
/// The kernel has two error numbers for a missing server, and
/// [`is_not_found`](ClientError::is_not_found) is true for both: `ESRCH` for a service and
/// `ENOENT` for a real server. `ENOENT` for a service means a missing scheduler or persistence
/// engine ([`Command::is_scheduler_missing`]), which
/// [`is_unsupported`](ClientError::is_unsupported).
pub type Error = ClientError<Command>;

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
    const FEATURE: Feature = Feature::new("IPVS").with_module("ip_vs");

    fn condition(command: Option<&Self>, errno: Errno) -> Option<Condition> {
        match errno {
            _ if command.is_some_and(|command| command.is_scheduler_missing(errno)) => {
                Some(Condition::Unsupported)
            }
            Errno::SRCH => Some(Condition::NotFound),
            _ => Condition::of(errno),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(command: &str, errno: Errno) -> Error {
        let command = command.parse().unwrap();
        Error::from_rejected(vec![Rejected::new(command, errno)])
    }

    #[test]
    fn a_missing_scheduler_is_no_missing_server() {
        let error = rejected("-A -t 10.0.0.1:80 -s nosuch", Errno::NOENT);
        assert!(error.is_unsupported() && !error.is_not_found(), "{error}");
        for (command, errno) in [
            ("-E -t 10.0.0.1:80 -s rr", Errno::SRCH),
            ("-d -t 10.0.0.1:80 -r 10.1.0.1", Errno::NOENT),
        ] {
            let error = rejected(command, errno);
            assert!(error.is_not_found() && !error.is_unsupported(), "{error}");
        }
    }
}
