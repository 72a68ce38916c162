//! Errors of connection tracking.

use std::fmt;

use vipline_netlink::{ClientError, Condition, Errno, Feature, Rejected, RejectedRequest};

use crate::Key;

/// An error of a dump, a deletion or another request.
///
/// [`is_busy`](ClientError::is_busy) means that the flow is offloaded to a flowtable, or cannot
/// be changed as requested.
pub type Error = ClientError<Change>;

/// A change of one flow.
///
/// Displays as operation and key, such as `delete udp src=…`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// Operation: `create`, `update` or `delete`.
    pub operation: &'static str,
    /// Key of the flow.
    pub key: Key,
}

impl Change {
    /// Creates a change.
    pub fn new(operation: &'static str, key: Key) -> Self {
        Self { operation, key }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.key)
    }
}

impl RejectedRequest for Change {
    const FEATURE: Feature = Feature::new("ctnetlink").with_module("nf_conntrack_netlink");

    /// The kernel also returns `EPERM` for a single flow, such as one with a fixed timeout, so
    /// it does not mean that a capability is missing. [`Client::open`](crate::Client::open)
    /// checks the capability.
    fn condition(_: Option<&Self>, errno: Errno) -> Option<Condition> {
        Condition::of(errno).filter(|condition| *condition != Condition::Denied)
    }
}

/// A change of a flow that the kernel rejected.
pub type RejectedChange = Rejected<Change>;

#[cfg(test)]
mod tests {
    use vipline_netlink::KernelError;
    use vipline_netlink::message::Ack;

    use super::*;

    #[test]
    fn a_rejected_change_keeps_the_words_of_the_kernel() {
        let mut ack = Ack::default();
        ack.message = Some("no zone");
        let rejected = KernelError::new(1, Errno::PERM, ack);
        let error = Error::from_request("update", "tcp", rejected.into());
        let text = "update tcp: operation not permitted (no zone)";
        assert_eq!(error.to_string(), text);
        assert!(!error.is_denied());
    }
}
