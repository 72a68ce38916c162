//! The error of all clients.

use std::error::Error as StdError;
use std::fmt;

use crate::readable::readable_debug;
use crate::{
    Condition, DecodeError, Errno, Error, Feature, KernelError, Rejected, RejectedList,
    RejectedRequest,
};

/// An error of a client, whose requests have type `R`.
///
/// The crates for nf_tables, ipset, IPVS, rtnetlink, conntrack and nfacct have this error
/// with their own requests, so that a program treats all of them alike:
///
/// ```
/// use vipline_netlink::{ClientError, RejectedRequest};
///
/// /// Returns whether another attempt can succeed.
/// fn is_temporary<R: RejectedRequest>(error: &ClientError<R>) -> bool {
///     matches!(
///         error,
///         ClientError::Interrupted { .. } | ClientError::Overrun | ClientError::Outdated
///     )
/// }
/// ```
///
/// `Debug` writes the same sentence as `Display` with the sources, because that is what
/// `fn main() -> Result<(), Box<dyn Error>>` prints. The alternate form `{:#?}` has all
/// fields.
#[non_exhaustive]
pub enum ClientError<R> {
    /// `CAP_NET_ADMIN` is missing.
    Denied,
    /// Changes of other programs interrupted every attempt.
    Interrupted {
        /// Operation, such as `list`.
        operation: &'static str,
        /// Object of the operation, such as `links`.
        object: Box<str>,
        /// Number of attempts.
        attempts: usize,
    },
    /// The kernel rejected a request other than those of [`Rejected`](Self::Rejected).
    Kernel {
        /// Operation, such as `list rules`.
        operation: &'static str,
        /// Object of the operation.
        object: Box<str>,
        /// Error of the kernel: error number and extended ACK.
        error: Box<KernelError>,
    },
    /// The kernel does not know the request; later versions do.
    KernelTooOld {
        /// Operation, such as `reset element`.
        operation: &'static str,
        /// Object of the operation.
        object: Box<str>,
        /// First version with the request, such as `6.5`.
        since: &'static str,
    },
    /// The exchange of messages with the kernel failed; requests may have been executed.
    Netlink(Error),
    /// A request has no encoding. Nothing was sent.
    NotEncoded {
        /// The request.
        request: Box<R>,
        /// Why it has none.
        reason: Box<dyn StdError + Send + Sync>,
    },
    /// Notifications were lost: the receive buffer was full, or a datagram was malformed or
    /// too large. A dump after this error misses no change. No request failed.
    NotificationsLost,
    /// The state of the kernel has another generation than a transaction requires: another
    /// process changed it. Nothing was applied.
    Outdated,
    /// Replies were lost because the receive buffer was full; requests may have been
    /// executed.
    Overrun,
    /// The kernel rejected requests.
    Rejected {
        /// Rejected requests in their order, at least 1.
        rejected: Vec<Rejected<R>>,
        /// Number of further rejected requests. `None` if it is unknown, because
        /// acknowledgments were lost.
        more: Option<usize>,
        /// Number of applied requests; 0 for a transaction, which is applied as a whole or
        /// not at all.
        done: usize,
    },
    /// The kernel lacks what the client needs.
    Unsupported {
        /// The missing part of the kernel.
        feature: Feature,
        /// Error number of the kernel, if it returned one.
        errno: Option<Errno>,
    },
}

readable_debug!([<R: RejectedRequest>] ClientError<R> {
    Denied,
    Interrupted { operation, object, attempts },
    Kernel { operation, object, error },
    KernelTooOld { operation, object, since },
    Netlink(error),
    NotEncoded { request, reason },
    NotificationsLost,
    Outdated,
    Overrun,
    Rejected { rejected, more, done },
    Unsupported { feature, errno },
});

impl<R: RejectedRequest> ClientError<R> {
    /// Adds operation and object of a request to its error.
    ///
    /// A rejection becomes [`Denied`](Self::Denied) if that is its
    /// [condition](RejectedRequest::condition), and [`Kernel`](Self::Kernel) otherwise.
    pub fn from_request(operation: &'static str, object: impl fmt::Display, error: Error) -> Self {
        match error {
            Error::Kernel(error) if R::condition(None, error.errno) == Some(Condition::Denied) => {
                Self::Denied
            }
            Error::Kernel(error) => Self::Kernel {
                operation,
                object: object.to_string().into(),
                error: Box::new(error),
            },
            other => other.into(),
        }
    }

    /// Returns the error of rejected requests, which must be at least one.
    pub fn from_rejected(rejected: Vec<Rejected<R>>) -> Self {
        Self::Rejected {
            rejected,
            more: Some(0),
            done: 0,
        }
    }

