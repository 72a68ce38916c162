//! `-j SYNPROXY`: TCP handshakes before a connection is tracked.

use crate::field::extension;

extension! {
    /// Completes TCP handshakes before a connection is tracked: `-p tcp -j SYNPROXY --mss
    /// 1460`.
    pub struct Synproxy = "-j SYNPROXY" {
        /// Whether selective acknowledgements are sent.
        sack_perm: bool = "--sack-perm",
        /// Whether timestamps are sent.
        timestamp: bool = "--timestamp",
        /// Window scale, 0 to 14.
        wscale: Option<u8> = "--wscale",
        /// Maximum segment size in bytes.
        mss: Option<u16> = "--mss",
        /// Whether explicit congestion notification is supported.
        ecn: bool = "--ecn",
    }
    complete |it| it.wscale.is_none_or(|wscale| wscale < 15);
}
