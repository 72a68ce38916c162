//! Errors of links and addresses.

use std::fmt;

use vipline_netlink::{ClientError, Condition, Errno, Feature, Rejected, RejectedRequest};

use crate::Command;

/// An error of a dump or a commit.
///
/// [`is_not_found`](ClientError::is_not_found) is about links and addresses (`ENODEV`,
/// `EADDRNOTAVAIL`), and [`is_unsupported`](ClientError::is_unsupported) about a type of link,
/// for example without the module `dummy`, and about IPv6.
pub type Error = ClientError<Command>;

/// A rejected command.
pub type RejectedCommand = Rejected<Command>;

impl RejectedRequest for Command {
    const FEATURE: Feature = Feature::new("rtnetlink").with_option("CONFIG_NET");

    fn condition(_: Option<&Self>, errno: Errno) -> Option<Condition> {
        match errno {
            Errno::NODEV | Errno::ADDRNOTAVAIL => Some(Condition::NotFound),
            Errno::AFNOSUPPORT => Some(Condition::Unsupported),
            _ => Condition::of(errno),
        }
    }

    fn fmt_rejected(rejected: &RejectedCommand, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip {}: {}", rejected.request, rejected.reason())
    }
}
