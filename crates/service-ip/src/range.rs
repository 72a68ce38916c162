//! What is allocated from: addresses of a network, or ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

use crate::{AllocationError, parse_address};

/// Items in a row, numbered from 0.
///
/// Those below [`Range::static_band`] are the lower band: dynamic allocation takes
/// of it only when the upper band is full, so that who asks for a certain item
/// there is likely to get it.
pub trait Range: Clone + Eq + fmt::Debug + fmt::Display + FromStr<Err = RangeError> {
    /// An address, or a port.
    type Item: Copy + Ord + fmt::Debug + fmt::Display;

    /// Returns how many items can be allocated.
    fn len(&self) -> u128;

    /// Tells whether no item can be allocated.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many items are in the lower band.
    fn static_band(&self) -> u128;

    /// Returns the number of an item.
    ///
    /// # Errors
    ///
    /// [`AllocationError::NotInRange`] if it is not among them, and
    /// [`AllocationError::MismatchedFamily`] if it cannot be.
    fn number(&self, item: Self::Item) -> Result<u128, AllocationError>;

    /// Returns the item of a number.
    fn item(&self, number: u128) -> Option<Self::Item>;

    /// Returns the part of the range that a bitmap of Kubernetes holds.
    ///
    /// A [`RangeAllocation`](crate::RangeAllocation) has no room for more.
    ///
    /// # Errors
    ///
    /// [`RangeError::TooLarge`] if Kubernetes keeps no bitmap of such a range.
    fn bitmap_range(&self) -> Result<Self, RangeError> {
        Ok(self.clone())
    }
}

/// The addresses of a network that Services can have.
///
/// These are all but the first and, with IPv4, the last one, as Kubernetes has
/// it: a network of IPv4 with 31 or 32 bits has none.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AddressRange {
    network: IpNet,
    len: u128,
    static_band: u128,
}

/// Why a text or a network is no range.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RangeError {
    /// It is no network in CIDR notation, or no range of ports.
    #[error("{text:?} is no {what}")]
    Syntax {
        /// What was read.
        text: Box<str>,
        /// What it should be.
        what: &'static str,
    },
    /// An address has bits set beyond the prefix.
    #[error("{network} has host bits set; the network is {}", network.trunc())]
    HostBits {
        /// What was read.
        network: IpNet,
    },
    /// It is a network of IPv4 in the form of IPv6.
    #[error("{network} is IPv4-mapped; write it as IPv4")]
    Mapped {
        /// What was read.
        network: IpNet,
    },
    /// It has more addresses than the snapshots of Kubernetes have room for.
    #[error("{network} is too large for a bitmap: the prefix must be /{longest} or longer")]
    TooLarge {
        /// The network.
        network: IpNet,
        /// The shortest prefix that fits.
        longest: u8,
    },
    /// Ports that are none, or whose last is below the first.
    #[error(
        "ports {first}-{last}: a range has ports from 1 to 65535, the first not above the last"
    )]
    Ports {
        /// The first one.
        first: u16,
        /// The last one.
        last: u16,
    },
}

impl AddressRange {
    /// Host bits that the bitmap of Kubernetes has room for.
    const CLASSIC_BITS: u8 = 20;

    /// How many addresses of IPv6 that bitmap uses at most.
    const CLASSIC_LEN: u128 = 65_536;

    /// Returns the addresses of a network.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if bits are set beyond its prefix, or if it is of IPv4 in
    /// the form of IPv6.
    pub fn new(network: IpNet) -> Result<Self, RangeError> {
        if network.addr() != network.network() {
            return Err(RangeError::HostBits { network });
        }
        if let IpAddr::V6(address) = network.addr()
            && address.to_ipv4_mapped().is_some()
            && network.prefix_len() >= 96
        {
            return Err(RangeError::Mapped { network });
        }
        let left_out = match network {
            IpNet::V4(_) => 2,
            IpNet::V6(_) => 1,
        };
        // All but the first of 2^128 addresses are as many as fit.
        let len = match size(network) {
            Some(size) => size.saturating_sub(left_out),
            None => u128::MAX,
        };
        let static_band = band(size(network).unwrap_or(u128::MAX), 16, 256);
        Ok(Self {
            network,
            len,
            static_band,
        })
    }

