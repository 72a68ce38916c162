//! Set types and address families.

use std::fmt;

use vipline_netlink::Family;

/// A set type.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SetType {
    /// `bitmap:ip`: addresses, or networks of one size, within a range.
    BitmapIp,
    /// `bitmap:port`: ports within a range.
    BitmapPort,
    /// `hash:ip`: addresses, or networks of one size.
    HashIp,
    /// `hash:ip,port`: an address, a protocol and a port.
    HashIpPort,
    /// `hash:ip,port,ip`: an address, a protocol and a port, an address.
    HashIpPortIp,
    /// `hash:ip,port,net`: an address, a protocol and a port, a network.
    HashIpPortNet,
    /// `hash:net`: networks of any size.
    HashNet,
    /// `hash:net,port`: a network, a protocol and a port.
    HashNetPort,
    /// `list:set`: sets.
    ListSet,
    /// An unknown type; its entries are kept as bytes.
    Other(Box<str>),
}

impl SetType {
    /// All known types, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::BitmapIp,
        Self::BitmapPort,
        Self::HashIp,
        Self::HashIpPort,
        Self::HashIpPortIp,
        Self::HashIpPortNet,
        Self::HashNet,
        Self::HashNetPort,
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
            Self::BitmapPort => "bitmap:port",
            Self::HashIp => "hash:ip",
            Self::HashIpPort => "hash:ip,port",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashIpPortNet => "hash:ip,port,net",
            Self::HashNet => "hash:net",
            Self::HashNetPort => "hash:net,port",
            Self::ListSet => "list:set",
            Self::Other(name) => name,
        }
    }

    /// Returns whether the type is a hash type.
    pub fn is_hash(&self) -> bool {
        self.as_str().starts_with("hash:")
    }

    /// Returns the default revision of new sets.
    ///
    /// It is the first revision with all options except `bucketsize` and `initval`,
    /// available since Linux 3.18.
    /// Unknown types have revision 0.
    pub(crate) fn revision(&self) -> u8 {
        match self {
            Self::BitmapIp | Self::BitmapPort | Self::ListSet => 3,
            Self::HashIp => 4,
            Self::HashIpPort | Self::HashIpPortIp => 5,
            Self::HashNet => 6,
            Self::HashIpPortNet | Self::HashNetPort => 7,
            Self::Other(_) => 0,
        }
    }

    /// Returns whether the first element part is a network of any size.
    pub(crate) fn has_networks(&self) -> bool {
        matches!(self, Self::HashNet | Self::HashNetPort)
    }

    /// Returns the family of types that support only one.
    pub(crate) fn family(&self) -> Option<SetFamily> {
        match self {
            Self::BitmapIp => Some(SetFamily::V4),
            Self::BitmapPort | Self::ListSet => Some(SetFamily::Unspecified),
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
            0 => Self::Unspecified,
            2 => Self::V4,
            10 => Self::V6,
            other => Self::Other(other),
        }
    }

    /// Returns the number of the family.
    pub fn number(self) -> u8 {
        match self {
            Self::Unspecified => 0,
            Self::V4 => 2,
            Self::V6 => 10,
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
        }
        let other = SetType::from_name("hash:mac");
        assert_eq!(other, SetType::Other("hash:mac".into()));
        assert_eq!(other.to_string(), "hash:mac");
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
