//! Ranges of addresses and ports in filters.

use std::fmt;
use std::net::IpAddr;

/// A network: the addresses that start with the same bits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
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
        let address = masked(address, prefix_len)?;
        Some(Self {
            address,
            prefix_len,
        })
    }

    /// Returns the first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix, in bits.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Returns whether the network contains an address. Networks of one family contain no
    /// addresses of the other.
    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.prefix_len) == Some(self.address)
    }

    /// Returns the only address of the network, if there is one.
    pub(crate) fn single(self) -> Option<IpAddr> {
        Some(self.address).filter(|address| self.prefix_len == length(*address))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            prefix_len: length(address),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// Returns the length of an address, in bits.
fn length(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Sets the bits after the prefix to zero.
fn masked(address: IpAddr, prefix_len: u8) -> Option<IpAddr> {
    let rest = u32::from(length(address).checked_sub(prefix_len)?);
    Some(match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    })
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
}
