//! Message encoding and decoding.
//!
//! A message is a `struct nfgenmsg` followed by attributes of
//! `linux/netfilter/ipset/ip_set.h`.
//! Numbers are in network byte order and carry `NLA_F_NET_BYTEORDER`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{
    Attr, Attrs, NLA_F_NET_BYTEORDER, nest, put, put_be16, put_be32, put_str, put_u8,
};
use vipline_netlink::message::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

use crate::uapi::*;
use crate::{Command, Entry, Name, Set, SetDump, SetFamily, SetType, Sets, Strictness};

/// Length of `struct nfgenmsg` in bytes.
const HEADER: usize = 4;

/// Length of `struct nlattr` in bytes.
const ATTRIBUTE: usize = 4;

/// Length in bytes after which no more entries are added to a message.
///
/// The kernel echoes a message with a rejected entry, and the receive buffer has 64
/// KiB.
const ENTRIES: usize = 32 << 10;

/// Protocol versions that this crate supports.
pub(crate) const PROTOCOLS: RangeInclusive<u8> = IPSET_PROTOCOL_MIN..=IPSET_PROTOCOL;

/// A request message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// Message type.
    pub ty: u16,
    /// Flags in addition to `NLM_F_REQUEST | NLM_F_ACK`.
    pub flags: u16,
    /// Payload after `struct nlmsghdr`.
    pub payload: Vec<u8>,
}

impl Request {
    fn new(command: u8, protocol: u8) -> Self {
        let mut payload = vec![NFPROTO_IPV4, NFNETLINK_V0, 0, 0];
        put_u8(&mut payload, IPSET_ATTR_PROTOCOL, protocol);
        Self {
            ty: u16::from_be_bytes([NFNL_SUBSYS_IPSET, command]),
            flags: 0,
            payload,
        }
    }

    fn named(command: u8, protocol: u8, name: &Name) -> Self {
        let mut request = Self::new(command, protocol);
        put_str(&mut request.payload, IPSET_ATTR_SETNAME, name.as_str());
        request
    }

    /// Creates an `IPSET_CMD_PROTOCOL` request for the supported protocol versions.
    ///
    /// The reply has the maximum in `IPSET_ATTR_PROTOCOL` and the minimum in
    /// `IPSET_ATTR_PROTOCOL_MIN`, one byte each.
    pub fn protocol() -> Self {
        Self::new(IPSET_CMD_PROTOCOL, *PROTOCOLS.end())
    }

    /// Creates an `IPSET_CMD_LIST` request for all sets, or one set.
    /// `headers` omits entries.
    ///
    /// Decode the replies with a [`DumpDecoder`].
    pub fn list(protocol: u8, name: Option<&Name>, headers: bool) -> Self {
        let mut request = Self::new(IPSET_CMD_LIST, protocol);
        request.flags = NLM_F_DUMP;
        if let Some(name) = name {
            put_str(&mut request.payload, IPSET_ATTR_SETNAME, name.as_str());
        }
        if headers {
            put_number(
                &mut request.payload,
                IPSET_ATTR_FLAGS,
                IPSET_FLAG_LIST_HEADER,
            );
        }
        request
    }

    /// Creates an `IPSET_CMD_TEST` request. The kernel rejects the request if the set does
    /// not contain the entry.
    pub fn test(protocol: u8, entry: &Entry) -> Self {
        let mut request = Self::named(IPSET_CMD_TEST, protocol, &entry.set);
        nest(&mut request.payload, IPSET_ATTR_DATA, |out| {
            entry.encode(None, out)
        });
        request
    }

    /// Creates an `IPSET_CMD_HEADER` request for type, family and revision of a set.
    ///
    /// Decode the reply with a [`DumpDecoder`].
    pub fn header(protocol: u8, name: &Name) -> Self {
        Self::named(IPSET_CMD_HEADER, protocol, name)
    }

    /// Creates an `IPSET_CMD_TYPE` request for the supported revisions of a set type.
    ///
    /// The reply has the maximum in `IPSET_ATTR_REVISION` and the minimum in
    /// `IPSET_ATTR_REVISION_MIN`, one byte each.
    pub fn revisions(protocol: u8, set_type: &SetType, family: SetFamily) -> Self {
        let mut request = Self::new(IPSET_CMD_TYPE, protocol);
        put_str(&mut request.payload, IPSET_ATTR_TYPENAME, set_type.as_str());
        put_u8(&mut request.payload, IPSET_ATTR_FAMILY, family.number());
        request
    }

