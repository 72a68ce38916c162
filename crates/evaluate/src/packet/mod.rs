//! Packets, of which some properties may be unknown.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use vipline_inet::Protocol;
use vipline_nftables::expr::{CtState, Direction};
use vipline_nftables::{Bytes, Family};

use super::interface::Interface;

mod bytes;

pub(super) mod connection;

mod parse;

mod partial;

use connection::{Connection, Tracking};
use partial::PartialBytes;

/// IP protocol numbers.
const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Flags of a TCP segment that opens a connection, and of the reply to it.
const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;

/// An IPv4 or IPv6 packet, with its metadata.
///
/// The constructors set addresses, protocol and ports. All other properties are unknown
/// until a method sets them, except the mark, which is zero. A rule that reads an unknown
/// property makes the evaluation fail. [`Packet::from_bytes`] creates a packet without
/// unknown bytes.
///
/// A packet without an input interface is sent by a process of the evaluated host.
///
/// ```
/// use vipline_evaluate::Packet;
///
/// let packet = Packet::tcp("192.0.2.7:40000".parse()?, "198.51.100.1:22".parse()?);
/// let packet = packet.with_input("eth0");
/// assert_eq!(packet.to_string(), "tcp 192.0.2.7:40000 -> 198.51.100.1:22");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Packet {
    is_v6: bool,
    /// Link-layer header.
    link: Option<Bytes>,
    /// Network header with its options or extension headers.
    network: PartialBytes,
    /// Transport header and payload.
    transport: PartialBytes,
    protocol: u8,
    /// Whether the packet ends after the bytes of `transport`.
    is_complete: bool,
    /// Whether the packet is a fragment other than the first.
    is_later_fragment: bool,
    pub(super) mark: u32,
    pub(super) priority: Option<u32>,
    pub(super) packet_type: Option<u8>,
    /// Time of reception in nanoseconds since 1970.
    pub(super) time: Option<u64>,
    /// User and group of the sending socket.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) input: Option<Interface>,
    pub(super) tracking: Tracking,
}

impl Packet {
    fn new(source: IpAddr, destination: IpAddr, protocol: u8, transport: usize) -> Self {
        let is_v6 = destination.is_ipv6();
        let mut network = PartialBytes::unknown(if is_v6 { 40 } else { 20 });
        if is_v6 {
            network.set(6, &[protocol]);
        } else {
            network.set(0, &[0x45]);
            network.set(6, &[0, 0]);
            network.set(9, &[protocol]);
        }
        let mut packet = Self {
            is_v6,
            link: None,
            network,
            transport: PartialBytes::unknown(transport),
            protocol,
            is_complete: false,
            is_later_fragment: false,
            mark: 0,
            priority: None,
            packet_type: None,
            time: None,
            owner: None,
            input: None,
            tracking: Tracking::New,
        };
        packet.set_source(source);
        packet.set_destination(destination);
        packet
    }

    fn with_ports(mut self, source: SocketAddr, destination: SocketAddr) -> Self {
        self.set_source_port(Some(source.port()));
        self.set_destination_port(Some(destination.port()));
        self
    }

    /// Creates a TCP segment with flag SYN.
    ///
    /// Both addresses must be of the same family.
    pub fn tcp(source: SocketAddr, destination: SocketAddr) -> Self {
        let packet = Self::new(source.ip(), destination.ip(), TCP, 20);
        packet.with_ports(source, destination).with_tcp_flags(SYN)
    }

    /// Creates a UDP datagram.
    ///
    /// Both addresses must be of the same family.
    pub fn udp(source: SocketAddr, destination: SocketAddr) -> Self {
        Self::new(source.ip(), destination.ip(), UDP, 8).with_ports(source, destination)
    }

