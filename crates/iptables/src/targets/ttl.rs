//! `-j TTL`: time to live.

use crate::field::extension;

extension! {
    /// Changes the time to live of IPv4 packets: `-j TTL --ttl-set 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Ttl = "-j TTL" {
        /// New value.
        set: Option<u8> = "--ttl-set",
        /// Number to subtract, not 0.
        dec: Option<u8> = "--ttl-dec",
        /// Number to add, not 0.
        inc: Option<u8> = "--ttl-inc",
    }
    complete |it| is_one_change(it.set, it.dec, it.inc);
}

pub(super) fn is_one_change(set: Option<u8>, dec: Option<u8>, inc: Option<u8>) -> bool {
    let count = [set, dec, inc].iter().flatten().count();
    count == 1 && dec != Some(0) && inc != Some(0)
}
