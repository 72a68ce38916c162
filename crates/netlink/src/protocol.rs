//! Netlink families, the protocols of netlink sockets.

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE};

/// A netlink family, the protocol of a netlink socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Protocol {
    /// `NETLINK_GENERIC`: families with dynamic IDs, such as IPVS.
    Generic,
    /// `NETLINK_NETFILTER`: nf_tables, ipset, conntrack.
    Netfilter,
    /// `NETLINK_ROUTE`: links, addresses, routes.
    Route,
}

impl Protocol {
    /// Returns the protocol number of `linux/netlink.h`.
    pub(crate) fn number(self) -> isize {
        match self {
            Self::Generic => NETLINK_GENERIC,
            Self::Netfilter => NETLINK_NETFILTER,
            Self::Route => NETLINK_ROUTE,
        }
    }
}
