//! `-m iprange`: ranges of addresses.

use std::fmt;
use std::net::IpAddr;

use crate::extensions::structure::{Reader, Structure, Writer, flags, is_not};
use crate::options::address::Address;
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;

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

// Flags of `struct xt_iprange_mtinfo`.
const IPRANGE_SRC: u8 = 1 << 0;
const IPRANGE_DST: u8 = 1 << 1;
const IPRANGE_SRC_INV: u8 = 1 << 4;
const IPRANGE_DST_INV: u8 = 1 << 5;

/// `struct xt_iprange_mtinfo`.
impl Structure for IpRange {
    const NAME: &'static str = "iprange";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        for range in [&self.source, &self.destination] {
            match range.as_ref().map(Negatable::value) {
                Some(AddressSpan { first, last }) => out.address(*first)?.address(*last)?,
                None => out.zeros(32),
            };
        }
        out.u8(flags([
            (self.source.is_some(), IPRANGE_SRC),
            (is_not(&self.source), IPRANGE_SRC_INV),
            (self.destination.is_some(), IPRANGE_DST),
            (is_not(&self.destination), IPRANGE_DST_INV),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut span = || {
            let (first, last) = (reader.address()?, reader.address()?);
            Some(AddressSpan { first, last })
        };
        let (source, destination) = (span()?, span()?);
        let flags = reader.u8()?;
        let range = |used, inverted, span| {
            let is_negated = flags & inverted != 0;
            (flags & used != 0).then(|| Negatable::new(is_negated, span))
        };
        Some(Self {
            source: range(IPRANGE_SRC, IPRANGE_SRC_INV, source),
            destination: range(IPRANGE_DST, IPRANGE_DST_INV, destination),
        })
    }
}
