//! `-m iprange`: ranges of addresses.

use std::fmt;
use std::net::IpAddr;

use crate::address::Address;
use crate::field::{extension, word_values};
use crate::negatable::Negatable;

extension! {
    /// Matches ranges of addresses: `-m iprange --src-range 10.0.0.1-10.0.0.9`.
    pub struct IpRange = "-m iprange" {
        /// Source addresses.
        source: Option<Negatable<AddressSpan>> = "--src-range",
        /// Destination addresses.
        destination: Option<Negatable<AddressSpan>> = "--dst-range",
    }
}

/// A range of addresses of one family, printed as `10.0.0.1-10.0.0.9`.
///
/// Exhaustive: first and last address are the whole range.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AddressSpan {
    /// First address.
    pub first: IpAddr,
    /// Last address.
    pub last: IpAddr,
}

impl AddressSpan {
    /// Parses `10.0.0.1` or `10.0.0.1-10.0.0.9`.
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let is_ordered = first.is_ipv4() == last.is_ipv4() && first <= last;
        is_ordered.then_some(Self { first, last })
    }
}

impl fmt::Display for AddressSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", Address(self.first), Address(self.last))
    }
}

word_values! { AddressSpan = AddressSpan::parse, }
