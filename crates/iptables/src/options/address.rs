//! Addresses and networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::options::field::{Value, word_values};
use crate::options::number;
use crate::options::{Unsupported, Values};

/// An address and a mask in a rule, as `10.0.0.0/8` or with a non-contiguous mask.
///
/// ```
/// use vipline_iptables::Network;
///
/// let network = Network::from("10.0.0.0/14".parse::<ipnet::IpNet>()?);
/// assert_eq!(network.to_string(), "10.0.0.0/14");
/// let holes = Network::masked("10.0.0.7".parse()?, "255.0.255.0".parse()?);
/// assert_eq!(holes.unwrap().to_string(), "10.0.0.0/255.0.255.0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Network(Kind);

/// Invariant: no address bit outside the mask is set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Kind {
    /// The mask is a prefix length.
    Prefix(IpNet),
    /// The mask is non-contiguous.
    V4(Ipv4Addr, Ipv4Addr),
    /// The mask is non-contiguous.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Network {
    /// Creates a network from an address and a mask. Returns `None` if their
    /// families differ.
    pub fn masked(address: IpAddr, mask: IpAddr) -> Option<Self> {
        let kind = match (address, mask) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => Kind::V4(address & mask, mask),
            (IpAddr::V6(address), IpAddr::V6(mask)) => Kind::V6(address & mask, mask),
            _ => return None,
        };
        match IpNet::with_netmask(address, mask) {
            Ok(network) => Some(network.into()),
            Err(_) => Some(Self(kind)),
        }
    }

    /// Returns the network if the mask is a prefix length.
    pub fn prefix(&self) -> Option<IpNet> {
        match self.0 {
            Kind::Prefix(network) => Some(network),
            Kind::V4(..) | Kind::V6(..) => None,
        }
    }

    /// Returns whether the network contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.0, address) {
            (Kind::Prefix(network), _) => network.contains(&address),
            (Kind::V4(wanted, mask), IpAddr::V4(address)) => address & mask == wanted,
            (Kind::V6(wanted, mask), IpAddr::V6(address)) => address & mask == wanted,
            _ => false,
        }
    }

    /// Returns whether the network contains every address of its family.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self.0, Kind::Prefix(network) if network.prefix_len() == 0)
    }

    /// Returns whether the network has IPv4 addresses.
    pub(crate) fn is_ipv4(&self) -> bool {
        match self.0 {
            Kind::Prefix(network) => network.addr().is_ipv4(),
            Kind::V4(..) => true,
            Kind::V6(..) => false,
        }
    }

    /// Returns address and mask.
    pub fn parts(&self) -> (IpAddr, IpAddr) {
        match self.0 {
            Kind::Prefix(network) => (network.addr(), network.netmask()),
            Kind::V4(address, mask) => (address.into(), mask.into()),
            Kind::V6(address, mask) => (address.into(), mask.into()),
        }
    }

    /// Parses an address with an optional prefix length or mask.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(network) = parse_prefix(text) {
            return Some(network.into());
        }
        let (address, mask) = text.split_once('/')?;
        Self::masked(address.parse().ok()?, mask.parse().ok()?)
    }
}

/// Parses an address with an optional prefix length, or a mask that is a prefix.
pub(crate) fn parse_prefix(text: &str) -> Option<IpNet> {
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let address: IpAddr = address.parse().ok()?;
    if let Some(len) = number::parse_as(mask) {
        return IpNet::new(address, len).ok();
    }
    let mask: IpAddr = mask.parse().ok()?;
    let network = IpNet::with_netmask(address, mask).ok()?;
    (address.is_ipv4() == mask.is_ipv4()).then_some(network)
}

impl From<IpNet> for Network {
    fn from(network: IpNet) -> Self {
        Self(Kind::Prefix(network.trunc()))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(Kind::Prefix(address.into()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Prefix(network) => {
                write!(f, "{}/{}", Address(network.addr()), network.prefix_len())
            }
            Kind::V4(address, mask) => write!(f, "{address}/{mask}"),
            Kind::V6(address, mask) => {
                write!(f, "{}/{}", Address(address.into()), Address(mask.into()))
            }
        }
    }
}

/// Prints a network, or only the address if the prefix has full length.
pub(crate) struct Bare(pub(crate) IpNet);

impl fmt::Display for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address(self.0.addr()).fmt(f)?;
        if self.0.prefix_len() < self.0.max_prefix_len() {
            write!(f, "/{}", self.0.prefix_len())?;
        }
        Ok(())
    }
}

/// Prints an address like `inet_ntop`.
///
/// The last 32 bits of an IPv6 address are printed as an IPv4 address if all bits
/// before them are zero.
pub(crate) struct Address(pub(crate) IpAddr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(address) => match address.segments() {
                [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
                    let [.., a, b, c, d] = address.octets();
                    write!(f, "::{}", Ipv4Addr::new(a, b, c, d))
                }
                _ => address.fmt(f),
            },
            IpAddr::V4(address) => address.fmt(f),
        }
    }
}

/// A network with its host bits, whose length is always printed.
impl Value<'_> for IpNet {
    fn take(_: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        values.parse(parse_prefix)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " {option} {}/{}",
            Address(self.addr()),
            self.prefix_len()
        )
    }
}

impl Value<'_> for IpAddr {
    fn take(_: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        values.parse(|text| text.parse().ok())
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {}", Address(*self))
    }
}

word_values! { Network = Network::parse, }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_print_as_iptables_prints_them() {
        let table = [
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.1.2.3/14", "10.0.0.0/14"),
            ("10.0.0.0/255.255.0.0", "10.0.0.0/16"),
            ("10.9.0.7/255.0.255.255", "10.0.0.7/255.0.255.255"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("fd00::1", "fd00::1/128"),
            ("fd00::1/64", "fd00::/64"),
            ("fd00::5/ffff::ffff", "fd00::5/ffff::ffff"),
            ("::1", "::1/128"),
            ("::1.2.3.4", "::1.2.3.4/128"),
            ("::1:0", "::0.1.0.0/128"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4/128"),
            ("::ffff:0:0/96", "::ffff:0.0.0.0/96"),
            ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1/128"),
            ("2001:0:0:1:0:0:0:1", "2001:0:0:1::1/128"),
        ];
        for (text, printed) in table {
            let network = Network::parse(text).unwrap();
            assert_eq!(network.to_string(), printed, "{text}");
            assert_eq!(Network::parse(printed), Some(network), "{text}");
        }
        for text in ["", "a", "10.0.0.1/33", "10.0.0.1/::", "::/129", "10.0.0.1/"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_non_contiguous_mask_ignores_bits() {
        let network = Network::parse("10.0.7.0/255.0.255.0").unwrap();
        assert!(network.contains("10.9.7.9".parse().unwrap()));
        assert!(!network.contains("10.9.8.9".parse().unwrap()));
        assert!(!network.contains("::1".parse().unwrap()));
        assert_eq!(network.prefix(), None);
    }
}
