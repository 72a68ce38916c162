//! Ranges to allocate from: the addresses of a network, or ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::{AllocationError, InvalidValue, parse_address};

/// A range of consecutive items, numbered from 0.
///
/// The first [`Range::static_band`] items are the static band, all others the dynamic
/// band. Dynamic allocation uses the static band only if the dynamic band is full.
/// Requests for a specific item in the static band are therefore likely to succeed.
pub trait Range: Clone + Eq + fmt::Debug + fmt::Display + FromStr<Err = InvalidValue> {
    /// Type of an item: an address or a port.
    type Item: Copy + Ord + fmt::Debug + fmt::Display;

    /// Returns the number of items.
    fn len(&self) -> u128;

    /// Returns whether the range has no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of items in the static band.
    fn static_band(&self) -> u128;

    /// Returns the number of an item.
    ///
    /// # Errors
    ///
    /// - [`AllocationError::NotInRange`]: the item is outside of the range.
    /// - [`AllocationError::MismatchedFamily`]: the address is of the other family.
    fn number(&self, item: Self::Item) -> Result<u128, AllocationError>;

    /// Returns the item with a number, or `None` beyond the range.
    fn item(&self, number: u128) -> Option<Self::Item>;

    /// Returns the part of the range that fits in a bitmap of Kubernetes.
    ///
    /// A [`RangeAllocation`](crate::RangeAllocation) cannot hold more items.
    ///
    /// # Errors
    ///
    /// [`InvalidValue::TooLarge`]: Kubernetes does not support a bitmap for the range.
    fn bitmap_range(&self) -> Result<Self, InvalidValue> {
        Ok(self.clone())
    }
}

/// The addresses of a network that can be cluster IPs.
///
/// As in Kubernetes, the first address and, with IPv4, the last address are excluded.
/// An IPv4 network with prefix length 31 or 32 has no addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AddressRange {
    network: IpNet,
    len: u128,
    static_band: u128,
}

impl AddressRange {
    /// Maximum number of host bits of a bitmap of Kubernetes.
    const CLASSIC_BITS: u8 = 20;

    /// Size of the part of an IPv6 network that the bitmap covers.
    const CLASSIC_LEN: u128 = 65_536;

    /// Returns the range of a network.
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::HostBits`]: the network has host bits set.
    /// - [`InvalidValue::Mapped`]: the network is an IPv4-mapped IPv6 network.
    pub fn new(network: IpNet) -> Result<Self, InvalidValue> {
        if network.addr() != network.network() {
            return Err(InvalidValue::HostBits { network });
        }
        if let IpAddr::V6(address) = network.addr()
            && address.to_ipv4_mapped().is_some()
            && network.prefix_len() >= 96
        {
            return Err(InvalidValue::Mapped { network });
        }
        let excluded = match network {
            IpNet::V4(_) => 2,
            IpNet::V6(_) => 1,
        };
        // 2^128 addresses without the first one are `u128::MAX`.
        let len = match size(network) {
            Some(size) => size.saturating_sub(excluded),
            None => u128::MAX,
        };
        let static_band = band(size(network).unwrap_or(u128::MAX), 16, 256);
        Ok(Self {
            network,
            len,
            static_band,
        })
    }

    /// Returns the range that Kubernetes keeps in a bitmap for a network.
    ///
    /// The range has at most the first 65,535 addresses of an IPv6 network.
    ///
    /// # Errors
    ///
    /// [`InvalidValue::TooLarge`]: the prefix is shorter than /12 (IPv4) or /108 (IPv6).
    /// All other errors are those of [`Self::new`].
    pub fn for_bitmap(network: IpNet) -> Result<Self, InvalidValue> {
        let range = Self::new(network)?;
        let longest = network.max_prefix_len() - Self::CLASSIC_BITS;
        if network.prefix_len() < longest {
            return Err(InvalidValue::TooLarge { network, longest });
        }
        let len = match network {
            IpNet::V4(_) => range.len,
            IpNet::V6(_) => range.len.min(Self::CLASSIC_LEN - 1),
        };
        Ok(Self { len, ..range })
    }

    /// Parses a network in every form that kube-apiserver has stored.
    ///
    /// ```text
    /// 010.0.0.1/24 → 10.0.0.0/24    leading zeros and host bits
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidValue::Syntax`]: the text is not a network.
    pub fn parse_stored(text: &str) -> Result<Self, InvalidValue> {
        let syntax = || InvalidValue::Syntax {
            text: text.into(),
            what: "network in CIDR notation",
        };
        let (address, prefix) = text.split_once('/').ok_or_else(syntax)?;
        // `parse_network` converts IPv4-mapped networks, of which no range consists.
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

    /// Returns the first address, or `None` for an empty range.
    #[must_use]
    pub fn first(&self) -> Option<IpAddr> {
        self.item(0)
    }

    /// Returns the last address, or `None` for an empty range.
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

    /// Returns `min(max(16, size / 16), 256)`, or 0 for up to 16 addresses.
    ///
    /// `size` is the size of the network, including the excluded addresses.
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
        // The sum is an address of the network and cannot overflow.
        let offset = number + 1;
        Some(match self.network.addr() {
            IpAddr::V4(first) => Ipv4Addr::from(first.to_bits() + offset as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from(first.to_bits() + offset).into(),
        })
    }

    /// Returns all addresses of an IPv4 network, and the first 65,535 of an IPv6 network.
    fn bitmap_range(&self) -> Result<Self, InvalidValue> {
        Self::for_bitmap(self.network)
    }
}

impl FromStr for AddressRange {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let network = text.parse().map_err(|_| InvalidValue::Syntax {
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

/// Returns the size of the static band: `size / part`, clamped to `16..=most`, or 0
/// for a range of up to 16 items.
pub(crate) fn band(size: u128, part: u128, most: u128) -> u128 {
    if size <= 16 {
        0
    } else {
        (size / part).clamp(16, most)
    }
}

/// Returns the number of addresses of a network, or `None` for 2^128.
fn size(network: IpNet) -> Option<u128> {
    let bits = network.max_prefix_len() - network.prefix_len();
    1_u128.checked_shl(bits.into())
}

/// Converts an address to a number.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Converts a number to an address.
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
    fn the_first_address_and_with_ipv4_the_last_are_excluded() {
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
    fn bitmap_ranges_have_the_limits_of_kubernetes() {
        let for_bitmap = |text: &str| AddressRange::for_bitmap(text.parse().unwrap());
        assert_eq!(for_bitmap("fd00::/108").unwrap().len(), 65_535);
        assert_eq!(for_bitmap("10.0.0.0/12").unwrap().len(), 1_048_574);
        for (large, longest) in [("10.0.0.0/8", "/12"), ("fd00::/64", "/108")] {
            let error = for_bitmap(large).unwrap_err().to_string();
            assert!(error.contains(longest), "{error}");
        }
    }

    #[test]
    fn stored_networks_are_parsed_in_every_form() {
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
            assert!(matches!(error, Err(InvalidValue::Syntax { .. })), "{text}");
        }
    }

    #[test]
    fn invalid_ranges_are_reported() {
        for (text, part) in [
            ("", "is not a network"),
            ("10.0.0.0", "is not a network"),
            ("10.0.0.0/33", "is not a network"),
            ("10.0.0.5/24", "the network is 10.0.0.0/24"),
            ("fd00::1/64", "the network is fd00::/64"),
            ("::ffff:10.0.0.0/120", "IPv4-mapped"),
        ] {
            let error = text.parse::<AddressRange>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
