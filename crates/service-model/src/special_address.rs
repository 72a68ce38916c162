//! Special-purpose addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

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

/// Returns whether an address is valid on one link only: loopback or IPv6 link-local.
///
/// IPv4 link-local addresses do not count.
pub fn is_of_one_link(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.is_loopback(),
        IpAddr::V6(addr) => addr.is_loopback() || addr.is_unicast_link_local(),
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
    use crate::parse_address;

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