    /// Returns the error of a kernel that lacks [`RejectedRequest::FEATURE`].
    pub fn unsupported(errno: Option<Errno>) -> Self {
        Self::Unsupported {
            feature: R::FEATURE,
            errno,
        }
    }

    /// Converts the rejection of a request that is always valid to
    /// [`Unsupported`](Self::Unsupported).
    ///
    /// Without the subsystem, nfnetlink rejects a request with `EINVAL` and a batch with
    /// `EOPNOTSUPP`.
    #[must_use]
    pub fn into_unsupported(self) -> Self {
        match &self {
            Self::Kernel { error, .. }
                if matches!(error.errno, Errno::INVAL | Errno::OPNOTSUPP) =>
            {
                Self::unsupported(Some(error.errno))
            }
            _ => self,
        }
    }

    /// Converts the requests.
    pub fn map<U: RejectedRequest>(self, mut convert: impl FnMut(R) -> U) -> ClientError<U> {
        match self {
            Self::Denied => ClientError::Denied,
            Self::Interrupted {
                operation,
                object,
                attempts,
            } => ClientError::Interrupted {
                operation,
                object,
                attempts,
            },
            Self::Kernel {
                operation,
                object,
                error,
            } => ClientError::Kernel {
                operation,
                object,
                error,
            },
            Self::KernelTooOld {
                operation,
                object,
                since,
            } => ClientError::KernelTooOld {
                operation,
                object,
                since,
            },
            Self::Netlink(error) => ClientError::Netlink(error),
            Self::NotEncoded { request, reason } => ClientError::NotEncoded {
                request: Box::new(convert(*request)),
                reason,
            },
            Self::NotificationsLost => ClientError::NotificationsLost,
            Self::Outdated => ClientError::Outdated,
            Self::Overrun => ClientError::Overrun,
            Self::Rejected {
                rejected,
                more,
                done,
            } => ClientError::Rejected {
                rejected: rejected
                    .into_iter()
                    .map(|one| one.map(&mut convert))
                    .collect(),
                more,
                done,
            },
            Self::Unsupported { feature, errno } => ClientError::Unsupported { feature, errno },
        }
    }

    /// Returns the rejected requests of [`Rejected`](Self::Rejected); empty for other errors.
    pub fn rejected(&self) -> &[Rejected<R>] {
        match self {
            Self::Rejected { rejected, .. } => rejected,
            _ => &[],
        }
    }

    /// Returns whether requests were [rejected](Self::Rejected) and all of them meet a
    /// condition. `false` if there are more rejected requests than those that are known.
    ///
    /// ```
    /// use vipline_netlink::{ClientError, Errno, RejectedRequest};
    ///
    /// fn is_out_of_range<R: RejectedRequest>(error: &ClientError<R>) -> bool {
    ///     error.all_rejected(|one| one.errno == Errno::RANGE)
    /// }
    /// ```
    pub fn all_rejected(&self, is: impl FnMut(&Rejected<R>) -> bool) -> bool {
        match self {
            Self::Rejected {
                rejected,
                more: Some(0),
                ..
            } => rejected.iter().all(is),
            _ => false,
        }
    }

    /// Returns the error number; of several rejected requests, that of the first.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Denied => Some(Errno::PERM),
            Self::Kernel { error, .. } => Some(error.errno),
            Self::Netlink(error) => error.errno(),
            Self::Outdated => Some(Errno::RESTART),
            Self::Rejected { rejected, .. } => rejected.first().map(|first| first.errno),
            Self::Unsupported { errno, .. } => *errno,
            Self::Interrupted { .. }
            | Self::KernelTooOld { .. }
            | Self::NotEncoded { .. }
            | Self::NotificationsLost
            | Self::Overrun => None,
        }
    }

    /// Returns whether an object does not exist, for all rejected requests.
    pub fn is_not_found(&self) -> bool {
        self.is(Condition::NotFound)
    }

    /// Returns whether an object exists already, for all rejected requests.
    pub fn is_already_exists(&self) -> bool {
        self.is(Condition::AlreadyExists)
    }

    /// Returns whether something uses an object, for all rejected requests.
    pub fn is_busy(&self) -> bool {
        self.is(Condition::Busy)
    }

    /// Returns whether a capability is missing, also one to join a multicast group.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Denied => true,
            Self::Netlink(Error::Io { .. }) => self.errno() == Some(Errno::PERM),
            _ => self.is(Condition::Denied),
        }
    }

    /// Returns whether the kernel lacks a feature: all that the client needs, a request, or
    /// what all rejected requests need.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::KernelTooOld { .. } => true,
            _ => self.is(Condition::Unsupported),
        }
    }

    /// Returns whether another process changed the state that a transaction requires:
    /// [`Outdated`](Self::Outdated).
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Outdated)
    }

    /// Returns whether the kernel may have applied a request, or a part of several ones.
    ///
    /// `false` only if it certainly has not. A transaction is applied as a whole or not at
    /// all, and a dump shows which.
    pub fn may_be_applied(&self) -> bool {
        match self {
            Self::Netlink(error) => !matches!(error, Error::BatchTooLarge { .. }),
            Self::Overrun => true,
            Self::Rejected { done, .. } => *done > 0,
            // The kernel asks for the capability before each request, so that all requests of a
            // client are denied if one is.
            Self::Denied
            | Self::Interrupted { .. }
            | Self::Kernel { .. }
            | Self::KernelTooOld { .. }
            | Self::NotEncoded { .. }
            | Self::NotificationsLost
            | Self::Outdated
            | Self::Unsupported { .. } => false,
        }
    }

    /// Returns whether the rejection of a request, or of all requests, means a condition.
    fn is(&self, condition: Condition) -> bool {
        match self {
            Self::Kernel { error, .. } => R::condition(None, error.errno) == Some(condition),
            Self::NotEncoded { reason, .. } => R::condition_of(&**reason) == Some(condition),
            _ => self
                .all_rejected(|one| R::condition(Some(&one.request), one.errno) == Some(condition)),
        }
    }
}

