//! What goes wrong with nf_tables.

use std::{fmt, io};

use thiserror::Error;
use vipline_netlink::{DecodeError, Errno};

use crate::Operation;

/// Why a dump or a commit failed.
///
/// [`committed`](Self::committed) tells what a failed commit left behind.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction is longer than the socket can send at once.
    #[error(
        "a transaction of {bytes} bytes is longer than the {limit} bytes the socket can send at once"
    )]
    BatchTooLarge {
        /// The length of the transaction.
        bytes: usize,
        /// The greatest length that can be sent.
        limit: usize,
    },
    /// The kernel's bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The program may not do this.
    #[error("operation not permitted: CAP_NET_ADMIN is missing")]
    Denied,
    /// libnftnl does not support a part of the transaction.
    #[cfg(feature = "nftnl")]
    #[error("libnftnl does not support {feature}")]
    LibnftnlUnsupported {
        /// The part.
        feature: Box<str>,
    },
    /// The rules changed under every attempt to read them.
    #[error("the rules changed during each of {attempts} attempts to read them")]
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
    #[error("{operation} {object}: {}", Words { errno: *errno, message })]
    Kernel {
        /// What was asked for, such as `list rules`.
        operation: &'static str,
        /// The table or set it was asked about, as `nft` names it.
        object: Box<str>,
        /// Why not.
        errno: Errno,
        /// What the kernel has to say about it, in its own words.
        message: Option<Box<str>>,
    },
    /// Answers were lost because the socket's buffer was full.
    #[error("answers of the kernel were lost, so its state is unknown")]
    Overrun,
    /// The kernel refused a transaction, and did nothing of it.
    #[error("{}", Listed { rejected, more: *more })]
    Rejected {
        /// What it refused, in the order of the transaction, never empty.
        rejected: Vec<RejectedOperation>,
        /// How many operations more it refused, at least.
        more: usize,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not answer in time")]
    Timeout,
    /// The kernel cannot do this.
    #[error("the kernel has no nf_tables: {option} is off, or its module is missing")]
    Unsupported {
        /// The option of the kernel's configuration that is off.
        option: &'static str,
        /// The error number that told so.
        errno: Errno,
    },
}

impl Error {
    /// Tells what a failed commit left behind.
    pub fn committed(&self) -> Committed {
        match self {
            Self::BatchTooLarge { .. }
            | Self::Denied
            | Self::Rejected { .. }
            | Self::Unsupported { .. } => Committed::No,
            #[cfg(feature = "nftnl")]
            Self::LibnftnlUnsupported { .. } => Committed::No,
            _ => Committed::Unknown,
        }
    }

    /// Tells whether all that was refused was refused for lack of an object.
    pub fn is_not_found(&self) -> bool {
        self.is_only(Errno::NOENT)
    }

    /// Tells whether all that was refused was refused because it exists.
    pub fn is_already_exists(&self) -> bool {
        self.is_only(Errno::EXIST)
    }

    /// Tells whether all that was refused was refused because it is in use.
    pub fn is_busy(&self) -> bool {
        self.is_only(Errno::BUSY)
    }

    /// Returns the error number; of several refusals, that of the first.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Io { source, .. } => source.raw_os_error().map(Errno),
            Self::Rejected { rejected, .. } => rejected.first().map(|first| first.errno),
            Self::Kernel { errno, .. } | Self::Unsupported { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Tells whether there is nothing but refusals with this number.
    fn is_only(&self, errno: Errno) -> bool {
        match self {
            Self::Rejected { rejected, more: 0 } => rejected.iter().all(|one| one.errno == errno),
            Self::Rejected { .. } => false,
            _ => self.errno() == Some(errno),
        }
    }

    /// Names what a question to the kernel was about.
    pub(crate) fn asking(
        operation: &'static str,
        object: String,
        error: vipline_netlink::Error,
    ) -> Self {
        match error {
            vipline_netlink::Error::Kernel(refusal) => match refusal.errno {
                Errno::PERM => Self::Denied,
                errno => Self::Kernel {
                    operation,
                    object: object.into(),
                    errno,
                    message: refusal.text,
                },
            },
            other => other.into(),
        }
    }

    /// Says what the refusal of a message that cannot be wrong means.
    ///
    /// Without the subsystem the kernel calls a request invalid, and a batch
    /// not supported.
    pub(crate) fn of_subsystem(self) -> Self {
        match self {
            Self::Kernel { errno, .. } if matches!(errno, Errno::INVAL | Errno::OPNOTSUPP) => {
                Self::unsupported(errno)
            }
            other => other,
        }
    }

    /// Says that the kernel has no nf_tables.
    pub(crate) fn unsupported(errno: Errno) -> Self {
        Self::Unsupported {
            option: "CONFIG_NF_TABLES",
            errno,
        }
    }
}

impl From<vipline_netlink::Error> for Error {
    fn from(error: vipline_netlink::Error) -> Self {
        use vipline_netlink::Error as Netlink;
        match error {
            Netlink::BatchTooLarge { bytes, limit } => Self::BatchTooLarge { bytes, limit },
            Netlink::Decode(error) => Self::Decode(error),
            Netlink::Io { operation, source } => match source.raw_os_error().map(Errno) {
                Some(errno @ (Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT)) => {
                    Self::unsupported(errno)
                }
                _ => Self::Io { operation, source },
            },
            refused @ Netlink::Kernel(_) => Self::asking("ask for", "rules".to_owned(), refused),
            Netlink::Overrun => Self::Overrun,
            Netlink::Truncated { bytes, .. } => {
                Self::Decode(DecodeError::new("datagram of a bounded size", 0, bytes))
            }
            Netlink::Timeout => Self::Timeout,
            other => Self::Io {
                operation: "talk to the kernel",
                source: io::Error::other(other),
            },
        }
    }
}

/// One operation of a transaction that the kernel refused.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RejectedOperation {
    /// What was to be done, with the object it was to be done to.
    pub operation: Operation,
    /// Why not.
    pub errno: Errno,
    /// What the kernel has to say about it, in its own words.
    pub message: Option<Box<str>>,
}

