//! Lenient parsing of addresses and networks, for objects of old API servers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Parses an address in any form that older API servers accepted.
///
/// Octets of an IPv4 address are decimal, even with leading zeros. An
/// IPv4-mapped IPv6 address is returned as IPv4 address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    parse_family_form(text).map(|addr| addr.to_canonical())
}

/// Parses a network in CIDR notation, as leniently as [`parse_address`].
///
/// Clears the host bits.
pub fn parse_network(text: &str) -> Option<IpNet> {
    let (addr, prefix) = text.split_once('/')?;
    let prefix = decimal(prefix)?;
    match parse_family_form(addr)? {
        IpAddr::V4(addr) => Some(Ipv4Net::new(addr, prefix).ok()?.trunc().into()),
        IpAddr::V6(addr) => match (addr.to_ipv4_mapped(), prefix.checked_sub(96)) {
            (Some(addr), Some(prefix)) => Some(Ipv4Net::new(addr, prefix).ok()?.trunc().into()),
            _ => Some(Ipv6Net::new(addr, prefix).ok()?.trunc().into()),
        },
    }
}

/// Parses an address without converting IPv4-mapped addresses.
fn parse_family_form(text: &str) -> Option<IpAddr> {
    if let Ok(addr) = text.parse() {
        return Some(addr);
    }
    let Some(colon) = text.rfind(':') else {
        return padded_ipv4(text).map(IpAddr::V4);
    };
    let (groups, tail) = text.split_at_checked(colon + 1)?;
    let [a, b, c, d] = padded_ipv4(tail)?.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    format!("{groups}{high:x}:{low:x}")
        .parse::<Ipv6Addr>()
        .ok()
        .map(IpAddr::V6)
}

fn padded_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = text.split('.').map(decimal);
    let addr = Ipv4Addr::new(
        octets.next()??,
        octets.next()??,
        octets.next()??,
        octets.next()??,
    );
    octets.next().is_none().then_some(addr)
}

/// Parses a decimal number. Leading zeros are allowed, a sign is not.
fn decimal(text: &str) -> Option<u8> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Class of a special-purpose address that must not be an endpoint or an external
/// address of a Service.
///
/// Authors of Services and EndpointSlices could otherwise direct traffic to
/// addresses that only the node itself may reach (CVE-2021-25737).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SpecialAddress {
    /// 255.255.255.255.
    Broadcast,
    /// 169.254.0.0/16 and fe80::/10.
    LinkLocal,
    /// 127.0.0.0/8 and ::1.
    Loopback,
    /// 224.0.0.0/4 and ff00::/8.
    Multicast,
    /// 0.0.0.0 and ::.
    Unspecified,
}

impl SpecialAddress {
    /// Returns the class of an address, or `None` for an address without restriction.
    pub fn of(addr: IpAddr) -> Option<Self> {
        let link_local = match addr {
            IpAddr::V4(addr) => addr.is_link_local(),
            IpAddr::V6(addr) => addr.is_unicast_link_local(),
        };
        if addr.is_unspecified() {
            Some(Self::Unspecified)
        } else if addr.is_loopback() {
            Some(Self::Loopback)
        } else if addr.is_multicast() {
            Some(Self::Multicast)
        } else if link_local {
            Some(Self::LinkLocal)
        } else if addr == IpAddr::V4(Ipv4Addr::BROADCAST) {
            Some(Self::Broadcast)
        } else {
            None
        }
    }
}

impl fmt::Display for SpecialAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broadcast => "broadcast",
            Self::LinkLocal => "link-local",
            Self::Loopback => "loopback",
            Self::Multicast => "multicast",
            Self::Unspecified => "unspecified",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_leniently_and_made_canonical() {
        for (text, expected) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0000.001", Some("10.0.0.1")),
            ("10.0.0.09", Some("10.0.0.9")),
            ("FD00:0::0001", Some("fd00::1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("::ffff:010.0.0.01", Some("10.0.0.1")),
            ("64:ff9b::010.0.0.01", Some("64:ff9b::a00:1")),
            ("", None),
            ("10.0.0", None),
            ("10.0.0.0.1", None),
            ("10.0.0.256", None),
            ("10.0.0.+1", None),
            ("10.0.0.", None),
            (" 10.0.0.1", None),
            ("fe80::1%eth0", None),
            ("10.0.0.1/32", None),
            ("web.example", None),
        ] {
            let expected = expected.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(parse_address(text), expected, "{text:?}");
        }
    }

    #[test]
    fn networks_are_parsed_leniently_and_truncated() {
        for (text, expected) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("010.1.2.3/08", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("fd00::1/64", Some("fd00::/64")),
            ("::ffff:10.1.2.3/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3/16", Some("::/16")),
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("fd00::/129", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/-1", None),
            ("10.0.0.0/8/8", None),
        ] {
            let expected = expected.map(|text| text.parse::<IpNet>().unwrap());
            assert_eq!(parse_network(text), expected, "{text:?}");
        }
    }

    #[test]
    fn special_addresses_are_classified() {
        for (text, expected) in [
            ("0.0.0.0", Some(SpecialAddress::Unspecified)),
            ("::", Some(SpecialAddress::Unspecified)),
            ("127.8.8.8", Some(SpecialAddress::Loopback)),
            ("::1", Some(SpecialAddress::Loopback)),
            ("::ffff:127.0.0.1", Some(SpecialAddress::Loopback)),
            ("169.254.169.254", Some(SpecialAddress::LinkLocal)),
            ("fe80::1", Some(SpecialAddress::LinkLocal)),
            ("febf::1", Some(SpecialAddress::LinkLocal)),
            ("224.0.0.1", Some(SpecialAddress::Multicast)),
            ("ff02::1", Some(SpecialAddress::Multicast)),
            ("255.255.255.255", Some(SpecialAddress::Broadcast)),
            ("10.0.0.1", None),
            ("169.253.0.1", None),
            ("fec0::1", None),
            ("fd00::1", None),
        ] {
            assert_eq!(
                SpecialAddress::of(parse_address(text).unwrap()),
                expected,
                "{text}"
            );
        }
    }
}
