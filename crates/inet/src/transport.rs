//! Transport protocols of services.

use std::fmt;

use crate::Protocol;

/// A transport protocol of services: TCP, UDP or SCTP.
///
/// The type is not [`Protocol`], because a service port of Kubernetes and a virtual server of
/// IPVS have one of these three, and a program that makes rules for them must have rules for
/// each: a `match` without SCTP does not compile.
///
/// Displays in upper case, as in the API of Kubernetes.
///
/// ```
/// use vipline_inet::{Protocol, Transport};
///
/// assert_eq!(Protocol::from(Transport::Udp), Protocol::UDP);
/// assert_eq!(Transport::of(Protocol::ICMP), None);
/// assert_eq!((Transport::Sctp.to_string(), Transport::Sctp.name()), ("SCTP".into(), "sctp"));
/// ```
///
/// Exhaustive: Kubernetes and IPVS have these three.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Transport {
    /// All transport protocols, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Returns the transport protocol with the number of an IP protocol, or `None` for another
    /// protocol.
    #[must_use]
    pub const fn of(protocol: Protocol) -> Option<Self> {
        match protocol {
            Protocol::TCP => Some(Self::Tcp),
            Protocol::UDP => Some(Self::Udp),
            Protocol::SCTP => Some(Self::Sctp),
            _ => None,
        }
    }

    /// Returns the IP protocol.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp => Protocol::TCP,
            Self::Udp => Protocol::UDP,
            Self::Sctp => Protocol::SCTP,
        }
    }

    /// Returns the number of the IP protocol: 6, 17 or 132.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.protocol().0
    }

    /// Returns the name in lower case, as in commands and in `/etc/protocols`: `tcp`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Returns the name in upper case, as in the API of Kubernetes: `TCP`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl From<Transport> for Protocol {
    fn from(transport: Transport) -> Self {
        transport.protocol()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_is_the_protocol_of_its_name() {
        for transport in Transport::ALL {
            let protocol = Protocol::from(transport);
            assert_eq!(protocol.name(), Some(transport.name()));
            assert_eq!(transport.as_str().parse(), Ok(protocol));
            assert_eq!(protocol.0, transport.number());
        }
    }

    #[test]
    fn three_protocols_are_transports() {
        let transports = (0..=u8::MAX).filter_map(|number| Transport::of(Protocol(number)));
        assert_eq!(transports.collect::<Vec<_>>(), Transport::ALL);
    }
}
