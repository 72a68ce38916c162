//! Losses of packets that neither a rule nor a route decides.

use std::fmt;

use vipline_nftables::Family;

use super::interface::Interface;

/// Reason why a host loses a packet apart from rules and routes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// The interface is down, or has no carrier.
    LinkDown(Interface),
    /// The interface received the packet, and does not forward packets of the family: sysctl
    /// `net.ipv4.conf.NAME.forwarding`, which `net.ipv4.ip_forward` sets for all interfaces, or
    /// `net.ipv6.conf.all.forwarding`.
    NotForwarded(Interface, Family),
    /// The interface received the packet, and its reverse path filter drops the packet: sysctl
    /// `net.ipv4.conf.NAME.rp_filter`.
    ReversePath(Interface, ReversePath),
}

/// Reverse path filter of an interface (RFC 3704).
///
/// Exhaustive: these are the values of the sysctl besides 0.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReversePath {
    /// 1: the route to the source must lead through the interface.
    Strict,
    /// 2: the source must have a route.
    Loose,
}

impl ReversePath {
    /// Returns the filter of a value of the sysctl. `None`: packets are not filtered.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Strict),
            2 => Some(Self::Loose),
            _ => None,
        }
    }

    /// Returns the value of the sysctl.
    pub fn number(self) -> u8 {
        match self {
            Self::Strict => 1,
            Self::Loose => 2,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown(interface) => write!(f, "link {} is down", interface.name),
            Self::NotForwarded(interface, Family::Ip6) => write!(
                f,
                "this node does not forward IPv6 packets, such as those from {}: \
                 net.ipv6.conf.all.forwarding is 0",
                interface.name
            ),
            Self::NotForwarded(interface, _) => write!(
                f,
                "this node does not forward packets from {}: net.ipv4.ip_forward, or \
                 net.ipv4.conf.{}.forwarding, is 0",
                interface.name, interface.name
            ),
            Self::ReversePath(interface, filter) => {
                write!(
                    f,
                    "the reverse path filter of {} (net.ipv4.conf.{}.rp_filter, or that of all \
                     interfaces, is {}) drops packets whose source ",
                    interface.name,
                    interface.name,
                    filter.number()
                )?;
                f.write_str(match filter {
                    ReversePath::Strict => "has its route through another interface",
                    ReversePath::Loose => "has no route",
                })
            }
        }
    }
}
