//! Address families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// An address family: IPv4 or IPv6.
///
/// Displays as `IPv4` or `IPv6`, as in the API of Kubernetes. Programs have other names,
/// such as `inet6` of `ipset` and `ip6tables`, which the crates for these programs add.
///
/// Exhaustive: there are two IP families. Kernel interfaces with further families have types
/// of their own.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4: `AF_INET`, `NFPROTO_IPV4`.
    V4,
    /// IPv6: `AF_INET6`, `NFPROTO_IPV6`.
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    ///
    /// An IPv4-mapped address, such as `::ffff:10.0.0.1`, is an IPv6 address, as in the
    /// kernel.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the family of a network.
    #[must_use]
    pub const fn of_network(network: IpNet) -> Self {
        match network {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// Returns the other family.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// Returns the number: 2 or 10, as `AF_*` of `linux/socket.h` and as `NFPROTO_*` of
    /// `linux/netfilter.h`.
    #[must_use]
    #[doc(alias = "AF_INET")]
    #[doc(alias = "AF_INET6")]
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// Returns the family with this number, or `None` for the number of another family.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::V4),
            10 => Some(Self::V6),
            _ => None,
        }
    }

    /// Returns the name in the API of Kubernetes: `IPv4` or `IPv6`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the network of loopback addresses: 127.0.0.0/8 or ::1/128.
    #[must_use]
    pub const fn loopback(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
            Self::V6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
        }
    }
}

impl From<IpAddr> for Family {
    fn from(address: IpAddr) -> Self {
        Self::of(address)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_families_have_a_number() {
        for number in 0..=u8::MAX {
            let family = Family::from_number(number);
            assert_eq!(family.is_some(), [2, 10].contains(&number));
            assert!(family.is_none_or(|family| family.number() == number));
        }
    }

    #[test]
    fn an_address_and_its_networks_have_one_family() {
        for (text, family) in [
            ("10.0.0.1", Family::V4),
            ("::1", Family::V6),
            // The kernel treats a mapped address as an IPv6 address.
            ("::ffff:10.0.0.1", Family::V6),
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(Family::of(address), family);
            assert_eq!(Family::of_network(address.into()), family);
            assert_eq!(family.other().other(), family);
            assert_ne!(family.other(), family);
        }
    }

    #[test]
    fn loopback_addresses_are_in_the_network_of_their_family() {
        for family in Family::ALL {
            let network = family.loopback();
            assert_eq!(Family::of_network(network), family);
            assert!(network.addr().is_loopback() && network.broadcast().is_loopback());
        }
        assert_eq!(Family::ALL.map(Family::as_str), ["IPv4", "IPv6"]);
    }
}
