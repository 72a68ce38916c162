//! Set entries and their extensions.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, NLA_F_NET_BYTEORDER, put, put_be16, put_be64, put_str, put_u8};

use crate::member::Parts;
use crate::uapi::*;
use crate::wire::{address, put_address, put_number, put_port, put_whole, whole_attributes};
use crate::{Comment, Interface, MacAddr, Member, Name, Protocol, SetType, SkbInfo};

/// The reference set follows the entry.
const BEFORE: EntryFlags = EntryFlags::from_bits_retain(IPSET_FLAG_BEFORE);
/// The interface is a port of a bridge.
const PHYSDEV: EntryFlags = EntryFlags::from_bits_retain(IPSET_FLAG_PHYSDEV);

bitflags! {
    /// Entry flags: `enum ipset_cadt_flags` of `linux/netfilter/ipset/ip_set.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct EntryFlags: u32 {
        /// The element is excluded from the set even if a wider entry contains it.
        #[doc(alias = "IPSET_FLAG_NOMATCH")]
        const NOMATCH = IPSET_FLAG_NOMATCH;
        /// The name of the interface is the start of names. Requires Linux 5.5.
        #[doc(alias = "IPSET_FLAG_IFACE_WILDCARD")]
        const WILDCARD = IPSET_FLAG_IFACE_WILDCARD;
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

/// The position of an entry in a list set.
///
/// Exhaustive: the kernel knows these two.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum ListPosition {
    /// Before this set.
    Before(Name),
    /// After this set.
    After(Name),
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
    /// Position in a list set. `None` appends the entry.
    ///
    /// Only for commands: dumped entries are in the order of the list.
    pub position: Option<ListPosition>,
    /// Timeout of an entry to add, or remaining timeout of a dumped entry, in seconds.
    /// 0 means no timeout; `None` means the default timeout of the set.
    pub timeout: Option<u32>,
    /// Packet and byte counters.
    pub counters: Option<Counters>,
    /// Comment.
    pub comment: Option<Comment>,
    /// Mark, priority and queue for matching packets.
    pub skbinfo: SkbInfo,
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
            position: None,
            timeout: None,
            counters: None,
            comment: None,
            skbinfo: SkbInfo::default(),
            flags: EntryFlags::empty(),
            unknown_attributes: Box::default(),
        }
    }

    /// Sets the last element of a range, to add or delete all elements from the first on.
    #[must_use]
    pub fn with_range_end(mut self, last: Member) -> Self {
        self.range_end = Some(last.truncated());
        self
    }

    /// Sets the position in a list set.
    #[must_use]
    pub fn with_position(mut self, position: ListPosition) -> Self {
        self.position = Some(position);
        self
    }

    /// Sets the timeout, in seconds; 0 means no timeout.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.timeout = Some(seconds);
        self
    }

    /// Sets the packet and byte counters.
    #[must_use]
    pub fn with_counters(mut self, counters: Counters) -> Self {
        self.counters = Some(counters);
        self
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }

    /// Sets mark, priority and queue for matching packets.
    #[must_use]
    pub fn with_skbinfo(mut self, skbinfo: SkbInfo) -> Self {
        self.skbinfo = skbinfo;
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: EntryFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Returns whether two entries are equal, except for set, element, position,
    /// counters and timeout.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.range_end == other.range_end
            && self.comment == other.comment
            && self.skbinfo.is_equivalent(&other.skbinfo)
            && self.flags == other.flags
            && self.unknown_attributes == other.unknown_attributes
    }

    /// Appends the attributes nested in `IPSET_ATTR_DATA`.
    ///
    /// The kernel reports `line` if it rejects the entry.
    pub(crate) fn encode(&self, line: Option<u32>, out: &mut Vec<u8>) {
        match &self.member {
            Member::Other(bytes) => out.extend_from_slice(bytes),
            member => encode_element(&member.parts(), self.range_end.as_ref(), out),
        }
        let position = match &self.position {
            Some(ListPosition::Before(name) | ListPosition::After(name)) => Some(name),
            None => None,
        };
        if let Some(name) = position {
            put_str(out, IPSET_ATTR_NAMEREF, name.as_str());
        }
        if let Some(timeout) = self.timeout {
            put_number(out, IPSET_ATTR_TIMEOUT, timeout);
        }
        let flags = self.wire_flags();
        if !flags.is_empty() {
            put_number(out, IPSET_ATTR_CADT_FLAGS, flags.bits());
        }
        if let Some(Counters { packets, bytes }) = self.counters {
            put_be64(out, IPSET_ATTR_PACKETS | NLA_F_NET_BYTEORDER, packets);
            put_be64(out, IPSET_ATTR_BYTES | NLA_F_NET_BYTEORDER, bytes);
        }
        if let Some(comment) = &self.comment {
            put_str(out, IPSET_ATTR_COMMENT, comment.as_str());
        }
        self.skbinfo.encode(out);
        out.extend_from_slice(&self.unknown_attributes);
        if let Some(line) = line {
            put_number(out, IPSET_ATTR_LINENO, line);
        }
    }

    /// Returns the flags with those that the element and the position imply.
    fn wire_flags(&self) -> EntryFlags {
        let mut flags = self.flags;
        if matches!(self.position, Some(ListPosition::Before(_))) {
            flags |= BEFORE;
        }
        if matches!(&self.member, Member::NetIface(_, interface) if interface.is_bridge_port) {
            flags |= PHYSDEV;
        }
        flags
    }

    /// Decodes an entry of a set of this type.
    pub(crate) fn decode(set: &Name, set_type: &SetType, data: &[u8]) -> Result<Self, DecodeError> {
        let mut entry = Self::new(set.clone(), Member::Other(Box::default()));
        let (mut parts, mut ends) = (Parts::default(), Parts::default());
        let (mut others, mut reference) = (Vec::new(), None);
        let is_unknown = matches!(set_type, SetType::Other(_));
        for item in whole_attributes(data) {
            let (bytes, attr) = item?;
            if entry.decode_extension(&attr)? {
                continue;
            }
            match attr.kind {
                _ if is_unknown => put_whole(&mut others, bytes),
                IPSET_ATTR_NAMEREF => reference = Some(Name::from_kernel(attr.str()?)),
                IPSET_ATTR_CIDR if !set_type.has_networks() => put_whole(&mut others, bytes),
                _ if decode_part(&attr, &mut parts, &mut ends)? => {}
                _ => put_whole(&mut others, bytes),
            }
        }
        if is_unknown {
            entry.member = Member::Other(others.into());
            return Ok(entry);
        }
        entry.unknown_attributes = others.into();
        entry.take_implied_flags(&mut parts, reference);
        let no_entry = || DecodeError::new("entry of its set", 0, data.len());
        if ends.ip.is_some() || ends.port.is_some() || ends.second.is_some() {
            let last = ends.or(&parts).member(set_type).ok_or_else(no_entry)?;
            entry.range_end = Some(last);
        }
        entry.member = parts.member(set_type).ok_or_else(no_entry)?;
        entry.range_end = entry.range_end.filter(|last| *last != entry.member);
        Ok(entry)
    }

    /// Moves flags to the element and the position.
    fn take_implied_flags(&mut self, parts: &mut Parts, reference: Option<Name>) {
        if let Some(name) = reference {
            self.position = Some(match self.flags.contains(BEFORE) {
                true => ListPosition::Before(name),
                false => ListPosition::After(name),
            });
            self.flags.remove(BEFORE);
        }
        if let Some(interface) = &mut parts.interface {
            interface.is_bridge_port = self.flags.contains(PHYSDEV);
            self.flags.remove(PHYSDEV);
        }
    }

    /// Decodes an extension. Returns whether the attribute is one.
    fn decode_extension(&mut self, attr: &Attr<'_>) -> Result<bool, DecodeError> {
        match attr.kind {
            IPSET_ATTR_TIMEOUT => self.timeout = Some(attr.be32()?),
            IPSET_ATTR_CADT_FLAGS => self.flags = EntryFlags::from_bits_retain(attr.be32()?),
            IPSET_ATTR_BYTES => self.counters.get_or_insert_default().bytes = attr.be64()?,
            IPSET_ATTR_PACKETS => self.counters.get_or_insert_default().packets = attr.be64()?,
            IPSET_ATTR_COMMENT => self.comment = Some(Comment::from_kernel(attr.str()?)),
            IPSET_ATTR_SKBMARK => self.skbinfo.set_wire_mark(attr.be64()?),
            IPSET_ATTR_SKBPRIO => self.skbinfo.priority = Some(attr.be32()?),
            IPSET_ATTR_SKBQUEUE => self.skbinfo.queue = Some(attr.be16()?),
            IPSET_ATTR_LINENO => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Decodes a part of an element. Returns whether the attribute is one.
fn decode_part(attr: &Attr<'_>, parts: &mut Parts, ends: &mut Parts) -> Result<bool, DecodeError> {
    match attr.kind {
        IPSET_ATTR_IP => parts.ip = Some(address(attr)?),
        IPSET_ATTR_IP_TO => ends.ip = Some(address(attr)?),
        IPSET_ATTR_CIDR => parts.prefix = Some(attr.u8()?),
        IPSET_ATTR_PORT => parts.port = Some(attr.be16()?),
        IPSET_ATTR_PORT_TO => ends.port = Some(attr.be16()?),
        IPSET_ATTR_PROTO => parts.protocol = Some(Protocol(attr.u8()?)),
        IPSET_ATTR_MARK => parts.mark = Some(attr.be32()?),
        IPSET_ATTR_ETHER => {
            let bytes = attr.value.try_into();
            let bytes =
                bytes.map_err(|_| DecodeError::new("MAC", IPSET_ATTR_ETHER, attr.value.len()))?;
            parts.mac = Some(MacAddr(bytes));
        }
        IPSET_ATTR_IP2 => parts.second = Some(address(attr)?),
        IPSET_ATTR_IP2_TO => ends.second = Some(address(attr)?),
        IPSET_ATTR_CIDR2 => parts.second_prefix = Some(attr.u8()?),
        IPSET_ATTR_IFACE => parts.interface = Some(Interface::new(attr.str()?)),
        IPSET_ATTR_NAME => parts.name = Some(Name::from_kernel(attr.str()?)),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Appends an element; `last` is the end of the range.
///
/// The first element of a range of networks has no prefix length.
fn encode_element(first: &Parts, last: Option<&Member>, out: &mut Vec<u8>) {
    let last = last.map(Member::parts).unwrap_or_else(|| first.clone());
    let differs = |from: Option<_>, to: Option<_>| to.filter(|_| from.is_some() && from != to);
    let (ip_to, second_to) = (
        differs(first.ip, last.ip),
        differs(first.second, last.second),
    );
    if let Some(ip) = first.ip {
        put_address(out, IPSET_ATTR_IP, ip);
    }
    if let Some(prefix) = first.prefix.filter(|_| ip_to.is_none()) {
        put_u8(out, IPSET_ATTR_CIDR, prefix);
    }
    if let Some(port) = first.port {
        put_port(out, IPSET_ATTR_PORT, port);
    }
    if let Some(Protocol(protocol)) = first.protocol {
        put_u8(out, IPSET_ATTR_PROTO, protocol);
    }
    if let Some(mark) = first.mark {
        put_number(out, IPSET_ATTR_MARK, mark);
    }
    if let Some(MacAddr(bytes)) = first.mac {
        put(out, IPSET_ATTR_ETHER, &bytes);
    }
    if let Some(ip) = first.second {
        put_address(out, IPSET_ATTR_IP2, ip);
    }
    if let Some(prefix) = first.second_prefix.filter(|_| second_to.is_none()) {
        put_u8(out, IPSET_ATTR_CIDR2, prefix);
    }
    if let Some(interface) = &first.interface {
        put_str(out, IPSET_ATTR_IFACE, &interface.name);
    }
    if let Some(name) = &first.name {
        put_str(out, IPSET_ATTR_NAME, name.as_str());
    }
    if let Some(ip) = ip_to {
        put_address(out, IPSET_ATTR_IP_TO, ip);
    }
    if let Some(port) = last
        .port
        .filter(|_| first.port.is_some() && first.port != last.port)
    {
        put_port(out, IPSET_ATTR_PORT_TO, port);
    }
    if let Some(ip) = second_to {
        put_address(out, IPSET_ATTR_IP2_TO, ip);
    }
}

impl SkbInfo {
    /// Appends the attributes that are set.
    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(mark) = self.wire_mark() {
            put_be64(out, IPSET_ATTR_SKBMARK | NLA_F_NET_BYTEORDER, mark);
        }
        if let Some(priority) = self.priority {
            put_number(out, IPSET_ATTR_SKBPRIO, priority);
        }
        if let Some(queue) = self.queue {
            put_be16(out, IPSET_ATTR_SKBQUEUE | NLA_F_NET_BYTEORDER, queue);
        }
    }
}
