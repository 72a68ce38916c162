//! Table families.

use std::fmt;

/// The family of a table. It selects the packets that the table's chains see.
///
/// The numbers are those of `NFPROTO_*` in `linux/netfilter.h`. The type is not the family of
/// addresses, [`vipline_inet::Family`], because tables also exist for packets of either IP
/// family and for frames; [`From`] and [`ip`](Self::ip) convert.
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

    /// Returns the IP family of the packets, or `None` if they may have either or none.
    pub const fn ip(self) -> Option<vipline_inet::Family> {
        match self {
            Self::Ip => Some(vipline_inet::Family::V4),
            Self::Ip6 => Some(vipline_inet::Family::V6),
            Self::Inet | Self::Arp | Self::Bridge | Self::Netdev => None,
        }
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

/// Returns the family of the tables with packets of one IP family only.
impl From<vipline_inet::Family> for Family {
    fn from(family: vipline_inet::Family) -> Self {
        match family {
            vipline_inet::Family::V4 => Self::Ip,
            vipline_inet::Family::V6 => Self::Ip6,
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

    #[test]
    fn tables_of_one_ip_family_have_its_number() {
        for family in vipline_inet::Family::ALL {
            let of_tables = Family::from(family);
            assert_eq!(of_tables.number(), family.number());
            assert_eq!(of_tables.ip(), Some(family));
        }
        let others = Family::ALL.into_iter().filter(|it| it.ip().is_none());
        assert_eq!(others.count(), Family::ALL.len() - 2);
    }
}
