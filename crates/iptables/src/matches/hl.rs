//! `-m hl`: hop limit.

use crate::field::extension;
use crate::negatable::Negatable;

extension! {
    /// Matches the hop limit of IPv6 packets: `-m hl --hl-eq 255`.
    ///
    /// iptables requires exactly one option.
    pub struct Hl = "-m hl" {
        /// Equal to the value.
        eq: Option<Negatable<u8>> = "--hl-eq",
        /// Less than the value.
        lt: Option<u8> = "--hl-lt",
        /// Greater than the value.
        gt: Option<u8> = "--hl-gt",
    }
    complete |it| [it.eq.is_some(), it.lt.is_some(), it.gt.is_some()] == [true, false, false]
        || it.eq.is_none() && it.lt.is_some() != it.gt.is_some();
}