    /// Returns the message of a command; `None` for additions, deletions and
    /// [`Command::Copy`].
    fn of(command: &Command, protocol: u8) -> Option<Self> {
        Some(match command {
            Command::Create(set, strictness) => Self::create(set, *strictness, protocol),
            Command::Destroy(name, strictness) => {
                let mut request = Self::named(IPSET_CMD_DESTROY, protocol, name);
                request.flags = strictness.flags();
                request
            }
            Command::DestroyAll => Self::new(IPSET_CMD_DESTROY, protocol),
            Command::Flush(name) => Self::named(IPSET_CMD_FLUSH, protocol, name),
            Command::FlushAll => Self::new(IPSET_CMD_FLUSH, protocol),
            Command::Rename(from, to) => Self::pair(IPSET_CMD_RENAME, protocol, from, to),
            Command::Swap(one, other) => Self::pair(IPSET_CMD_SWAP, protocol, one, other),
            Command::Test(entry) => Self::test(protocol, entry),
            Command::Add(..) | Command::Delete(..) | Command::Copy { .. } => return None,
        })
    }

    fn create(set: &Set, strictness: Strictness, protocol: u8) -> Self {
        let mut request = Self::named(IPSET_CMD_CREATE, protocol, &set.name);
        request.flags = NLM_F_CREATE | strictness.flags();
        let out = &mut request.payload;
        put_str(out, IPSET_ATTR_TYPENAME, set.set_type.as_str());
        put_u8(out, IPSET_ATTR_REVISION, set.revision());
        put_u8(out, IPSET_ATTR_FAMILY, set.family.number());
        nest(out, IPSET_ATTR_DATA, |out| set.encode(out));
        request
    }

    fn pair(command: u8, protocol: u8, one: &Name, other: &Name) -> Self {
        let mut request = Self::named(command, protocol, one);
        put_str(&mut request.payload, IPSET_ATTR_SETNAME2, other.as_str());
        request
    }
}

impl Strictness {
    fn flags(self) -> u16 {
        match self {
            Self::Strict => NLM_F_EXCL,
            Self::Exist => 0,
        }
    }
}

/// Encodes the first command, and following ones that fit into the same message.
///
/// Returns the message and the number of commands in it.
/// Returns no message for [`Command::Copy`], which first needs a dump.
/// Entries in the message are numbered from `line`.
pub(crate) fn encode(commands: &[Command], line: u32, protocol: u8) -> (Option<Request>, usize) {
    let Some(first) = commands.first() else {
        return (None, 0);
    };
    let Some((cmd, entry, strictness)) = change(first) else {
        return (Request::of(first, protocol), 1);
    };
    let mut request = Request::named(cmd, protocol, &entry.set);
    request.flags = strictness.flags();
    put_number(&mut request.payload, IPSET_ATTR_LINENO, line);
    let mut count = 0;
    nest(&mut request.payload, IPSET_ATTR_ADT, |out| {
        let start = out.len();
        for (line, command) in (line..).zip(commands) {
            let alike = change(command).filter(|(other, next, how)| {
                *other == cmd && *how == strictness && next.set == entry.set
            });
            let Some((_, entry, _)) = alike else { break };
            nest(out, IPSET_ATTR_DATA, |out| entry.encode(Some(line), out));
            count += 1;
            if out.len() - start >= ENTRIES {
                break;
            }
        }
    });
    (Some(request), count)
}

/// Returns number, entry and strictness of a command that adds or deletes an
/// entry.
fn change(command: &Command) -> Option<(u8, &Entry, Strictness)> {
    match command {
        Command::Add(entry, strictness) => Some((IPSET_CMD_ADD, entry, *strictness)),
        Command::Delete(entry, strictness) => Some((IPSET_CMD_DEL, entry, *strictness)),
        _ => None,
    }
}

/// Returns the line number of the rejected entry from the echoed message.
pub(crate) fn rejected_line(payload: &[u8]) -> Option<u32> {
    let line = attributes(payload)
        .flatten()
        .find(|attr| attr.kind == IPSET_ATTR_LINENO);
    line?.be32().ok()
}

/// Decodes the protocol versions that the kernel supports.
pub(crate) fn protocols(payload: &[u8]) -> Result<RangeInclusive<u8>, DecodeError> {
    span(payload, IPSET_ATTR_PROTOCOL, IPSET_ATTR_PROTOCOL_MIN)
}

