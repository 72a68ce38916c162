//! Set entries and their extensions.

use std::net::IpAddr;

use bitflags::bitflags;
use ipnet::IpNet;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{put_be64, put_str, put_u8};

use crate::wire::{NET, address, put_address, put_number, put_port, put_whole, whole_attributes};
use crate::{Comment, Name, SetFamily, SetType};

// `linux/netfilter/ipset/ip_set.h`, attributes of an entry.
const IP: u16 = 1;
const IP_TO: u16 = 2;
const CIDR: u16 = 3;
const PORT: u16 = 4;
const PORT_TO: u16 = 5;
const TIMEOUT: u16 = 6;
const PROTO: u16 = 7;
const CADT_FLAGS: u16 = 8;
const LINENO: u16 = 9;
const NAME: u16 = 18;
const IP2: u16 = 20;
const CIDR2: u16 = 21;
const IP2_TO: u16 = 22;
const BYTES: u16 = 24;
const PACKETS: u16 = 25;
const COMMENT: u16 = 26;

/// A protocol and a port number.
///
/// For ICMP, the number is the type in the upper byte and the code in the lower
/// byte.
/// For protocols without ports, the number is 0.
///
/// Exhaustive: protocol and number identify a port.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Port {
    /// Protocol number, `IPPROTO_*`.
    pub protocol: u8,
    /// Port number.
    pub number: u16,
}

impl Port {
    /// Creates a TCP port.
    pub fn tcp(number: u16) -> Self {
        Self::new(6, number)
    }

    /// Creates a UDP port.
    pub fn udp(number: u16) -> Self {
        Self::new(17, number)
    }

    /// Creates an SCTP port.
    pub fn sctp(number: u16) -> Self {
        Self::new(132, number)
    }

    /// Creates a port of the protocol with this number.
    pub fn new(protocol: u8, number: u16) -> Self {
        Self { protocol, number }
    }
}

/// The element of an entry. The set type determines the variant.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Member {
    /// `hash:ip` and `bitmap:ip`: an address.
    Ip(IpAddr),
    /// `hash:ip,port`: an address and a port.
    IpPort(IpAddr, Port),
    /// `hash:ip,port,ip`: an address, a port and an address.
    IpPortIp(IpAddr, Port, IpAddr),
    /// `hash:ip,port,net`: an address, a port and a network.
    IpPortNet(IpAddr, Port, IpNet),
    /// `hash:net`: a network.
    Net(IpNet),
    /// `hash:net,port`: a network and a port.
    NetPort(IpNet, Port),
    /// `bitmap:port`: a port number.
    Port(u16),
    /// `list:set`: a set name.
    Set(Name),
    /// Element of an unknown set type: attributes as dumped.
    /// The kernel may reject them in a command.
    Other(Box<[u8]>),
}

bitflags! {
    /// Entry flags: `enum ipset_cadt_flags` of `linux/netfilter/ipset/ip_set.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct EntryFlags: u32 {
        /// The element is excluded from the set even if a wider entry contains it.
        #[doc(alias = "IPSET_FLAG_NOMATCH")]
        const NOMATCH = 1 << 2;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// Counters of the packets that matched an entry.
///
/// Exhaustive: ip_set counts packets and bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counters {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A set entry.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// Name of the set.
    pub set: Name,
    /// The element, or the first element of a range.
    pub member: Member,
    /// The last element of a range.
    ///
    /// Only for adding and deleting: the kernel splits a range into single entries.
    pub range_end: Option<Member>,
    /// Timeout of an entry to add, or remaining timeout of a dumped entry, in seconds.
    /// 0 means no timeout; `None` means the default timeout of the set.
    pub timeout: Option<u32>,
    /// Packet and byte counters.
    pub counters: Option<Counters>,
    /// Comment.
    pub comment: Option<Comment>,
    /// Flags.
    pub flags: EntryFlags,
    /// Unknown attributes, as dumped by the kernel.
    pub unknown_attributes: Box<[u8]>,
}

impl Entry {
    /// Creates an entry without extensions.
    ///
    /// Host bits of a network are set to zero, as the kernel does.
    pub fn new(set: Name, member: Member) -> Self {
        Self {
            set,
            member: member.truncated(),
            range_end: None,
            timeout: None,
            counters: None,
            comment: None,
            flags: EntryFlags::empty(),
            unknown_attributes: Box::default(),
        }
    }

