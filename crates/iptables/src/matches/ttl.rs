//! `-m ttl`: time to live.

use crate::field::extension;
use crate::negatable::Negatable;

extension! {
    /// Matches the time to live of IPv4 packets: `-m ttl --ttl-lt 64`.
    ///
    /// iptables requires exactly one option.
    pub struct Ttl = "-m ttl" {
        /// Equal to the value.
        eq: Option<Negatable<u8>> = "--ttl-eq" | "--ttl",
        /// Less than the value.
        lt: Option<u8> = "--ttl-lt",
        /// Greater than the value.
        gt: Option<u8> = "--ttl-gt",
    }
    complete |it| [it.eq.is_some(), it.lt.is_some(), it.gt.is_some()] == [true, false, false]
        || it.eq.is_none() && it.lt.is_some() != it.gt.is_some();
}