/// Decodes the revisions of a type that the kernel supports.
pub(crate) fn revisions(payload: &[u8]) -> Result<RangeInclusive<u8>, DecodeError> {
    span(payload, IPSET_ATTR_REVISION, IPSET_ATTR_REVISION_MIN)
}

/// Decodes a maximum and a minimum; the default minimum is the maximum.
fn span(payload: &[u8], most: u16, least: u16) -> Result<RangeInclusive<u8>, DecodeError> {
    let (mut high, mut low) = (None, None);
    for attr in attributes(payload) {
        let attr = attr?;
        if attr.kind == most {
            high = Some(attr.u8()?);
        } else if attr.kind == least {
            low = Some(attr.u8()?);
        }
    }
    let high = high.ok_or_else(|| DecodeError::new("range of versions", most, payload.len()))?;
    Ok(low.unwrap_or(high)..=high)
}

/// Decodes the messages of a dump into sets.
#[derive(Debug, Default)]
pub struct DumpDecoder {
    sets: Vec<SetDump>,
}

impl DumpDecoder {
    /// Creates a decoder without sets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the payload of one message of a dump.
    ///
    /// A dump splits large sets: the first message has the properties, all messages
    /// have entries.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if an attribute is missing or malformed.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let (mut name, mut set_type, mut family, mut revision) = (None, None, None, None);
        let (mut data, mut entries): (Option<Attr<'_>>, Option<Attr<'_>>) = (None, None);
        for attr in attributes(payload) {
            let attr = attr?;
            match attr.kind {
                IPSET_ATTR_SETNAME => name = Some(Name::from_kernel(attr.str()?)),
                IPSET_ATTR_TYPENAME => set_type = Some(SetType::from_name(attr.str()?)),
                IPSET_ATTR_REVISION => revision = Some(attr.u8()?),
                IPSET_ATTR_FAMILY => family = Some(SetFamily::from_number(attr.u8()?)),
                IPSET_ATTR_DATA => data = Some(attr),
                IPSET_ATTR_ADT => entries = Some(attr),
                _ => {}
            }
        }
        let no_set = || DecodeError::new("set", IPSET_ATTR_SETNAME, payload.len());
        let name = name.ok_or_else(no_set)?;
        if let Some(set_type) = set_type {
            let mut set = Set::new(name.clone(), set_type, SetFamily::Unspecified);
            set.family = family.ok_or_else(no_set)?;
            set.revision = revision;
            let mut listed = SetDump::new(set);
            if let Some(data) = data {
                listed.set.decode(data.value, &mut listed.usage)?;
            }
            self.sets.push(listed);
        }
        // In a dump it is the last set. In other input it can be any set.
        let mut known = self.sets.iter_mut().rev();
        let listed = known.find(|listed| listed.set.name == name);
        let SetDump {
            set, entries: all, ..
        } = listed.ok_or_else(no_set)?;
        for attr in entries.iter().flat_map(Attr::attrs) {
            let attr = attr?;
            if attr.kind == IPSET_ATTR_DATA {
                all.push(Entry::decode(&set.name, &set.set_type, attr.value)?);
            }
        }
        Ok(())
    }

    /// Returns the decoded sets.
    pub fn finish(self) -> Sets {
        let mut sets = Sets::default();
        sets.extend(self.sets);
        sets
    }
}

/// Returns the attributes after `struct nfgenmsg`.
fn attributes(payload: &[u8]) -> Attrs<'_> {
    Attrs::new(payload.get(HEADER..).unwrap_or_default())
}

/// Returns each attribute with its bytes, header included and padding excluded.
pub(crate) fn whole_attributes(
    bytes: &[u8],
) -> impl Iterator<Item = Result<(&[u8], Attr<'_>), DecodeError>> {
    let mut offset = 0;
    Attrs::new(bytes).map(move |attr| {
        let attr = attr?;
        let end = offset + ATTRIBUTE + attr.value.len();
        let whole: &[u8] = bytes.get(offset..end).unwrap_or_default();
        offset = end.next_multiple_of(4);
        Ok((whole, attr))
    })
}

/// Appends the bytes of an attribute with padding.
pub(crate) fn put_whole(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    let padding = bytes.len().next_multiple_of(4) - bytes.len();
    out.resize(out.len() + padding, 0);
}

