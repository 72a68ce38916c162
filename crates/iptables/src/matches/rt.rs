//! `-m rt`: routing header of IPv6.

use std::fmt;
use std::net::Ipv6Addr;

use crate::address::Address;
use crate::field::{extension, word_values};
use crate::matches::ids::forget;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the routing header: `-m rt --rt-type 0`.
    pub struct Rt = "-m rt" {
        /// Routing type.
        ty: Option<Negatable<u32>> = "--rt-type",
        /// Number of segments left.
        segments_left: Option<Negatable<Range<u32>>> = "--rt-segsleft",
        /// Length of the header.
        length: Option<Negatable<u32>> = "--rt-len",
        /// Whether the reserved field of type 0 is zero.
        reserved: bool = "--rt-0-res",
        /// Addresses of type 0.
        addresses: Option<Addresses> = "--rt-0-addrs",
        /// Whether the addresses are only a part of those of the packet.
        not_strict: bool = "--rt-0-not-strict",
    }
    complete |it| (!it.reserved && it.addresses.is_none() || it.ty == Some(Negatable::Is(0)))
        && (!it.not_strict || it.addresses.is_some());
    normalize |it| forget(&mut it.segments_left, Range::<u32>::ALL);
}

/// Addresses of a routing header, printed with commas.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Addresses(Vec<Ipv6Addr>);

impl Addresses {
    /// Maximum number of addresses.
    const MAX: usize = 16;

    /// Creates a list of 1 to 16 addresses, otherwise returns `None`.
    pub fn new(addresses: impl IntoIterator<Item = Ipv6Addr>) -> Option<Self> {
        let addresses: Vec<_> = addresses.into_iter().collect();
        (1..=Self::MAX)
            .contains(&addresses.len())
            .then_some(Self(addresses))
    }

    /// Returns the addresses.
    pub fn get(&self) -> &[Ipv6Addr] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let addresses = text.split(',').map(|text| text.parse().ok());
        Self::new(addresses.collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{}", Address((*address).into()))?;
        }
        Ok(())
    }
}

word_values! { Addresses = Addresses::parse, }
