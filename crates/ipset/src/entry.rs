//! Entries of sets: what is in, and what is known about it.

use std::net::IpAddr;

use bitflags::bitflags;
use ipnet::IpNet;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{put_be64, put_str, put_u8};

use crate::wire::{NET, address, put_address, put_number, put_port, put_whole, whole_attributes};
use crate::{Comment, Family, Name, SetType};

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

/// A protocol and a port of it.
///
/// For ICMP the port is the type in the upper and the code in the lower byte;
/// protocols without ports have port 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Port {
    /// The number of the protocol, `IPPROTO_*`.
    pub protocol: u8,
    /// The port.
    pub number: u16,
}

impl Port {
    /// Returns a port of TCP.
    pub fn tcp(number: u16) -> Self {
        Self::new(6, number)
    }

    /// Returns a port of UDP.
    pub fn udp(number: u16) -> Self {
        Self::new(17, number)
    }

    /// Returns a port of SCTP.
    pub fn sctp(number: u16) -> Self {
        Self::new(132, number)
    }

    /// Returns a port of the protocol with this number.
    pub fn new(protocol: u8, number: u16) -> Self {
        Self { protocol, number }
    }
}

/// What an entry is, by the type of its set.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Member {
    /// Of `hash:ip` and `bitmap:ip`.
    Ip(IpAddr),
    /// Of `hash:ip,port`.
    IpPort(IpAddr, Port),
    /// Of `hash:ip,port,ip`.
    IpPortIp(IpAddr, Port, IpAddr),
    /// Of `hash:ip,port,net`.
    IpPortNet(IpAddr, Port, IpNet),
    /// Of `hash:net`.
    Net(IpNet),
    /// Of `hash:net,port`.
    NetPort(IpNet, Port),
    /// Of `bitmap:port`.
    Port(u16),
    /// Of `list:set`.
    Set(Name),
    /// Of another type: attributes as the kernel tells them, which it need not
    /// take back in the same form.
    Other(Box<[u8]>),
}

bitflags! {
    /// Properties of an entry: `enum ipset_cadt_flags` of
    /// `linux/netfilter/ipset/ip_set.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct EntryFlags: u32 {
        /// What is in here is not in the set, though a wider entry says so.
        #[doc(alias = "IPSET_FLAG_NOMATCH")]
        const NOMATCH = 1 << 2;
        /// Other flags are kept as they are.
        const _ = !0;
    }
}

/// Packets that were found in a set by an entry.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counters {
    /// How many they were.
    pub packets: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// An entry of a set.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The set it is in.
    pub set: Name,
    /// What it is.
    pub member: Member,
    /// The last of many entries that begin with `member`.
    ///
    /// Good for adding and removing; the kernel makes single ones of it.
    pub range_end: Option<Member>,
    /// How many seconds it stays, 0 for ever; without it, as long as its set
    /// says.
    pub timeout: Option<u32>,
    /// What it has counted.
    pub counters: Option<Counters>,
    /// What is said about it.
    pub comment: Option<Comment>,
    /// Its properties.
    pub flags: EntryFlags,
    /// Attributes that are not known here, as the kernel has them.
    pub unknown_attributes: Box<[u8]>,
}

impl Entry {
    /// Returns an entry with nothing but its place and what it is.
    ///
    /// A network is kept by its first address, as the kernel does.
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

    /// Tells whether both do the same; counts and time aside.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.range_end == other.range_end
            && self.comment == other.comment
            && self.flags == other.flags
            && self.unknown_attributes == other.unknown_attributes
    }

    /// Appends the attributes inside of `IPSET_ATTR_DATA`.
    ///
    /// `line` is what the kernel calls the entry if it refuses it.
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

    /// Reads an entry of a set of this type.
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
    /// Tells whether a set of this type can have the entry.
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

    /// Returns the family of its addresses, if it has any.
    pub fn family(&self) -> Option<Family> {
        let ip = match self {
            Self::Ip(ip)
            | Self::IpPort(ip, _)
            | Self::IpPortIp(ip, ..)
            | Self::IpPortNet(ip, ..) => *ip,
            Self::Net(net) | Self::NetPort(net, _) => net.addr(),
            Self::Port(_) | Self::Set(_) | Self::Other(_) => return None,
        };
        Some(match ip {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        })
    }

    /// Sets the bits of networks that are not of the prefix to zero.
    fn truncated(self) -> Self {
        match self {
            Self::IpPortNet(ip, port, net) => Self::IpPortNet(ip, port, net.trunc()),
            Self::Net(net) => Self::Net(net.trunc()),
            Self::NetPort(net, port) => Self::NetPort(net.trunc(), port),
            other => other,
        }
    }

    /// Appends what the entry is; `last` is where many of them end.
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

    /// Appends the ends of ranges where `last` is another than this.
    fn encode_end(&self, last: &Self, out: &mut Vec<u8>) {
        let (first, last) = (self.ends(), last.ends());
        if let (Some(from), Some(to)) = (first.0, last.0) {
            if from != to {
                put_address(out, IP_TO, to);
            }
        }
        if let (Some(from), Some(to)) = (first.1, last.1) {
            if from != to {
                put_port(out, PORT_TO, to);
            }
        }
        if let (Some(from), Some(to)) = (first.2, last.2) {
            if from != to {
                put_address(out, IP2_TO, to);
            }
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

/// Appends a network, or where a range of addresses begins.
fn put_net(out: &mut Vec<u8>, net: IpNet, last: Option<&Member>) {
    put_address(out, IP, net.addr());
    let end = last.and_then(|last| last.ends().0);
    if end.is_none_or(|end| end == net.addr()) {
        put_u8(out, CIDR, net.prefix_len());
    }
}

/// The attributes of which members consist.
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
    /// Returns these, and of others what is not here.
    ///
    /// A range of networks has addresses at its ends.
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

    /// Puts them together to what a set of this type has.
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

/// Returns the network of an address; without a prefix it is the address.
fn network(ip: IpAddr, prefix: Option<u8>) -> Option<IpNet> {
    match prefix {
        Some(prefix) => IpNet::new(ip, prefix).ok().map(|net| net.trunc()),
        None => Some(IpNet::from(ip)),
    }
}
