//! nfacct errors.

use vipline_netlink::{ClientError, Feature, RejectedRequest};

use super::Name;

/// An nfacct error. Its requests are about a counter, named by [`Name`], or about all.
pub type Error = ClientError<Name>;

impl RejectedRequest for Name {
    const FEATURE: Feature = Feature::new("nfacct")
        .with_module("nfnetlink_acct")
        .with_option("CONFIG_NETFILTER_NETLINK_ACCT");
}

#[cfg(test)]
mod tests {
    use std::io;

    use vipline_netlink::message::Ack;
    use vipline_netlink::{Errno, Error as Netlink, KernelError};

    use super::*;

    fn rejected(errno: Errno) -> Error {
        let name = Name::new("hits").unwrap();
        let rejection = KernelError::new(1, errno, Ack::default());
        Error::from_request("delete counter", &name, rejection.into()).into_unsupported()
    }

    #[test]
    fn a_rejection_names_the_counter() {
        assert_eq!(
            rejected(Errno::NOENT).to_string(),
            "delete counter hits: no such file or directory"
        );
        assert!(rejected(Errno::NOENT).is_not_found());
        assert!(rejected(Errno::EXIST).is_already_exists());
        assert!(rejected(Errno::BUSY).is_busy());
    }

    #[test]
    fn every_errno_of_a_kernel_without_nfacct_is_unsupported() {
        let socket = Netlink::Io {
            operation: "open a netlink socket",
            source: io::Error::from_raw_os_error(93),
        };
        for error in [
            rejected(Errno::INVAL),
            rejected(Errno::OPNOTSUPP),
            Error::from(socket),
        ] {
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        }
        assert!(matches!(rejected(Errno::PERM), Error::Denied));
    }
}
