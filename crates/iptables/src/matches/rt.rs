//! `-m rt`: routing header of IPv6.

use std::fmt;
use std::net::Ipv6Addr;

use crate::Family;
use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::matches::ids::{self, forget};
use crate::options::address::Address;
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;
use crate::options::number::Range;

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

/// Number of addresses of `struct ip6t_rt`.
const IP6T_RT_HOPS: usize = 16;

// Flags of `struct ip6t_rt`. The first ones are `IP6T_RT_INV_TYP`, `IP6T_RT_INV_SGS` and
// `IP6T_RT_INV_LEN` in `invflags`.
const IP6T_RT_TYP: u8 = 1;
const IP6T_RT_SGS: u8 = 2;
const IP6T_RT_LEN: u8 = 4;
const IP6T_RT_RES: u8 = 8;
const IP6T_RT_FST: u8 = 0x10;
const IP6T_RT_FST_NSTRICT: u8 = 0x20;

/// `struct ip6t_rt`.
impl Structure for Rt {
    const NAME: &'static str = "rt";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        if out.family() == Family::V4 {
            return None;
        }
        let mut conditions = Conditions::default();
        out.u32(conditions.put(IP6T_RT_TYP, &self.ty).unwrap_or(0));
        conditions.put(IP6T_RT_SGS, &self.segments_left);
        ids::write(out, &self.segments_left, u32::MAX);
        out.u32(conditions.put(IP6T_RT_LEN, &self.length).unwrap_or(0));
        conditions.put_flag(IP6T_RT_RES, self.reserved);
        conditions.put_flag(IP6T_RT_FST, self.addresses.is_some());
        conditions.put_flag(IP6T_RT_FST_NSTRICT, self.not_strict);
        out.u8(conditions.used).u8(conditions.negated).zeros(2);
        let addresses = self.addresses.as_ref().map_or(&[][..], Addresses::get);
        for address in addresses {
            out.bytes(&address.octets());
        }
        let unused = IP6T_RT_HOPS.checked_sub(addresses.len())?;
        out.zeros(unused * 16);
        out.u8(addresses.len().try_into().ok()?).zeros(3);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let ty = reader.u32()?;
        let (segments_left, length) = (ids::read(reader)?, reader.u32()?);
        let [used, negated] = reader.array()?;
        let conditions = Conditions { used, negated };
        reader.bytes(2)?;
        let mut addresses = [Ipv6Addr::UNSPECIFIED; IP6T_RT_HOPS];
        for address in &mut addresses {
            *address = reader.array::<16>()?.into();
        }
        let count = usize::from(reader.u8()?);
        Some(Self {
            ty: conditions.get(IP6T_RT_TYP, ty),
            segments_left: conditions.get(IP6T_RT_SGS, segments_left),
            length: conditions.get(IP6T_RT_LEN, length),
            reserved: conditions.has(IP6T_RT_RES),
            addresses: Addresses::new(addresses.get(..count)?.iter().copied()),
            not_strict: conditions.has(IP6T_RT_FST_NSTRICT),
        })
    }
}
