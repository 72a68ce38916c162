//! Ranges of addresses and ports in filters.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// A network: the addresses whose bits under a mask are equal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Network {
    address: IpAddr,
    mask: IpAddr,
}

impl Network {
    /// Creates a network. Returns `None` if the prefix is longer than the address.
    ///
    /// Bits after the prefix are ignored.
    ///
    /// ```
    /// use vipline_conntrack::Network;
    ///
    /// let network = Network::new("10.1.2.3".parse()?, 8).expect("a valid prefix");
    /// assert!(network.contains("10.9.0.1".parse()?));
    /// assert_eq!(network.to_string(), "10.0.0.0/8");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        let rest = u32::from(length(address).checked_sub(prefix_len)?);
        let mask = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::MAX.checked_shl(rest).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(u128::MAX.checked_shl(rest).unwrap_or(0).into()),
        };
        Self::with_mask(address, mask)
    }

    /// Creates a network with a mask of any bits, like `conntrack --mask-src`. Returns
    /// `None` if the mask is of the other family.
    ///
    /// Bits that the mask lacks are ignored.
    ///
    /// ```
    /// use vipline_conntrack::Network;
    ///
    /// let network = Network::with_mask("10.1.2.3".parse()?, "255.0.0.255".parse()?);
    /// let network = network.expect("one family");
    /// assert!(network.contains("10.9.9.3".parse()?));
    /// assert_eq!(network.to_string(), "10.0.0.3/255.0.0.255");
    /// assert_eq!(network.prefix_len(), None);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn with_mask(address: IpAddr, mask: IpAddr) -> Option<Self> {
        let address = and(address, mask)?;
        Some(Self { address, mask })
    }

    /// Returns the first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the mask.
    pub fn mask(self) -> IpAddr {
        self.mask
    }

    /// Returns the length of the prefix, in bits. Returns `None` if the mask is no prefix.
    pub fn prefix_len(self) -> Option<u8> {
        let (ones, is_prefix) = match self.mask {
            IpAddr::V4(mask) => {
                let bits = u32::from(mask);
                (
                    bits.leading_ones(),
                    bits.leading_ones() == bits.count_ones(),
                )
            }
            IpAddr::V6(mask) => {
                let bits = u128::from(mask);
                (
                    bits.leading_ones(),
                    bits.leading_ones() == bits.count_ones(),
                )
            }
        };
        u8::try_from(ones).ok().filter(|_| is_prefix)
    }

    /// Returns whether the network contains an address. Networks of one family contain no
    /// addresses of the other.
    pub fn contains(self, address: IpAddr) -> bool {
        and(address, self.mask) == Some(self.address)
    }

    /// Returns the only address of the network, if there is one.
    pub(crate) fn single(self) -> Option<IpAddr> {
        Some(self.address).filter(|address| self.prefix_len() == Some(length(*address)))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let mask = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::BROADCAST),
            IpAddr::V6(_) => IpAddr::V6(u128::MAX.into()),
        };
        Self { address, mask }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_len() {
            Some(len) => write!(f, "{}/{len}", self.address),
            None => write!(f, "{}/{}", self.address, self.mask),
        }
    }
}

/// Returns the length of an address, in bits.
fn length(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns the bits under a mask. Returns `None` for different families.
fn and(address: IpAddr, mask: IpAddr) -> Option<IpAddr> {
    match (address, mask) {
        (IpAddr::V4(ip), IpAddr::V4(mask)) => Some(IpAddr::V4(ip & mask)),
        (IpAddr::V6(ip), IpAddr::V6(mask)) => Some(IpAddr::V6(ip & mask)),
        _ => None,
    }
}

/// A range of addresses, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// Creates a range. Returns `None` if the ends are of different families, or the last
    /// address is less than the first.
    ///
    /// ```
    /// use vipline_conntrack::AddressRange;
    ///
    /// let range = AddressRange::new("10.0.0.9".parse()?, "10.0.1.4".parse()?);
    /// let range = range.expect("ordered ends of one family");
    /// assert!(range.contains("10.0.1.0".parse()?));
    /// assert_eq!(range.to_string(), "10.0.0.9-10.0.1.4");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let is_range = first.is_ipv4() == last.is_ipv4() && first <= last;
        is_range.then_some(Self { first, last })
    }

    /// Returns the first address.
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// Returns the last address.
    pub fn last(self) -> IpAddr {
        self.last
    }

    /// Returns whether the range contains an address. Ranges of one family contain no
    /// addresses of the other.
    pub fn contains(self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port. A range whose last port is less than the first is empty.
    pub last: u16,
}

impl PortRange {
    /// Creates a range.
    pub fn new(first: u16, last: u16) -> Self {
        Self { first, last }
    }

    /// Returns whether the range contains a port.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Returns the only port of the range, if there is one.
    pub(crate) fn single(self) -> Option<u16> {
        Some(self.first).filter(|port| *port == self.last)
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self::new(port, port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_the_addresses_of_their_prefix() {
        let network = |text: &str, prefix| Network::new(text.parse().unwrap(), prefix);
        let contains = |text: &str, prefix, address: &str| {
            network(text, prefix)
                .unwrap()
                .contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0", 31, "10.0.0.1"));
        assert!(!contains("10.0.0.0", 31, "10.0.0.2"));
        assert!(contains("10.0.0.0", 0, "255.0.0.2"));
        assert!(!contains("::", 0, "255.0.0.2"));
        assert!(contains("fd00::", 64, "fd00::ffff:1"));
        assert!(contains("fd00::1", 128, "fd00::1"));
        assert_eq!(network("10.0.0.0", 33), None);
        assert_eq!(network("::", 129), None);
    }

    #[test]
    fn ranges_contain_the_addresses_between_their_ends() {
        let range = |first: &str, last: &str| {
            AddressRange::new(first.parse().unwrap(), last.parse().unwrap())
        };
        let contains = |range: Option<AddressRange>, address: &str| {
            range.unwrap().contains(address.parse().unwrap())
        };
        let v4 = range("10.0.0.9", "10.0.1.4");
        let inside = ["10.0.0.9", "10.0.0.255", "10.0.1.4"];
        assert!(inside.iter().all(|address| contains(v4, address)));
        let outside = ["10.0.0.8", "10.0.1.5", "::ffff:10.0.1.0"];
        assert!(outside.iter().all(|address| !contains(v4, address)));
        let v6 = range("fd00::9", "fd00::1:0");
        assert!(contains(v6, "fd00::ffff") && !contains(v6, "10.0.1.0"));
        assert!(contains(range("::", "::"), "::"));
        assert_eq!(range("10.0.0.2", "10.0.0.1"), None);
        assert_eq!(range("10.0.0.1", "::"), None);
    }

    #[test]
    fn masks_need_not_be_prefixes() {
        let mask = |address: &str, mask: &str| {
            Network::with_mask(address.parse().unwrap(), mask.parse().unwrap())
        };
        let network = mask("10.9.0.2", "255.0.255.255").unwrap();
        assert!(network.contains("10.1.0.2".parse().unwrap()));
        assert!(!network.contains("10.1.0.3".parse().unwrap()));
        assert_eq!((network.prefix_len(), network.single()), (None, None));
        assert_eq!(network.to_string(), "10.0.0.2/255.0.255.255");
        let network = mask("fd00::1", "ffff::").unwrap();
        assert_eq!(network.prefix_len(), Some(16));
        assert_eq!(mask("10.0.0.1", "ffff::"), None);
    }
}