/// Appends a 32-bit number.
pub(crate) fn put_number(out: &mut Vec<u8>, kind: u16, number: u32) {
    put_be32(out, kind | NLA_F_NET_BYTEORDER, number);
}

/// Appends a port.
pub(crate) fn put_port(out: &mut Vec<u8>, kind: u16, port: u16) {
    put_be16(out, kind | NLA_F_NET_BYTEORDER, port);
}

/// Appends an address.
pub(crate) fn put_address(out: &mut Vec<u8>, kind: u16, ip: IpAddr) {
    nest(out, kind, |out| match ip {
        IpAddr::V4(ip) => put(
            out,
            IPSET_ATTR_IPADDR_IPV4 | NLA_F_NET_BYTEORDER,
            &ip.octets(),
        ),
        IpAddr::V6(ip) => put(
            out,
            IPSET_ATTR_IPADDR_IPV6 | NLA_F_NET_BYTEORDER,
            &ip.octets(),
        ),
    });
}

/// Decodes an address.
pub(crate) fn address(attr: &Attr<'_>) -> Result<IpAddr, DecodeError> {
    let no_address = || DecodeError::new("address", attr.kind, attr.value.len());
    let inner = attr.attrs().next().ok_or_else(no_address)??;
    let ip = match inner.kind {
        IPSET_ATTR_IPADDR_IPV4 => <[u8; 4]>::try_from(inner.value)
            .ok()
            .map(|octets| Ipv4Addr::from(octets).into()),
        IPSET_ATTR_IPADDR_IPV6 => <[u8; 16]>::try_from(inner.value)
            .ok()
            .map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    };
    ip.ok_or_else(no_address)
}

#[cfg(test)]
mod tests {
    use vipline_netlink::message::{Content, Messages};

    use super::*;
    use crate::Reason;

    /// Error replies to `ipset restore`, recorded as described in
    /// `tests/captures.rs`.
    const REFUSALS: &str = include_str!("../tests/captures/refusals.hex");

    /// Reason, and line number of the rejected entry.
    const REASONS: [(Reason, Option<u32>); 17] = [
        (Reason::Exists, None),
        (Reason::Exists, Some(1)),
        (Reason::Missing, Some(1)),
        (Reason::Missing, None),
        (Reason::Missing, None),
        (Reason::Missing, None),
        (Reason::OtherName, None),
        (Reason::TypeMismatch, None),
        (Reason::OtherName, None),
        (Reason::InUse, None),
        (Reason::OutOfRange, Some(1)),
        (Reason::NoTimeouts, Some(1)),
        (Reason::NoCounters, Some(1)),
        (Reason::NoComments, Some(1)),
        (Reason::NoSuchSet, Some(1)),
        (Reason::RangeTooLarge, None),
        (Reason::Exists, Some(3)),
    ];

    /// Returns the type of the set that a line refers to.
    fn set_type(line: &str) -> SetType {
        match line.split(' ').nth(1) {
            Some("h1") => SetType::BitmapPort,
            Some("i1") => SetType::ListSet,
            Some("i2") => SetType::BitmapIp,
            _ => SetType::HashIpPort,
        }
    }

    #[test]
    fn recorded_rejections_have_reason_and_line() {
        let mut reasons = REASONS.iter();
        let mut command = "";
        for line in REFUSALS.lines() {
            if let Some(line) = line.strip_prefix("# ") {
                command = line;
                continue;
            }
            let hex = line.as_bytes().chunks(2);
            let bytes: Vec<u8> = hex
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect();
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            let Ok(Content::Ack(answer)) = message.content() else {
                panic!("{command}: {message:?}")
            };
            let removes = !command.starts_with("add") && !command.starts_with("create");
            let reason =
                Reason::from_errno(answer.errno.unwrap(), Some(&set_type(command)), removes);
            let found = (reason, rejected_line(answer.request));
            assert_eq!(Some(&found), reasons.next(), "{command}");
        }
        assert_eq!(reasons.next(), None);
    }

    #[test]
    fn versions_are_a_range_or_a_single_number() {
        let payload = [2, 0, 0, 0, 5, 0, 1, 0, 7, 0, 0, 0, 5, 0, 10, 0, 6, 0, 0, 0];
        assert_eq!(protocols(&payload), Ok(6..=7));
        assert_eq!(protocols(&payload[..12]), Ok(7..=7));
        assert!(protocols(&payload[..4]).is_err());
        assert!(revisions(&payload).is_err());
    }
}
