//! Set types and address families.

use std::fmt;

use vipline_inet::Family;

use crate::uapi::*;

/// A set type.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SetType {
    /// `bitmap:ip`: addresses, or networks of one size, within a range.
    BitmapIp,
    /// `bitmap:ip,mac`: addresses within a range, with Ethernet addresses.
    BitmapIpMac,
    /// `bitmap:port`: ports within a range.
    BitmapPort,
    /// `hash:ip`: addresses, or networks of one size.
    HashIp,
    /// `hash:ip,mac`: an address and an Ethernet address. Requires Linux 4.18.
    HashIpMac,
    /// `hash:ip,mark`: an address and a packet mark.
    HashIpMark,
    /// `hash:ip,port`: an address, a protocol and a port.
    HashIpPort,
    /// `hash:ip,port,ip`: an address, a protocol and a port, an address.
    HashIpPortIp,
    /// `hash:ip,port,net`: an address, a protocol and a port, a network.
    HashIpPortNet,
    /// `hash:mac`: Ethernet addresses.
    HashMac,
    /// `hash:net`: networks of any size.
    HashNet,
    /// `hash:net,iface`: a network and an interface.
    HashNetIface,
    /// `hash:net,net`: two networks.
    HashNetNet,
    /// `hash:net,port`: a network, a protocol and a port.
    HashNetPort,
    /// `hash:net,port,net`: a network, a protocol and a port, a network.
    HashNetPortNet,
    /// `list:set`: sets.
    ListSet,
    /// An unknown type; its entries are kept as bytes.
    Other(Box<str>),
}

impl SetType {
    /// All known types, in the order of their declaration.
    pub const ALL: [Self; 16] = [
        Self::BitmapIp,
        Self::BitmapIpMac,
        Self::BitmapPort,
        Self::HashIp,
        Self::HashIpMac,
        Self::HashIpMark,
        Self::HashIpPort,
        Self::HashIpPortIp,
        Self::HashIpPortNet,
        Self::HashMac,
        Self::HashNet,
        Self::HashNetIface,
        Self::HashNetNet,
        Self::HashNetPort,
        Self::HashNetPortNet,
        Self::ListSet,
    ];

    /// Returns the type with this name. An unknown name becomes [`Self::Other`].
    pub fn from_name(name: &str) -> Self {
        let known = Self::ALL
            .into_iter()
            .find(|set_type| set_type.as_str() == name);
        known.unwrap_or_else(|| Self::Other(name.into()))
    }

    /// Returns the name of the type.
    pub fn as_str(&self) -> &str {
        match self {
            Self::BitmapIp => "bitmap:ip",
            Self::BitmapIpMac => "bitmap:ip,mac",
            Self::BitmapPort => "bitmap:port",
            Self::HashIp => "hash:ip",
            Self::HashIpMac => "hash:ip,mac",
            Self::HashIpMark => "hash:ip,mark",
            Self::HashIpPort => "hash:ip,port",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashIpPortNet => "hash:ip,port,net",
            Self::HashMac => "hash:mac",
            Self::HashNet => "hash:net",
            Self::HashNetIface => "hash:net,iface",
            Self::HashNetNet => "hash:net,net",
            Self::HashNetPort => "hash:net,port",
            Self::HashNetPortNet => "hash:net,port,net",
            Self::ListSet => "list:set",
            Self::Other(name) => name,
        }
    }