    /// Returns whether two entries are equal, except for set, element, counters and
    /// timeout.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.range_end == other.range_end
            && self.comment == other.comment
            && self.flags == other.flags
            && self.unknown_attributes == other.unknown_attributes
    }

    /// Appends the attributes nested in `IPSET_ATTR_DATA`.
    ///
    /// The kernel reports `line` if it rejects the entry.
    pub(crate) fn encode(&self, line: Option<u32>, out: &mut Vec<u8>) {
        self.member.encode(self.range_end.as_ref(), out);
        if let Some(timeout) = self.timeout {
            put_number(out, TIMEOUT, timeout);
        }
        if !self.flags.is_empty() {
            put_number(out, CADT_FLAGS, self.flags.bits());
        }
        if let Some(Counters { packets, bytes }) = self.counters {
            put_be64(out, PACKETS | NET, packets);
            put_be64(out, BYTES | NET, bytes);
        }
        if let Some(comment) = &self.comment {
            put_str(out, COMMENT, comment.as_str());
        }
        out.extend_from_slice(&self.unknown_attributes);
        if let Some(line) = line {
            put_number(out, LINENO, line);
        }
    }

    /// Decodes an entry of a set of this type.
    pub(crate) fn decode(set: &Name, set_type: &SetType, data: &[u8]) -> Result<Self, DecodeError> {
        let mut entry = Self::new(set.clone(), Member::Other(Box::default()));
        let (mut parts, mut ends) = (Parts::default(), Parts::default());
        let mut others = Vec::new();
        for item in whole_attributes(data) {
            let (bytes, attr) = item?;
            match attr.kind {
                TIMEOUT => entry.timeout = Some(attr.be32()?),
                CADT_FLAGS => entry.flags = EntryFlags::from_bits_retain(attr.be32()?),
                BYTES => entry.counters.get_or_insert_default().bytes = attr.be64()?,
                PACKETS => entry.counters.get_or_insert_default().packets = attr.be64()?,
                COMMENT => entry.comment = Some(Comment::from_kernel(attr.str()?)),
                LINENO => {}
                _ if matches!(set_type, SetType::Other(_)) => put_whole(&mut others, bytes),
                IP => parts.ip = Some(address(&attr)?),
                IP_TO => ends.ip = Some(address(&attr)?),
                CIDR if set_type.has_networks() => parts.prefix = Some(attr.u8()?),
                PORT => parts.port = Some(attr.be16()?),
                PORT_TO => ends.port = Some(attr.be16()?),
                PROTO => parts.protocol = Some(attr.u8()?),
                IP2 => parts.second = Some(address(&attr)?),
                IP2_TO => ends.second = Some(address(&attr)?),
                CIDR2 => parts.second_prefix = Some(attr.u8()?),
                NAME => parts.name = Some(Name::from_kernel(attr.str()?)),
                _ => put_whole(&mut others, bytes),
            }
        }
        if matches!(set_type, SetType::Other(_)) {
            entry.member = Member::Other(others.into());
            return Ok(entry);
        }
        entry.unknown_attributes = others.into();
        let no_entry = || DecodeError::new("entry of its set", 0, data.len());
        if ends.ip.is_some() || ends.port.is_some() || ends.second.is_some() {
            let last = ends.or(&parts).member(set_type).ok_or_else(no_entry)?;
            entry.range_end = Some(last);
        }
        entry.member = parts.member(set_type).ok_or_else(no_entry)?;
        entry.range_end = entry.range_end.filter(|last| *last != entry.member);
        Ok(entry)
    }
}

impl Member {
    /// Returns whether sets of this type can contain the element.
    pub fn fits(&self, set_type: &SetType) -> bool {
        matches!(
            (self, set_type),
            (Self::Ip(_), SetType::HashIp | SetType::BitmapIp)
                | (Self::IpPort(..), SetType::HashIpPort)
                | (Self::IpPortIp(..), SetType::HashIpPortIp)
                | (Self::IpPortNet(..), SetType::HashIpPortNet)
                | (Self::Net(_), SetType::HashNet)
                | (Self::NetPort(..), SetType::HashNetPort)
                | (Self::Port(_), SetType::BitmapPort)
                | (Self::Set(_), SetType::ListSet)
                | (Self::Other(_), SetType::Other(_))
        )
    }

    /// Returns the address family, if the element has addresses.
    pub fn family(&self) -> Option<SetFamily> {
        let ip = match self {
            Self::Ip(ip)
            | Self::IpPort(ip, _)
            | Self::IpPortIp(ip, ..)
            | Self::IpPortNet(ip, ..) => *ip,
            Self::Net(net) | Self::NetPort(net, _) => net.addr(),
            Self::Port(_) | Self::Set(_) | Self::Other(_) => return None,
        };
        Some(match ip {
            IpAddr::V4(_) => SetFamily::V4,
            IpAddr::V6(_) => SetFamily::V6,
        })
    }

    /// Sets the host bits of networks to zero.
    fn truncated(self) -> Self {
        match self {
            Self::IpPortNet(ip, port, net) => Self::IpPortNet(ip, port, net.trunc()),
            Self::Net(net) => Self::Net(net.trunc()),
            Self::NetPort(net, port) => Self::NetPort(net.trunc(), port),
            other => other,
        }
    }

