//! Table families.

use std::fmt;

/// The family of a table. It selects the packets that the table's chains see.
///
/// The numbers are those of `NFPROTO_*` in `linux/netfilter.h`.
///
/// Exhaustive: these are the families of nf_tables.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4 and IPv6 packets.
    Inet,
    /// IPv4 packets.
    Ip,
    /// IPv6 packets.
    Ip6,
    /// ARP packets.
    Arp,
    /// Frames that traverse a bridge.
    Bridge,
    /// Frames that a device receives or sends.
    Netdev,
}

impl Family {
    /// All families, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Inet,
        Self::Ip,
        Self::Ip6,
        Self::Arp,
        Self::Bridge,
        Self::Netdev,
    ];

    /// Returns the kernel's number of the family.
    #[doc(alias = "NFPROTO_INET")]
    pub const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Arp => 3,
            Self::Netdev => 5,
            Self::Bridge => 7,
            Self::Ip6 => 10,
        }
    }

    /// Returns the family with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.number() == number)
    }

    /// Returns nft's name of the family.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Arp => "arp",
            Self::Bridge => "bridge",
            Self::Netdev => "netdev",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_number_round_trips() {
        for family in Family::ALL {
            assert_eq!(Family::from_number(family.number()), Some(family));
        }
        assert_eq!(Family::from_number(4), None);
    }
}
