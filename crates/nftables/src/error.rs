//! nf_tables errors.

#[cfg(target_os = "linux")]
use vipline_netlink::Errno;
use vipline_netlink::{ClientError, Feature, Rejected, RejectedRequest};

use crate::Operation;
#[cfg(target_os = "linux")]
use crate::Subject;

/// An error of a dump, a commit or a monitor.
///
/// A transaction is applied as a whole or not at all.
/// [`may_be_applied`](ClientError::may_be_applied) returns whether a failed one may have been.
pub type Error = ClientError<Operation>;

/// An operation of a transaction that the kernel rejected.
pub type RejectedOperation = Rejected<Operation>;

impl RejectedRequest for Operation {
    const FEATURE: Feature = Feature::new("nf_tables")
        .with_module("nf_tables")
        .with_option("CONFIG_NF_TABLES");
}

/// Returns the error of a transaction that the kernel did not apply.
///
/// The kernel reports a missing capability and missing nf_tables for the batch as a whole.
#[cfg(target_os = "linux")]
pub(crate) fn rejected_transaction(rejected: Vec<RejectedOperation>, more: Option<usize>) -> Error {
    if let [whole] = &*rejected
        && whole.request.subject == Subject::Transaction
    {
        match whole.errno {
            Errno::PERM => return Error::Denied,
            // The kernel reports ERESTART for the begin message only.
            Errno::RESTART => return Error::Outdated,
            errno @ (Errno::INVAL | Errno::OPNOTSUPP) => return Error::unsupported(Some(errno)),
            _ => {}
        }
    }
    Error::Rejected {
        rejected,
        more,
        done: 0,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io;

    use vipline_netlink::message::Ack;
    use vipline_netlink::{Error as Netlink, KernelError};

    use super::*;
    use crate::Action;

    fn kernel(errno: Errno) -> Netlink {
        KernelError::new(1, errno, Ack::default()).into()
    }

    fn rejected(errno: Errno, message: Option<&str>) -> RejectedOperation {
        let operation = Operation::new(Action::Commit, Subject::Transaction);
        let rejected = Rejected::new(operation, errno);
        match message {
            Some(message) => rejected.with_message(message),
            None => rejected,
        }
    }

    #[test]
    fn every_errno_of_a_kernel_without_nf_tables_is_unsupported() {
        let socket = Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(93),
        };
        let request = |errno| Error::from_request("list table", "ip t", kernel(errno));
        for error in [
            Error::from(socket),
            request(Errno::INVAL).into_unsupported(),
            request(Errno::OPNOTSUPP).into_unsupported(),
        ] {
            assert!(!error.may_be_applied());
            assert!(error.to_string().contains("CONFIG_NF_TABLES"), "{error}");
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        }
    }

    #[test]
    fn another_failure_to_open_the_socket_is_an_io_error() {
        let error = Error::from(Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(24),
        });
        assert_eq!(error.to_string(), "open a netlink socket");
        assert_eq!(error.errno(), Some(Errno(24)));
    }

    #[test]
    fn a_missing_capability_is_named() {
        let error = Error::from_request("list table", "ip t", kernel(Errno::PERM));
        assert_eq!(
            error.to_string(),
            "operation not permitted: CAP_NET_ADMIN is missing"
        );
        assert_eq!(error.errno(), Some(Errno::PERM));
    }

    #[test]
    fn a_failed_request_names_its_object() {
        let error = Error::from_request("list table", "ip t", kernel(Errno::NOENT));
        assert_eq!(
            error.to_string(),
            "list table ip t: no such file or directory"
        );
        assert!(error.is_not_found());
    }

    #[test]
    fn lost_replies_leave_the_commit_unknown() {
        for error in [Netlink::Overrun, Netlink::Timeout] {
            assert!(Error::from(error).may_be_applied());
        }
        let error = Error::from(Netlink::BatchTooLarge { bytes: 9, limit: 5 });
        assert!(!error.may_be_applied());
    }

    #[test]
    fn the_first_rejections_are_shown_and_the_others_counted() {
        let one = rejected(Errno::BUSY, Some("in use by a rule"));
        let error = |count, more| Error::Rejected {
            rejected: vec![one.clone(); count],
            more,
            done: 0,
        };
        let text = "commit transaction: device or resource busy (in use by a rule)";
        assert_eq!(error(1, Some(0)).to_string(), text);
        assert_eq!(error(2, Some(0)).to_string(), format!("{text}; {text}"));
        let many = error(4, Some(10));
        assert_eq!(
            many.to_string(),
            format!("{text}; {text}; {text}; and 11 more")
        );
        assert_eq!(format!("{many:?}"), many.to_string());
    }

    #[test]
    fn a_predicate_requires_the_errno_of_every_rejection() {
        let error = |errnos: &[Errno], more| Error::Rejected {
            rejected: errnos.iter().map(|errno| rejected(*errno, None)).collect(),
            more,
            done: 0,
        };
        assert!(error(&[Errno::NOENT, Errno::NOENT], Some(0)).is_not_found());
        assert!(!error(&[Errno::NOENT, Errno::BUSY], Some(0)).is_not_found());
        assert!(!error(&[Errno::NOENT], Some(1)).is_not_found());
        assert!(!error(&[Errno::NOENT], None).is_not_found());
        assert!(error(&[Errno::EXIST], Some(0)).is_already_exists());
        assert!(error(&[Errno::BUSY], Some(0)).is_busy());
    }
}