    /// Appends the element; `last` is the end of the range.
    fn encode(&self, last: Option<&Self>, out: &mut Vec<u8>) {
        match self {
            Self::Ip(ip) => put_address(out, IP, *ip),
            Self::IpPort(ip, port) => {
                put_address(out, IP, *ip);
                port.encode(out);
            }
            Self::IpPortIp(ip, port, second) => {
                put_address(out, IP, *ip);
                port.encode(out);
                put_address(out, IP2, *second);
            }
            Self::IpPortNet(ip, port, net) => {
                put_address(out, IP, *ip);
                port.encode(out);
                put_address(out, IP2, net.addr());
                put_u8(out, CIDR2, net.prefix_len());
            }
            Self::Net(net) => put_net(out, *net, last),
            Self::NetPort(net, port) => {
                put_net(out, *net, last);
                port.encode(out);
            }
            Self::Port(port) => put_port(out, PORT, *port),
            Self::Set(name) => put_str(out, NAME, name.as_str()),
            Self::Other(bytes) => out.extend_from_slice(bytes),
        }
        if let Some(last) = last {
            self.encode_end(last, out);
        }
    }

    /// Appends the range ends that differ from the range start.
    fn encode_end(&self, last: &Self, out: &mut Vec<u8>) {
        let (first, last) = (self.ends(), last.ends());
        if let (Some(from), Some(to)) = (first.0, last.0)
            && from != to
        {
            put_address(out, IP_TO, to);
        }
        if let (Some(from), Some(to)) = (first.1, last.1)
            && from != to
        {
            put_port(out, PORT_TO, to);
        }
        if let (Some(from), Some(to)) = (first.2, last.2)
            && from != to
        {
            put_address(out, IP2_TO, to);
        }
    }

    /// Returns the parts that can have ranges: address, port, second address.
    fn ends(&self) -> (Option<IpAddr>, Option<u16>, Option<IpAddr>) {
        match self {
            Self::Ip(ip) => (Some(*ip), None, None),
            Self::IpPort(ip, port) => (Some(*ip), Some(port.number), None),
            Self::IpPortIp(ip, port, second) => (Some(*ip), Some(port.number), Some(*second)),
            Self::IpPortNet(ip, port, _) => (Some(*ip), Some(port.number), None),
            Self::Net(net) => (Some(net.addr()), None, None),
            Self::NetPort(net, port) => (Some(net.addr()), Some(port.number), None),
            Self::Port(port) => (None, Some(*port), None),
            Self::Set(_) | Self::Other(_) => (None, None, None),
        }
    }
}

impl Port {
    fn encode(self, out: &mut Vec<u8>) {
        put_port(out, PORT, self.number);
        put_u8(out, PROTO, self.protocol);
    }
}

/// Appends a network, or the start of an address range.
fn put_net(out: &mut Vec<u8>, net: IpNet, last: Option<&Member>) {
    put_address(out, IP, net.addr());
    let end = last.and_then(|last| last.ends().0);
    if end.is_none_or(|end| end == net.addr()) {
        put_u8(out, CIDR, net.prefix_len());
    }
}

/// The attributes that make up an element.
#[derive(Default)]
struct Parts {
    ip: Option<IpAddr>,
    prefix: Option<u8>,
    port: Option<u16>,
    protocol: Option<u8>,
    second: Option<IpAddr>,
    second_prefix: Option<u8>,
    name: Option<Name>,
}

impl Parts {
    /// Returns these attributes, completed from `others`.
    ///
    /// The ends of a range of networks are addresses.
    fn or(self, others: &Self) -> Self {
        Self {
            ip: self.ip.or(others.ip),
            prefix: others.prefix.filter(|_| self.ip.is_none()),
            port: self.port.or(others.port),
            protocol: others.protocol,
            second: self.second.or(others.second),
            second_prefix: others.second_prefix,
            name: None,
        }
    }

    /// Builds the element for a set of this type.
    fn member(self, set_type: &SetType) -> Option<Member> {
        let port = || Some(Port::new(self.protocol?, self.port?));
        Some(match set_type {
            SetType::BitmapIp | SetType::HashIp => Member::Ip(self.ip?),
            SetType::BitmapPort => Member::Port(self.port?),
            SetType::HashIpPort => Member::IpPort(self.ip?, port()?),
            SetType::HashIpPortIp => Member::IpPortIp(self.ip?, port()?, self.second?),
            SetType::HashIpPortNet => {
                let net = network(self.second?, self.second_prefix)?;
                Member::IpPortNet(self.ip?, port()?, net)
            }
            SetType::HashNet => Member::Net(network(self.ip?, self.prefix)?),
            SetType::HashNetPort => Member::NetPort(network(self.ip?, self.prefix)?, port()?),
            SetType::ListSet => Member::Set(self.name?),
            SetType::Other(_) => return None,
        })
    }
}

/// Returns the network of an address; the default prefix is the full length.
fn network(ip: IpAddr, prefix: Option<u8>) -> Option<IpNet> {
    match prefix {
        Some(prefix) => IpNet::new(ip, prefix).ok().map(|net| net.trunc()),
        None => Some(IpNet::from(ip)),
    }
}
