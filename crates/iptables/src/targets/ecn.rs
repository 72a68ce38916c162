//! `-j ECN`: explicit congestion notification.

use crate::field::extension;

extension! {
    /// Removes explicit congestion notification: `-p tcp -j ECN --ecn-tcp-remove`.
    pub struct Ecn = "-j ECN" {
        /// Whether the flags ECE and CWR of TCP are cleared; iptables requires it.
        tcp_remove: bool = "--ecn-tcp-remove",
    }
}
