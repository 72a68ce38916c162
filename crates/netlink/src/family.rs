//! Address families.

use std::fmt;
use std::net::IpAddr;

/// An address family: IPv4 or IPv6.
///
/// The set of families is complete: kernel interfaces with further families have types
/// of their own. Displays as `ipv4` or `ipv6`.
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
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the number of the family, equal for `AF_*` and `NFPROTO_*`.
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// Returns the family with this number, or `None` for another family.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::V4),
            10 => Some(Self::V6),
            _ => None,
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
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
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
    fn an_address_has_a_family() {
        let of = |address: &str| Family::of(address.parse().unwrap());
        assert_eq!([of("10.0.0.1"), of("::1")], Family::ALL);
        // The kernel treats a mapped address as an IPv6 address.
        assert_eq!(of("::ffff:10.0.0.1"), Family::V6);
    }
}