    /// Creates a packet of a protocol with ports, such as SCTP.
    ///
    /// Both addresses must be of the same family.
    pub fn with_protocol(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Self {
        Self::new(source.ip(), destination.ip(), protocol, 4).with_ports(source, destination)
    }

    /// Creates the first reply of a connection: in TCP a segment with flags SYN and ACK.
    ///
    /// The packet belongs to the connection, and its state is `established`. A port that the
    /// kernel chose at random is unknown.
    pub fn reply(connection: &Connection) -> Self {
        let tuple = connection.reply;
        let transport = match tuple.protocol {
            TCP => 20,
            UDP => 8,
            _ => 4,
        };
        let mut packet = Self::new(tuple.source, tuple.destination, tuple.protocol, transport);
        packet.set_source_port(tuple.source_port);
        packet.set_destination_port(tuple.destination_port);
        packet
            .with_tcp_flags(SYN_ACK)
            .with_tracking(Tracking::Known {
                connection: Box::new(connection.clone()),
                state: CtState::ESTABLISHED,
                direction: Direction::Reply,
            })
    }

    /// Creates an ICMP or ICMPv6 message.
    ///
    /// Both addresses must be of the same family.
    pub fn icmp(source: IpAddr, destination: IpAddr, kind: u8, code: u8) -> Self {
        let protocol = if destination.is_ipv6() { ICMPV6 } else { ICMP };
        let mut packet = Self::new(source, destination, protocol, 8);
        packet.transport.set(0, &[kind, code]);
        packet
    }

    /// Sets the interface that received the packet.
    #[must_use]
    pub fn with_input(mut self, interface: impl Into<Interface>) -> Self {
        self.input = Some(interface.into());
        self
    }

    /// Sets the packet mark.
    #[must_use]
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    /// Sets the state of connection tracking. Default: [`Tracking::New`].
    #[must_use]
    pub fn with_tracking(mut self, tracking: Tracking) -> Self {
        self.tracking = tracking;
        self
    }

    /// Sets the flags of a TCP segment: byte 13 of its header.
    #[must_use]
    pub fn with_tcp_flags(mut self, flags: u8) -> Self {
        if self.protocol == TCP {
            self.transport.set(13, &[flags]);
        }
        self
    }

    /// Sets the identifier of an ICMP echo message.
    #[must_use]
    pub fn with_icmp_id(mut self, id: u16) -> Self {
        self.set_source_port(Some(id));
        self
    }

    /// Sets the TTL or hop limit.
    #[must_use]
    pub fn with_ttl(mut self, ttl: u8) -> Self {
        let at = if self.is_v6 { 7 } else { 8 };
        self.network.set(at, &[ttl]);
        self
    }

    /// Sets the type of service or traffic class, and a flow label of zero.
    #[must_use]
    pub fn with_traffic_class(mut self, class: u8) -> Self {
        if self.is_v6 {
            self.network.set(0, &[0x60 | class >> 4, class << 4, 0, 0]);
        } else {
            self.network.set(1, &[class]);
        }
        self
    }

    /// Sets the payload after the transport header, and the length fields.
    ///
    /// A TCP header has 20 bytes and no options.
    #[must_use]
    pub fn with_payload(mut self, payload: &[u8]) -> Self {
        let header = match self.protocol {
            TCP => 20,
            UDP | ICMP | ICMPV6 => 8,
            _ => self.transport.len(),
        };
        self.transport.truncate(header);
        self.transport.extend(payload);
        self.is_complete = true;
        let field = |len: usize| u16::try_from(len).unwrap_or(0).to_be_bytes();
        match self.protocol {
            TCP => self.transport.set(12, &[0x50]),
            UDP => self.transport.set(4, &field(self.transport.len())),
            _ => {}
        }
        if self.is_v6 {
            self.network.set(4, &field(self.transport.len()));
        } else {
            let all = self.network.len() + self.transport.len();
            self.network.set(2, &field(all));
        }
        self
    }

    /// Sets the link-layer header.
    #[must_use]
    pub fn with_link_header(mut self, header: &[u8]) -> Self {
        self.link = Some(header.into());
        self
    }

    /// Sets the destination of the frame (`meta pkttype`): 0 host, 1 broadcast, 2 multicast,
    /// 3 another host.
    #[must_use]
    pub fn with_packet_type(mut self, kind: u8) -> Self {
        self.packet_type = Some(kind);
        self
    }

    /// Sets the priority (`meta priority`).
    #[must_use]
    pub fn with_priority(mut self, priority: u32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the time of evaluation, in nanoseconds since 1970.
    #[must_use]
    pub fn with_time(mut self, nanoseconds: u64) -> Self {
        self.time = Some(nanoseconds);
        self
    }

    /// Sets the user ID and the group ID of the sending socket.
    #[must_use]
    pub fn with_owner(mut self, user: u32, group: u32) -> Self {
        self.owner = Some((user, group));
        self
    }

    /// Returns the family: [`Family::Ip`] or [`Family::Ip6`].
    pub fn family(&self) -> Family {
        if self.is_v6 { Family::Ip6 } else { Family::Ip }
    }

    /// Returns the transport protocol.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Returns the source address.
    pub fn source(&self) -> IpAddr {
        match self.is_v6 {
            true => IpAddr::from(self.network.array::<16>(8).unwrap_or_default()),
            false => IpAddr::from(self.network.array::<4>(12).unwrap_or_default()),
        }
    }

    /// Returns the destination address.
    pub fn destination(&self) -> IpAddr {
        match self.is_v6 {
            true => IpAddr::from(self.network.array::<16>(24).unwrap_or_default()),
            false => IpAddr::from(self.network.array::<4>(16).unwrap_or_default()),
        }
    }

    /// Returns the source port, or the identifier of an ICMP echo message.
    ///
    /// `None`: the protocol has no ports, or the kernel chose one at random.
    pub fn source_port(&self) -> Option<u16> {
        self.transport.u16(self.source_port_offset()?)
    }

    /// Returns the destination port, or type and code of an ICMP message.
    ///
    /// `None`: the protocol has no ports, or the kernel chose one at random.
    pub fn destination_port(&self) -> Option<u16> {
        self.transport.u16(self.destination_port_offset()?)
    }

    /// Returns the packet mark.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// Returns the interface that received the packet. `None`: a process of the host sent it.
    pub fn input(&self) -> Option<&Interface> {
        self.input.as_ref()
    }

    /// Returns the priority, if known.
    pub fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// Returns the destination of the frame (`meta pkttype`), if known.
    pub fn packet_type(&self) -> Option<u8> {
        self.packet_type
    }

    /// Returns the time of evaluation in nanoseconds since 1970, if known.
    pub fn time(&self) -> Option<u64> {
        self.time
    }

    /// Returns the user ID and the group ID of the sending socket, if known.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.owner
    }

    /// Returns whether this is a fragment other than the first.
    pub fn is_later_fragment(&self) -> bool {
        self.is_later_fragment
    }

    /// Returns the state of connection tracking before the evaluation.
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }
}

impl fmt::Display for Packet {
    /// Writes protocol, source and destination.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Protocol(self.protocol).name() {
            Some(name) => write!(f, "{name} ")?,
            None => write!(f, "protocol {} ", self.protocol)?,
        }
        let end = |addr: IpAddr, port: Option<u16>| match port {
            Some(port) if self.has_ports() => SocketAddr::new(addr, port).to_string(),
            None if self.has_ports() && addr.is_ipv6() => format!("[{addr}]:*"),
            None if self.has_ports() => format!("{addr}:*"),
            _ => addr.to_string(),
        };
        let source = end(self.source(), self.source_port());
        let destination = end(self.destination(), self.destination_port());
        write!(f, "{source} -> {destination}")
    }
}

#[cfg(test)]
mod tests;
