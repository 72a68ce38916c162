//! Netlink families, the protocols of netlink sockets.

use std::fmt;

/// A netlink family, the protocol of a netlink socket (`NETLINK_*` of
/// `linux/netlink.h`).
///
/// Any number is valid: the constants are those of the header, and modules may add
/// families. The kernel rejects unknown numbers when the socket is opened.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Protocol(u8);

impl Protocol {
    /// `NETLINK_ROUTE`: links, addresses, routes, rules, queueing disciplines.
    pub const ROUTE: Self = Self(0);
    /// `NETLINK_USERSOCK`: messages between programs.
    pub const USERSOCK: Self = Self(2);
    /// `NETLINK_SOCK_DIAG`: sockets.
    pub const SOCK_DIAG: Self = Self(4);
    /// `NETLINK_XFRM`: IPsec.
    pub const XFRM: Self = Self(6);
    /// `NETLINK_SELINUX`: events of SELinux.
    pub const SELINUX: Self = Self(7);
    /// `NETLINK_ISCSI`: Open-iSCSI.
    pub const ISCSI: Self = Self(8);
    /// `NETLINK_AUDIT`: the audit subsystem.
    pub const AUDIT: Self = Self(9);
    /// `NETLINK_FIB_LOOKUP`: lookups of routes.
    pub const FIB_LOOKUP: Self = Self(10);
    /// `NETLINK_CONNECTOR`: the connector, such as process events.
    pub const CONNECTOR: Self = Self(11);
    /// `NETLINK_NETFILTER`: nf_tables, ipset, conntrack, and other nfnetlink subsystems.
    pub const NETFILTER: Self = Self(12);
    /// `NETLINK_KOBJECT_UEVENT`: device events.
    pub const KOBJECT_UEVENT: Self = Self(15);
    /// `NETLINK_GENERIC`: families with dynamic IDs, such as IPVS.
    pub const GENERIC: Self = Self(16);
    /// `NETLINK_SCSITRANSPORT`: SCSI transports.
    pub const SCSITRANSPORT: Self = Self(18);
    /// `NETLINK_RDMA`: remote direct memory access.
    pub const RDMA: Self = Self(20);
    /// `NETLINK_CRYPTO`: the crypto layer.
    pub const CRYPTO: Self = Self(21);
    /// `NETLINK_SMC`: monitoring of shared memory communications.
    pub const SMC: Self = Self(22);

    /// Creates a protocol from its number.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Returns the protocol number of `linux/netlink.h`.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the name of the number in `linux/netlink.h`, or `None` if it has no
    /// constant.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::ROUTE => "NETLINK_ROUTE",
            Self::USERSOCK => "NETLINK_USERSOCK",
            Self::SOCK_DIAG => "NETLINK_SOCK_DIAG",
            Self::XFRM => "NETLINK_XFRM",
            Self::SELINUX => "NETLINK_SELINUX",
            Self::ISCSI => "NETLINK_ISCSI",
            Self::AUDIT => "NETLINK_AUDIT",
            Self::FIB_LOOKUP => "NETLINK_FIB_LOOKUP",
            Self::CONNECTOR => "NETLINK_CONNECTOR",
            Self::NETFILTER => "NETLINK_NETFILTER",
            Self::KOBJECT_UEVENT => "NETLINK_KOBJECT_UEVENT",
            Self::GENERIC => "NETLINK_GENERIC",
            Self::SCSITRANSPORT => "NETLINK_SCSITRANSPORT",
            Self::RDMA => "NETLINK_RDMA",
            Self::CRYPTO => "NETLINK_CRYPTO",
            Self::SMC => "NETLINK_SMC",
            _ => return None,
        })
    }
}

/// Displays the name, or the number of a protocol without one.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "netlink protocol {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use netlink_sys::protocols::{
        NETLINK_AUDIT, NETLINK_CRYPTO, NETLINK_GENERIC, NETLINK_KOBJECT_UEVENT, NETLINK_NETFILTER,
        NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_XFRM,
    };

    use super::*;

    #[test]
    fn the_constants_are_those_of_the_header() {
        for (protocol, number) in [
            (Protocol::ROUTE, NETLINK_ROUTE),
            (Protocol::SOCK_DIAG, NETLINK_SOCK_DIAG),
            (Protocol::XFRM, NETLINK_XFRM),
            (Protocol::AUDIT, NETLINK_AUDIT),
            (Protocol::NETFILTER, NETLINK_NETFILTER),
            (Protocol::KOBJECT_UEVENT, NETLINK_KOBJECT_UEVENT),
            (Protocol::GENERIC, NETLINK_GENERIC),
            (Protocol::CRYPTO, NETLINK_CRYPTO),
        ] {
            assert_eq!(isize::from(protocol.number()), number, "{protocol}");
        }
    }

    #[test]
    fn a_protocol_displays_its_name_or_number() {
        assert_eq!(Protocol::SOCK_DIAG.to_string(), "NETLINK_SOCK_DIAG");
        assert_eq!(Protocol::new(31).to_string(), "netlink protocol 31");
        assert_eq!(Protocol::new(12), Protocol::NETFILTER);
    }
}
