//! Entries of connection tracking.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use vipline_nftables::expr::{CtState, CtStatus, Direction};

use super::{ICMP, ICMPV6, Packet};

/// Bits of the status that the kernel sets when a translation is decided:
/// `IPS_SRC_NAT_DONE` and `IPS_DST_NAT_DONE` of
/// `linux/netfilter/nf_conntrack_common.h`.
const SNAT_DONE: CtStatus = CtStatus::from_bits_retain(1 << 7);
const DNAT_DONE: CtStatus = CtStatus::from_bits_retain(1 << 8);

/// The assignment of a packet to a connection, before the evaluation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Tracking {
    /// No entry exists: the packet starts a connection.
    New,
    /// The packet cannot be assigned to a connection.
    Invalid,
    /// The packet is not tracked.
    Untracked,
    /// The packet belongs to a connection.
    Known {
        /// Entry.
        connection: Box<Connection>,
        /// State of the packet; one of the bits.
        state: CtState,
        /// Direction of the packet.
        direction: Direction,
    },
}

/// An entry of connection tracking.
///
/// Exhaustive: callers create entries from those of the kernel.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Connection {
    /// Tuple of packets in the direction of the first packet, before translation.
    pub original: Tuple,
    /// Tuple of packets in the opposite direction, before translation.
    pub reply: Tuple,
    /// Status.
    pub status: CtStatus,
    /// Mark.
    pub mark: u32,
    /// Zone.
    pub zone: u16,
    /// Labels, if known.
    pub labels: Option<[u8; 16]>,
}

/// Addresses, ports and protocol of one direction of a connection.
///
/// Exhaustive: these values identify a direction.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Tuple {
    /// Transport protocol.
    pub protocol: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port, or the identifier of an ICMP message. `None`: chosen at random.
    pub source_port: Option<u16>,
    /// Destination port, or type and code of an ICMP message. `None`: chosen at random.
    pub destination_port: Option<u16>,
}

impl Connection {
    /// Creates the entry of a connection that this packet starts.
    pub fn new(packet: &Packet) -> Self {
        let original = Tuple::of(packet);
        Self {
            original,
            reply: original.inverted(),
            status: CtStatus::empty(),
            mark: 0,
            zone: 0,
            labels: Some([0; 16]),
        }
    }

    /// Returns the tuple of a direction.
    pub fn tuple(&self, direction: Direction) -> &Tuple {
        match direction {
            Direction::Original => &self.original,
            Direction::Reply => &self.reply,
        }
    }
}

impl Tuple {
    /// Returns the tuple of a packet.
    pub fn of(packet: &Packet) -> Self {
        let has_tuple = packet.has_ports() || [ICMP, ICMPV6].contains(&packet.protocol());
        let port = |port: Option<u16>| if has_tuple { port } else { Some(0) };
        Self {
            protocol: packet.protocol(),
            source: packet.source(),
            destination: packet.destination(),
            source_port: port(packet.source_port()),
            destination_port: port(packet.destination_port()),
        }
    }

    /// Returns the tuple of replies.
    #[must_use]
    pub fn inverted(&self) -> Self {
        let is_icmp = [ICMP, ICMPV6].contains(&self.protocol);
        let (source_port, destination_port) = match is_icmp {
            true => (self.source_port, self.destination_port.map(icmp_reply)),
            false => (self.destination_port, self.source_port),
        };
        Self {
            protocol: self.protocol,
            source: self.destination,
            destination: self.source,
            source_port,
            destination_port,
        }
    }
}

// linux/icmp.h
const ICMP_ECHO: u8 = 8;
const ICMP_ECHOREPLY: u8 = 0;
const ICMP_TIMESTAMP: u8 = 13;
const ICMP_TIMESTAMPREPLY: u8 = 14;
const ICMP_INFO_REQUEST: u8 = 15;
const ICMP_INFO_REPLY: u8 = 16;
const ICMP_ADDRESS: u8 = 17;
const ICMP_ADDRESSREPLY: u8 = 18;
// linux/icmpv6.h
const ICMPV6_ECHO_REQUEST: u8 = 128;
const ICMPV6_ECHO_REPLY: u8 = 129;

/// Returns type and code of the reply to an ICMP message.
fn icmp_reply(message: u16) -> u16 {
    let [kind, code] = message.to_be_bytes();
    let reply = match kind {
        ICMP_ECHO => ICMP_ECHOREPLY,
        ICMP_ECHOREPLY => ICMP_ECHO,
        ICMP_TIMESTAMP => ICMP_TIMESTAMPREPLY,
        ICMP_TIMESTAMPREPLY => ICMP_TIMESTAMP,
        ICMP_INFO_REQUEST => ICMP_INFO_REPLY,
        ICMP_INFO_REPLY => ICMP_INFO_REQUEST,
        ICMP_ADDRESS => ICMP_ADDRESSREPLY,
        ICMP_ADDRESSREPLY => ICMP_ADDRESS,
        ICMPV6_ECHO_REQUEST => ICMPV6_ECHO_REPLY,
        ICMPV6_ECHO_REPLY => ICMPV6_ECHO_REQUEST,
        kind => kind,
    };
    u16::from_be_bytes([reply, code])
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |addr: IpAddr, port: Option<u16>| match (port, addr.is_ipv6()) {
            (Some(port), _) => SocketAddr::new(addr, port).to_string(),
            (None, true) => format!("[{addr}]:*"),
            (None, false) => format!("{addr}:*"),
        };
        let source = end(self.source, self.source_port);
        let destination = end(self.destination, self.destination_port);
        write!(f, "{source} -> {destination}")
    }
}

/// The part of a packet that a translation changes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Part {
    Source,
    Destination,
}

impl Part {
    /// Returns the status bit of connections whose packets are translated.
    pub(crate) fn status(self) -> CtStatus {
        match self {
            Self::Source => CtStatus::SNAT,
            Self::Destination => CtStatus::DNAT,
        }
    }

    /// Returns the status bit of connections whose translation is decided.
    pub(crate) fn done(self) -> CtStatus {
        match self {
            Self::Source => SNAT_DONE,
            Self::Destination => DNAT_DONE,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// The assignment of a packet to a connection, at a hook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tracked {
    /// Connection tracking has not seen the packet.
    Unseen,
    Untracked,
    Invalid,
    Entry(Entry),
}

/// The connection of a packet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) connection: Connection,
    pub(crate) state: CtState,
    pub(crate) direction: Direction,
}

impl Tracked {
    pub(crate) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn entry_mut(&mut self) -> Option<&mut Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_to_an_echo_request_has_its_identifier() {
        let addrs = ["10.0.0.1", "10.0.0.2"].map(|addr| addr.parse().unwrap());
        let request = Packet::icmp(addrs[0], addrs[1], 8, 0).with_icmp_id(7);
        let connection = Connection::new(&request);
        let reply = Packet::icmp(addrs[1], addrs[0], 0, 0).with_icmp_id(7);
        assert_eq!(connection.reply, Tuple::of(&reply));
        assert_eq!(connection.reply.inverted(), connection.original);
    }

    #[test]
    fn a_protocol_without_ports_has_ports_of_zero() {
        let end = "10.0.0.1:5".parse().unwrap();
        let tuple = Tuple::of(&Packet::with_protocol(47, end, end));
        assert_eq!(
            (tuple.source_port, tuple.destination_port),
            (Some(0), Some(0))
        );
        assert_eq!(tuple.to_string(), "10.0.0.1:0 -> 10.0.0.1:0");
    }
}