    /// Returns the name that old versions of `ipset` have for the type, such as
    /// `iphash` for `hash:ip`. Unknown types have none.
    pub fn alias(&self) -> Option<&'static str> {
        Some(match self {
            Self::BitmapIp => "ipmap",
            Self::BitmapIpMac => "macipmap",
            Self::BitmapPort => "portmap",
            Self::HashIp => "iphash",
            Self::HashIpMac => "ipmachash",
            Self::HashIpMark => "ipmarkhash",
            Self::HashIpPort => "ipporthash",
            Self::HashIpPortIp => "ipportiphash",
            Self::HashIpPortNet => "ipportnethash",
            Self::HashMac => "machash",
            Self::HashNet => "nethash",
            Self::HashNetIface => "netifacehash",
            Self::HashNetNet => "netnethash",
            Self::HashNetPort => "netporthash",
            Self::HashNetPortNet => "netportnethash",
            Self::ListSet => "setlist",
            Self::Other(_) => return None,
        })
    }

    /// Returns whether the type is a hash type.
    pub fn is_hash(&self) -> bool {
        self.as_str().starts_with("hash:")
    }

    /// Returns the default revision of new sets.
    ///
    /// It is the first revision with all options except `bitmask`, `bucketsize` and
    /// `initval`, available since Linux 5.5.
    /// Unknown types have revision 0.
    pub(crate) fn revision(&self) -> u8 {
        match self {
            Self::HashMac | Self::HashIpMac | Self::Other(_) => 0,
            Self::HashIpMark | Self::HashNetNet | Self::HashNetPortNet => 2,
            Self::BitmapIp | Self::BitmapIpMac | Self::BitmapPort | Self::ListSet => 3,
            Self::HashIp => 4,
            Self::HashIpPort | Self::HashIpPortIp => 5,
            Self::HashNet => 6,
            Self::HashIpPortNet | Self::HashNetIface | Self::HashNetPort => 7,
        }
    }

    /// Returns whether the first element part is a network of any size.
    pub(crate) fn has_networks(&self) -> bool {
        self.as_str().starts_with("hash:net")
    }

    /// Returns whether a part of the elements is a network of any size.
    pub(crate) fn has_nomatch(&self) -> bool {
        self.has_networks() || *self == Self::HashIpPortNet
    }

    /// Returns whether the sets have a range of addresses.
    pub(crate) fn has_address_range(&self) -> bool {
        matches!(self, Self::BitmapIp | Self::BitmapIpMac)
    }

    /// Returns the family of types that support only one.
    pub(crate) fn family(&self) -> Option<SetFamily> {
        match self {
            Self::BitmapIp | Self::BitmapIpMac => Some(SetFamily::V4),
            Self::BitmapPort | Self::HashMac | Self::ListSet => Some(SetFamily::Unspecified),
            _ => None,
        }
    }
}

impl fmt::Display for SetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The address family of a set.
///
/// The numbers are `NFPROTO_*` of `linux/netfilter.h`.
///
/// Exhaustive: `Other` holds all other values.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum SetFamily {
    /// No addresses: the elements are ports or sets.
    Unspecified,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Another family, by its number.
    Other(u8),
}

impl SetFamily {
    /// Returns the family with this number.
    pub fn from_number(number: u8) -> Self {
        match number {
            NFPROTO_UNSPEC => Self::Unspecified,
            NFPROTO_IPV4 => Self::V4,
            NFPROTO_IPV6 => Self::V6,
            other => Self::Other(other),
        }
    }

    /// Returns the number of the family.
    pub fn number(self) -> u8 {
        match self {
            Self::Unspecified => NFPROTO_UNSPEC,
            Self::V4 => NFPROTO_IPV4,
            Self::V6 => NFPROTO_IPV6,
            Self::Other(number) => number,
        }
    }
}

impl From<Family> for SetFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::V4,
            Family::V6 => Self::V6,
        }
    }
}

impl fmt::Display for SetFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspecified => f.write_str("unspec"),
            Self::V4 => f.write_str("inet"),
            Self::V6 => f.write_str("inet6"),
            Self::Other(number) => write!(f, "family {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_types_have_names_and_unknown_types_keep_theirs() {
        for set_type in SetType::ALL {
            assert_eq!(SetType::from_name(set_type.as_str()), set_type);
            assert!(set_type.alias().is_some());
        }
        let other = SetType::from_name("hash:none");
        assert_eq!(other, SetType::Other("hash:none".into()));
        assert_eq!(other.to_string(), "hash:none");
        assert_eq!(other.alias(), None);
    }

    #[test]
    fn each_family_has_its_number() {
        for number in 0..=u8::MAX {
            assert_eq!(SetFamily::from_number(number).number(), number);
        }
        for family in Family::ALL {
            assert_eq!(SetFamily::from(family).number(), family.number());
        }
    }
}
