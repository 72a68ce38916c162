//! Matches of ports of a transport protocol.

use vipline_inet::Transport;

use crate::matches::{Match, Sctp, Tcp, Udp};
use crate::options::number::Ports;

/// Matches of the ports of a [`Transport`], for rules that are equal for all transport
/// protocols.
///
/// ```
/// use vipline_iptables::matches::Match;
/// use vipline_iptables::{Rule, Transport};
///
/// let rule = |of| Rule::new().with_protocol(of).with_match(Match::dport(of, 53));
/// assert_eq!(rule(Transport::Udp).to_string(), "-p udp -m udp --dport 53");
/// assert_eq!(rule(Transport::Tcp).to_string(), "-p tcp -m tcp --dport 53");
/// ```
impl Match<'static> {
    /// Matches these destination ports.
    pub fn dport(of: Transport, ports: impl Into<Ports>) -> Self {
        let ports = ports.into();
        match of {
            Transport::Tcp => Tcp::new().with_dport(ports).into(),
            Transport::Udp => Udp::new().with_dport(ports).into(),
            Transport::Sctp => Sctp::new().with_dport(ports).into(),
        }
    }

    /// Matches these source ports.
    pub fn sport(of: Transport, ports: impl Into<Ports>) -> Self {
        let ports = ports.into();
        match of {
            Transport::Tcp => Tcp::new().with_sport(ports).into(),
            Transport::Udp => Udp::new().with_sport(ports).into(),
            Transport::Sctp => Sctp::new().with_sport(ports).into(),
        }
    }

    /// Matches every port: the match extension without options.
    pub fn any_port(of: Transport) -> Self {
        match of {
            Transport::Tcp => Tcp::new().into(),
            Transport::Udp => Udp::new().into(),
            Transport::Sctp => Sctp::new().into(),
        }
    }
}