    /// Returns the addresses of a network that Kubernetes kept in a bitmap: of
    /// IPv6 only the first 65,535.
    ///
    /// # Errors
    ///
    /// [`RangeError::TooLarge`] beyond /12 and /108, and what [`Self::new`]
    /// refuses.
    pub fn for_bitmap(network: IpNet) -> Result<Self, RangeError> {
        let range = Self::new(network)?;
        let longest = network.max_prefix_len() - Self::CLASSIC_BITS;
        if network.prefix_len() < longest {
            return Err(RangeError::TooLarge { network, longest });
        }
        let len = match network {
            IpNet::V4(_) => range.len,
            IpNet::V6(_) => range.len.min(Self::CLASSIC_LEN - 1),
        };
        Ok(Self { len, ..range })
    }

    /// Parses a network in any form that kube-apiserver has ever stored.
    ///
    /// ```text
    /// 010.0.0.1/24 → 10.0.0.0/24    leading zeros, and bits beyond the prefix
    /// ```
    ///
    /// # Errors
    ///
    /// [`RangeError::Syntax`] if it is no network.
    pub fn parse_stored(text: &str) -> Result<Self, RangeError> {
        let syntax = || RangeError::Syntax {
            text: text.into(),
            what: "network in CIDR notation",
        };
        let (address, prefix) = text.split_once('/').ok_or_else(syntax)?;
        let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| is_number);
        let network = parse_address(address).zip(prefix);
        let network = network.and_then(|(address, prefix)| IpNet::new(address, prefix).ok());
        Self::new(network.ok_or_else(syntax)?.trunc())
    }

    /// Returns the network.
    #[must_use]
    pub const fn network(&self) -> IpNet {
        self.network
    }

    /// Returns the first address, if there is one.
    #[must_use]
    pub fn first(&self) -> Option<IpAddr> {
        self.item(0)
    }

    /// Returns the last address, if there is one.
    #[must_use]
    pub fn last(&self) -> Option<IpAddr> {
        self.item(self.len.checked_sub(1)?)
    }
}

impl Range for AddressRange {
    type Item = IpAddr;

    fn len(&self) -> u128 {
        self.len
    }

    /// `min(max(16, size / 16), 256)`, none of up to 16 addresses; the size is
    /// that of the network, with the addresses that nobody gets.
    fn static_band(&self) -> u128 {
        self.static_band
    }

    fn number(&self, item: IpAddr) -> Result<u128, AllocationError> {
        if item.is_ipv4() != self.network.addr().is_ipv4() {
            return Err(AllocationError::mismatched_family(&item, self));
        }
        bits(item)
            .checked_sub(bits(self.network.addr()))
            .and_then(|offset| offset.checked_sub(1))
            .filter(|number| *number < self.len)
            .ok_or_else(|| AllocationError::not_in_range(&item, self))
    }

    fn item(&self, number: u128) -> Option<IpAddr> {
        if number >= self.len {
            return None;
        }
        // The last one is an address of the network: nothing overflows.
        let offset = number + 1;
        Some(match self.network.addr() {
            IpAddr::V4(first) => Ipv4Addr::from(first.to_bits() + offset as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from(first.to_bits() + offset).into(),
        })
    }

    /// Returns the first 65,535 addresses of IPv6, and all of IPv4.
    fn bitmap_range(&self) -> Result<Self, RangeError> {
        Self::for_bitmap(self.network)
    }
}

impl FromStr for AddressRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let network = text.parse().map_err(|_| RangeError::Syntax {
            text: text.into(),
            what: "network in CIDR notation",
        })?;
        Self::new(network)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.network.fmt(f)
    }
}

/// Returns how many items the lower band of a range has: a part of all, within
/// 16 and a limit, and none of a range of up to 16.
pub(crate) fn band(size: u128, part: u128, most: u128) -> u128 {
    if size <= 16 {
        0
    } else {
        (size / part).clamp(16, most)
    }
}

/// Returns how many addresses a network has, unless these are 2^128.
fn size(network: IpNet) -> Option<u128> {
    let bits = network.max_prefix_len() - network.prefix_len();
    1_u128.checked_shl(bits.into())
}

