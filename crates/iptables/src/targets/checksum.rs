//! `-j CHECKSUM`: missing checksums.

use crate::field::extension;

extension! {
    /// Computes missing checksums: `-j CHECKSUM --checksum-fill`.
    pub struct Checksum = "-j CHECKSUM" {
        /// Whether the checksum is computed; iptables requires it.
        fill: bool = "--checksum-fill",
    }
}