impl<R: RejectedRequest> From<Error> for ClientError<R> {
    fn from(error: Error) -> Self {
        match error {
            Error::NotificationsLost => Self::NotificationsLost,
            Error::Overrun => Self::Overrun,
            _ => match error.missing_protocol() {
                errno @ Some(_) => Self::unsupported(errno),
                None => Self::Netlink(error),
            },
        }
    }
}

impl<R: RejectedRequest> From<DecodeError> for ClientError<R> {
    fn from(error: DecodeError) -> Self {
        Self::Netlink(error.into())
    }
}

impl<R: RejectedRequest> fmt::Display for ClientError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("operation not permitted: CAP_NET_ADMIN is missing"),
            Self::Interrupted {
                operation,
                object,
                attempts,
            } => write!(
                f,
                "{operation} {object}: changes of other programs interrupted each of {attempts} \
                 attempts"
            ),
            Self::Kernel {
                operation,
                object,
                error,
            } => {
                write!(f, "{operation} {object}: ")?;
                R::fmt_reason(error, f)
            }
            Self::KernelTooOld {
                operation,
                object,
                since,
            } => write!(
                f,
                "{operation} {object}: the kernel is older than Linux {since}"
            ),
            Self::Netlink(error) => error.fmt(f),
            Self::NotEncoded { request, reason } => write!(f, "{request}: {reason}"),
            Self::NotificationsLost => Error::NotificationsLost.fmt(f),
            Self::Outdated => f.write_str(
                "nothing was committed: another process changed the ruleset since the dump",
            ),
            Self::Overrun => f.write_str(
                "the receive buffer was full and replies were lost: the state of the kernel is \
                 unknown",
            ),
            Self::Rejected { rejected, more, .. } => {
                RejectedList::new(rejected).with_more(*more).fmt(f)
            }
            Self::Unsupported { feature, .. } => feature.fmt(f),
        }
    }
}

