//! Transport protocols with ports.

use crate::matches::{Match, Sctp, Tcp, Udp};
use crate::number::Ports;
use crate::protocol::Protocol;

/// A transport protocol with ports.
///
/// ```
/// use vipline_iptables::{Rule, Transport};
///
/// let rule = Rule::new().protocol(Transport::Udp).matching(Transport::Udp.dport(53));
/// assert_eq!(rule.to_string(), "-p udp -m udp --dport 53");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Transport {
    /// Matches these destination ports.
    pub fn dport(self, ports: impl Into<Ports>) -> Match<'static> {
        let ports = ports.into();
        match self {
            Self::Tcp => Tcp::new().dport(ports).into(),
            Self::Udp => Udp::new().dport(ports).into(),
            Self::Sctp => Sctp::new().dport(ports).into(),
        }
    }

    /// Matches these source ports.
    pub fn sport(self, ports: impl Into<Ports>) -> Match<'static> {
        let ports = ports.into();
        match self {
            Self::Tcp => Tcp::new().sport(ports).into(),
            Self::Udp => Udp::new().sport(ports).into(),
            Self::Sctp => Sctp::new().sport(ports).into(),
        }
    }

    /// Matches every port: the match extension without options.
    pub fn any_port(self) -> Match<'static> {
        match self {
            Self::Tcp => Tcp::new().into(),
            Self::Udp => Udp::new().into(),
            Self::Sctp => Sctp::new().into(),
        }
    }
}

impl From<Transport> for Protocol {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Tcp => Self::TCP,
            Transport::Udp => Self::UDP,
            Transport::Sctp => Self::SCTP,
        }
    }
}
