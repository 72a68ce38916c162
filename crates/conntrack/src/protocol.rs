//! Transport protocols.

use std::fmt;

/// An IP protocol number.
///
/// Exhaustive: a protocol is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// DCCP.
    pub const DCCP: Self = Self(33);
    /// GRE, with keys instead of ports.
    pub const GRE: Self = Self(47);
    /// ICMPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);
    /// UDP-Lite.
    pub const UDPLITE: Self = Self(136);

    /// Returns the name in the output of `conntrack`, or `None` for another protocol.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::ICMP => "icmp",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::DCCP => "dccp",
            Self::GRE => "gre",
            Self::ICMPV6 => "icmpv6",
            Self::SCTP => "sctp",
            Self::UDPLITE => "udplite",
            _ => return None,
        })
    }

    /// Returns whether `conntrack` prints ports of this protocol.
    pub(crate) fn has_ports(self) -> bool {
        matches!(
            self,
            Self::TCP | Self::UDP | Self::DCCP | Self::SCTP | Self::UDPLITE
        )
    }

    /// Returns whether the kernel compares ports of this protocol in filters.
    ///
    /// For other protocols the kernel accepts ports but ignores them.
    pub(crate) fn has_ports_in_kernel_filters(self) -> bool {
        matches!(self, Self::TCP | Self::UDP)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}