impl<R: RejectedRequest> StdError for ClientError<R> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // The message is that of the inner error.
            Self::Netlink(error) => error.source(),
            Self::NotEncoded { reason, .. } => reason.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::message::Ack;

    #[derive(Clone, Debug, Eq, PartialEq)]
    struct Delete(u32);

    impl fmt::Display for Delete {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "delete {}", self.0)
        }
    }

    impl RejectedRequest for Delete {
        const FEATURE: Feature = Feature::new("things").with_module("thing");

        fn condition(request: Option<&Self>, errno: Errno) -> Option<Condition> {
            match (request, errno) {
                (Some(_), Errno::NODEV) => Some(Condition::NotFound),
                _ => Condition::of(errno),
            }
        }
    }

    type Failure = ClientError<Delete>;

    fn kernel(errno: Errno, message: Option<&str>) -> Error {
        let ack = Ack {
            message,
            ..Ack::default()
        };
        KernelError::new(1, errno, ack).into()
    }

    fn request(errno: Errno) -> Failure {
        ClientError::from_request("list", "things", kernel(errno, None))
    }

    fn rejected(errnos: &[Errno], more: Option<usize>, done: usize) -> Failure {
        let one = |(errno, number): (&Errno, u32)| Rejected::new(Delete(number), *errno);
        ClientError::Rejected {
            rejected: errnos.iter().zip(1..).map(one).collect(),
            more,
            done,
        }
    }

    fn io_error(errno: Errno) -> Error {
        Error::Io {
            operation: "open a netlink socket",
            source: errno.into(),
        }
    }

    #[test]
    fn a_rejected_request_keeps_the_words_of_the_kernel() {
        let error = kernel(Errno::INVAL, Some("wrong type"));
        let error = Failure::from_request("list", "things", error);
        assert_eq!(
            error.to_string(),
            "list things: invalid argument (wrong type)"
        );
        assert_eq!(error.errno(), Some(Errno::INVAL));
        assert!(!error.may_be_applied());
    }

    #[test]
    fn a_missing_capability_is_denied() {
        for error in [request(Errno::PERM), io_error(Errno::PERM).into()] {
            assert!(error.is_denied(), "{error}");
            assert_eq!(error.errno(), Some(Errno::PERM));
        }
        assert!(matches!(request(Errno::PERM), ClientError::Denied));
        assert!(!Failure::from(io_error(Errno::MFILE)).is_denied());
    }

    #[test]
    fn a_missing_subsystem_is_named() {
        let text = "the kernel lacks things: load the module thing";
        for error in [
            io_error(Errno::PROTONOSUPPORT).into(),
            request(Errno::INVAL).into_unsupported(),
            request(Errno::OPNOTSUPP).into_unsupported(),
        ] {
            assert!(matches!(error, Failure::Unsupported { .. }), "{error}");
            assert!(error.is_unsupported() && error.errno().is_some());
            assert_eq!(error.to_string(), text);
        }
        let other = request(Errno::NOENT).into_unsupported();
        assert!(other.is_not_found() && !other.is_unsupported());
    }

    #[test]
    fn a_condition_holds_for_every_rejected_request() {
        use Errno as E;
        assert!(rejected(&[E::NOENT, E::NODEV], Some(0), 1).is_not_found());
        assert!(!rejected(&[E::NOENT, E::BUSY], Some(0), 1).is_not_found());
        assert!(!rejected(&[E::NOENT], Some(1), 0).is_not_found());
        assert!(!rejected(&[E::NOENT], None, 0).is_not_found());
        assert!(rejected(&[E::EXIST], Some(0), 0).is_already_exists());
        assert!(rejected(&[E::BUSY], Some(0), 0).is_busy());
        assert!(rejected(&[E::OPNOTSUPP], Some(0), 0).is_unsupported());
        assert!(rejected(&[E::PERM], Some(0), 0).is_denied());
        // The type of request decides, so a query differs.
        assert!(request(E::NOENT).is_not_found());
        assert!(!request(E::NODEV).is_not_found());
        assert!(!Failure::from(io_error(E::NOENT)).is_not_found());
    }

    #[test]
    fn only_lost_replies_and_applied_requests_may_be_applied() {
        for error in [
            Failure::from(Error::Overrun),
            Error::Timeout.into(),
            rejected(&[Errno::BUSY], Some(0), 3),
        ] {
            assert!(error.may_be_applied(), "{error}");
        }
        for error in [
            Failure::Denied,
            ClientError::Outdated,
            Error::BatchTooLarge { bytes: 9, limit: 5 }.into(),
            rejected(&[Errno::BUSY], None, 0),
        ] {
            assert!(!error.may_be_applied(), "{error}");
        }
    }

    #[test]
    fn the_debug_form_of_a_thousand_rejections_is_a_sentence() {
        let error = rejected(&[Errno::BUSY; 1000], Some(7), 0);
        let text = format!("{error:?}");
        assert!(text.ends_with("; and 1004 more"), "{text}");
        assert!(text.len() < 500, "{text}");
        assert_eq!(text, error.to_string());
        let fields = format!("{error:#?}");
        assert!(fields.contains("Delete(\n"), "{fields}");
        assert!(fields.contains("more: Some("), "{fields}");
        let denied: ClientError<Delete> = ClientError::Denied;
        assert_eq!(format!("{denied:#?}"), "Denied");
    }

    #[test]
    fn the_debug_form_has_the_sources() {
        let error = Failure::from(io_error(Errno::MFILE));
        assert_eq!(error.to_string(), "open a netlink socket");
        let text = "open a netlink socket: Too many open files (os error 24)";
        assert_eq!(format!("{error:?}"), text);
        let reason = io::Error::other("no such field");
        let error: Failure = ClientError::NotEncoded {
            request: Box::new(Delete(7)),
            reason: reason.into(),
        };
        assert_eq!(format!("{error:?}"), "delete 7: no such field");
    }

    #[test]
    fn requests_are_converted_in_every_variant_that_has_them() {
        let error = rejected(&[Errno::BUSY; 2], None, 3).map(|Delete(number)| Delete(number + 7));
        let ClientError::Rejected {
            rejected,
            more,
            done,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((rejected[1].request.0, more, done), (9, None, 3));
    }
}
