//! `-j HL`: hop limit.

use crate::field::extension;
use crate::targets::ttl::is_one_change;

extension! {
    /// Changes the hop limit of IPv6 packets: `-j HL --hl-set 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Hl = "-j HL" {
        /// New value.
        set: Option<u8> = "--hl-set",
        /// Number to subtract, not 0.
        dec: Option<u8> = "--hl-dec",
        /// Number to add, not 0.
        inc: Option<u8> = "--hl-inc",
    }
    complete |it| is_one_change(it.set, it.dec, it.inc);
}