/// Returns an address as a number.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns the address of a number.
pub(crate) fn address(bits: u128, is_ipv4: bool) -> Option<IpAddr> {
    if is_ipv4 {
        Some(Ipv4Addr::from(u32::try_from(bits).ok()?).into())
    } else {
        Some(Ipv6Addr::from(bits).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    #[test]
    fn bands_are_those_of_kubernetes() {
        for (network, len, lower) in [
            ("10.0.0.1/32", 0, 0),
            ("10.0.0.0/31", 0, 0),
            ("10.0.0.0/30", 2, 0),
            ("10.0.0.0/28", 14, 0),
            ("10.0.0.0/27", 30, 16),
            ("10.0.0.0/24", 254, 16),
            ("10.0.0.0/23", 510, 32),
            ("10.0.0.0/22", 1022, 64),
            ("10.0.0.0/20", 4094, 256),
            ("10.0.0.0/16", 65_534, 256),
            ("10.0.0.0/8", 16_777_214, 256),
            ("0.0.0.0/0", 4_294_967_294, 256),
            ("fd00::1/128", 0, 0),
            ("fd00::/124", 15, 0),
            ("fd00::/122", 63, 16),
            ("fd00::/112", 65_535, 256),
            ("fd00::/108", 1_048_575, 256),
            ("fd00::/64", u128::from(u64::MAX), 256),
            ("::/0", u128::MAX, 256),
        ] {
            let range = range(network);
            assert_eq!(
                (range.len(), range.static_band()),
                (len, lower),
                "{network}"
            );
        }
    }

    #[test]
    fn the_first_and_of_ipv4_the_last_address_are_nobodys() {
        let small = range("10.0.0.0/29");
        assert_eq!(small.first().unwrap().to_string(), "10.0.0.1");
        assert_eq!(small.last().unwrap().to_string(), "10.0.0.6");
        for outside in ["10.0.0.0", "10.0.0.7", "10.0.0.8", "9.255.255.255"] {
            let error = small.number(outside.parse().unwrap()).unwrap_err();
            assert!(
                matches!(error, AllocationError::NotInRange { .. }),
                "{error}"
            );
        }
        assert_eq!(range("fd00::/125").last().unwrap().to_string(), "fd00::7");
        assert_eq!(
            range("::/0").last().unwrap(),
            IpAddr::V6(Ipv6Addr::from(u128::MAX))
        );
        assert_eq!(range("10.0.0.1/32").first(), None);
    }

    #[test]
    fn the_old_bitmap_has_its_limits() {
        let classic = |text: &str| AddressRange::for_bitmap(text.parse().unwrap());
        assert_eq!(classic("fd00::/108").unwrap().len(), 65_535);
        assert_eq!(classic("10.0.0.0/12").unwrap().len(), 1_048_574);
        for (large, longest) in [("10.0.0.0/8", "/12"), ("fd00::/64", "/108")] {
            let error = classic(large).unwrap_err().to_string();
            assert!(error.contains(longest), "{error}");
        }
    }

    #[test]
    fn stored_networks_are_read_in_every_form() {
        for (text, network) in [
            ("10.0.0.0/24", "10.0.0.0/24"),
            ("10.0.0.1/24", "10.0.0.0/24"),
            ("010.0.0.0/024", "10.0.0.0/24"),
            ("FD00:0::1/64", "fd00::/64"),
        ] {
            assert_eq!(
                AddressRange::parse_stored(text),
                Ok(range(network)),
                "{text}"
            );
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "a/8",
            "::ffff:10.0.0.0/120",
        ] {
            let error = AddressRange::parse_stored(text);
            assert!(matches!(error, Err(RangeError::Syntax { .. })), "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_told() {
        for (text, part) in [
            ("", "is no network"),
            ("10.0.0.0", "is no network"),
            ("10.0.0.0/33", "is no network"),
            ("10.0.0.5/24", "the network is 10.0.0.0/24"),
            ("fd00::1/64", "the network is fd00::/64"),
            ("::ffff:10.0.0.0/120", "IPv4-mapped"),
        ] {
            let error = text.parse::<AddressRange>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