impl RejectedOperation {
    /// Returns the refusal of an operation.
    pub fn new(operation: Operation, errno: Errno, message: Option<Box<str>>) -> Self {
        Self {
            operation,
            errno,
            message,
        }
    }
}

/// What a failed commit left behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Committed {
    /// Nothing of the transaction is done.
    No,
    /// All of the transaction is done, or nothing: a dump will tell.
    Unknown,
}

impl fmt::Display for RejectedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            errno,
            message,
        } = self;
        write!(
            f,
            "{operation}: {}",
            Words {
                errno: *errno,
                message
            }
        )
    }
}

/// The words of the system, and those of the kernel if it has any.
struct Words<'a> {
    errno: Errno,
    message: &'a Option<Box<str>>,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message {
            Some(message) => write!(f, "{} ({message})", self.errno),
            None => write!(f, "{}", self.errno),
        }
    }
}

/// Refusals in a row.
struct Listed<'a> {
    rejected: &'a [RejectedOperation],
    more: usize,
}

impl Listed<'_> {
    /// How many are spelled out.
    const SHOWN: usize = 3;
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, one) in self.rejected.iter().take(Self::SHOWN).enumerate() {
            if place > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{one}")?;
        }
        match self.rejected.len().saturating_sub(Self::SHOWN) + self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::Answer;
    use vipline_netlink::{Error as Netlink, Refusal};

    use super::*;
    use crate::{Action, Subject};

    fn kernel(errno: Errno) -> Netlink {
        Refusal::new(1, errno, Answer::default()).into()
    }

    fn refused(errno: Errno, message: Option<&str>) -> RejectedOperation {
        let (action, subject) = (Action::Commit, Subject::Transaction);
        RejectedOperation {
            operation: Operation { action, subject },
            errno,
            message: message.map(Box::from),
        }
    }

    #[test]
    fn a_kernel_without_nf_tables_is_told_by_every_errno_it_has_for_it() {
        let socket = Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(93),
        };
        let request = |errno| Error::asking("list table", "ip t".to_owned(), kernel(errno));
        for error in [
            Error::from(socket),
            request(Errno::INVAL).of_subsystem(),
            request(Errno::OPNOTSUPP).of_subsystem(),
        ] {
            assert_eq!(error.committed(), Committed::No);
            assert!(error.to_string().contains("CONFIG_NF_TABLES"), "{error}");
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        }
    }

    #[test]
    fn another_failure_to_open_the_socket_is_that_of_the_machine() {
        let error = Error::from(Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(24),
        });
        assert_eq!(error.to_string(), "open a netlink socket");
        assert_eq!(error.errno(), Some(Errno(24)));
    }

    #[test]
    fn a_missing_capability_is_named() {
        let error = Error::asking("list table", "ip t".to_owned(), kernel(Errno::PERM));
        assert_eq!(
            error.to_string(),
            "operation not permitted: CAP_NET_ADMIN is missing"
        );
        assert_eq!(error.errno(), Some(Errno::PERM));
    }

    #[test]
    fn a_question_without_an_answer_names_what_it_was_about() {
        let error = Error::asking("list table", "ip t".to_owned(), kernel(Errno::NOENT));
        assert_eq!(
            error.to_string(),
            "list table ip t: no such file or directory"
        );
        assert!(error.is_not_found());
    }

    #[test]
    fn lost_answers_leave_it_unknown_whether_it_was_committed() {
        for error in [Netlink::Overrun, Netlink::Timeout] {
            assert_eq!(Error::from(error).committed(), Committed::Unknown);
        }
        let error = Error::from(Netlink::BatchTooLarge { bytes: 9, limit: 5 });
        assert_eq!(error.committed(), Committed::No);
    }

    #[test]
    fn a_few_refusals_are_spelled_out_and_the_rest_is_counted() {
        let one = refused(Errno::BUSY, Some("in use by a rule"));
        let error = |count, more| Error::Rejected {
            rejected: vec![one.clone(); count],
            more,
        };
        let text = "commit transaction: device or resource busy (in use by a rule)";
        assert_eq!(error(1, 0).to_string(), text);
        assert_eq!(error(2, 0).to_string(), format!("{text}; {text}"));
        assert_eq!(
            error(4, 10).to_string(),
            format!("{text}; {text}; {text}; and 11 more")
        );
    }

    #[test]
    fn a_predicate_holds_only_if_it_does_for_every_refusal() {
        let error = |errnos: &[Errno], more| Error::Rejected {
            rejected: errnos.iter().map(|errno| refused(*errno, None)).collect(),
            more,
        };
        assert!(error(&[Errno::NOENT, Errno::NOENT], 0).is_not_found());
        assert!(!error(&[Errno::NOENT, Errno::BUSY], 0).is_not_found());
        assert!(!error(&[Errno::NOENT], 1).is_not_found());
        assert!(error(&[Errno::EXIST], 0).is_already_exists());
        assert!(error(&[Errno::BUSY], 0).is_busy());
    }
}
