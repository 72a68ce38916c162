//! Matches as structures of xtables: `linux/netfilter/xt_*.h`.

use std::borrow::Cow;

use vipline_nftables::Bytes;

use super::structure::{Reader, Writer, address_of};
use super::{chunks, conntrack, ipvs, owner, small_matches};
use crate::Family;
use crate::direction::Direction;
use crate::matches::{
    AddrType, AddressTypes, Comment, Flags, FlagsMatch, Icmp, Icmp6, IcmpType, Match, Multiport,
    MultiportKind, Nfacct, Physdev, Probability, Recent, RecentAction, Sctp, Statistic, Tcp, Udp,
};
use crate::negatable::Negatable;
use crate::number::Ports;

/// Name, revision and structure of an extension.
pub(super) type Structure = (&'static str, u32, Bytes);

/// Length of the text of a comment with its NUL byte: `XT_MAX_COMMENT_LEN`.
const COMMENT: usize = 256;
/// Length of the name of a list of addresses: `XT_RECENT_NAME_LEN`.
const LIST: usize = 200;
/// Length of the name of a counter: `NFACCT_NAME_MAX`.
const COUNTER: usize = 32;
/// Length of an interface name: `IFNAMSIZ`.
const INTERFACE: usize = 16;
/// Maximum number of ports: `XT_MULTI_PORTS`.
const PORTS: usize = 15;

/// Returns the structure of a match. Returns `None` if it is not supported.
pub(super) fn encode(one: &Match<'_>, family: Family) -> Option<Structure> {
    let out = Writer::default();
    Some(match one {
        Match::AddrType(it) => ("addrtype", 1, addrtype(it)),
        Match::Comment(Comment(text)) => ("comment", 0, out.text(text, COMMENT)?.finish()),
        Match::Conntrack(it) => ("conntrack", 3, conntrack::encode(it, family)?),
        Match::State(it) => ("conntrack", 3, conntrack::encode_state(it, family)?),
        Match::Icmp(Icmp(it)) => ("icmp", 0, icmp(it)),
        Match::Icmp6(Icmp6(it)) => ("icmp6", 0, icmp(it)),
        Match::Ipvs(it) => ("ipvs", 0, ipvs::encode(it, family)?),
        Match::Multiport(it) => ("multiport", 1, multiport(it)?),
        // The kernel stores a pointer after the name.
        Match::Nfacct(it) => ("nfacct", 1, out.text(&it.name, COUNTER)?.zeros(8).finish()),
        Match::Owner(it) => ("owner", 1, owner::encode(it)),
        Match::Physdev(it) => ("physdev", 0, physdev(it)?),
        Match::Recent(it) => ("recent", 1, recent(it, family)?),
        Match::Sctp(it) => ("sctp", 0, sctp(it)?),
        Match::Statistic(it) => ("statistic", 0, statistic(it)?),
        Match::Tcp(it) => ("tcp", 0, tcp(it)),
        Match::Udp(it) => ("udp", 0, udp(it)),
        _ => return small_matches::encode(one, family),
    })
}

/// Returns the match of a structure. Returns `None` if it is not supported.
pub(super) fn decode(
    name: &str,
    revision: u32,
    bytes: &[u8],
    family: Family,
) -> Option<Match<'static>> {
    let mut reader = Reader::new(bytes);
    Some(match (name, revision) {
        ("addrtype", 1) => read_addrtype(&mut reader)?.into(),
        ("comment", 0) => Comment::new(reader.text(COMMENT)?.to_owned()).into(),
        ("conntrack", 3) => return conntrack::decode(bytes, family),
        ("icmp", 0) => {
            let wanted = read_icmp(&mut reader)?;
            let IcmpType { ty, code } = wanted.value();
            // The kernel ignores the code of `any`.
            if *ty == Icmp::ANY.ty && code.is_some() {
                return None;
            }
            Icmp(wanted).into()
        }
        ("icmp6", 0) => Icmp6(read_icmp(&mut reader)?).into(),
        ("ipvs", 0) => ipvs::decode(bytes, family)?.into(),
        ("multiport", 1) => read_multiport(&mut reader)?.into(),
        ("nfacct", 1) => Nfacct::new(reader.text(COUNTER)?.to_owned()).into(),
        ("owner", 1) => owner::decode(&mut reader)?.into(),
        ("physdev", 0) => read_physdev(&mut reader)?.into(),
        ("recent", 1) => read_recent(&mut reader, family)?.into(),
        ("sctp", 0) => read_sctp(&mut reader)?.into(),
        ("statistic", 0) => read_statistic(&mut reader)?.into(),
        ("tcp", 0) => read_tcp(&mut reader)?.into(),
        ("udp", 0) => read_udp(&mut reader)?.into(),
        _ => return small_matches::decode(name, revision, &mut reader, family),
    })
}

/// Returns a bit if a condition is negated.
fn inverted<T>(condition: Option<&Negatable<T>>, bit: u8) -> u8 {
    match condition {
        Some(Negatable::Not(_)) => bit,
        _ => 0,
    }
}

/// Returns a bit if a condition exists.
fn present<T>(condition: Option<&T>, bit: u8) -> u8 {
    if condition.is_some() { bit } else { 0 }
}

fn addrtype(it: &AddrType) -> Bytes {
    let types = |types: &Option<Negatable<AddressTypes>>| match types {
        Some(types) => types.value().bits(),
        None => 0,
    };
    let flags = inverted(it.source.as_ref(), 1)
        | inverted(it.destination.as_ref(), 2)
        | u8::from(it.limit_in) << 2
        | u8::from(it.limit_out) << 3;
    let out = Writer::default()
        .u16(types(&it.source))
        .u16(types(&it.destination));
    out.u32(flags.into()).finish()
}

fn read_addrtype(reader: &mut Reader<'_>) -> Option<AddrType> {
    let (source, destination, flags) = (reader.u16()?, reader.u16()?, reader.u32()?);
    let types = |bits, bit| {
        let types = AddressTypes::from_bits(bits).filter(|types| !types.is_empty())?;
        Some(Negatable::new(flags & bit != 0, types))
    };
    Some(AddrType {
        source: types(source, 1),
        destination: types(destination, 2),
        limit_in: flags & 4 != 0,
        limit_out: flags & 8 != 0,
    })
}

fn icmp(it: &Negatable<IcmpType>) -> Bytes {
    let IcmpType { ty, code } = it.value();
    let (first, last) = match code {
        Some(code) => (*code, *code),
        None => (0, u8::MAX),
    };
    let out = Writer::default().u8(*ty).u8(first).u8(last);
    out.u8(it.is_negated().into()).finish()
}

fn read_icmp(reader: &mut Reader<'_>) -> Option<Negatable<IcmpType>> {
    let [ty, first, last, invert] = reader.array()?;
    let code = match (first, last) {
        (0, u8::MAX) => None,
        (first, last) if first == last => Some(first),
        _ => return None,
    };
    Some(Negatable::new(invert != 0, IcmpType { ty, code }))
}

fn multiport(it: &Multiport) -> Option<Bytes> {
    let (mut ports, mut continued) = (Vec::new(), Vec::new());
    for Ports { first, last } in it.ports.value() {
        ports.push(*first);
        continued.push(u8::from(first != last));
        if first != last {
            ports.push(*last);
            continued.push(0);
        }
    }
    let kind = match it.kind {
        MultiportKind::Source => 0,
        MultiportKind::Destination => 1,
        MultiportKind::Either => 2,
    };
    let mut out = Writer::default().u8(kind).u8(ports.len().try_into().ok()?);
    let unused = PORTS.checked_sub(ports.len())?;
    for port in ports {
        out = out.u16(port);
    }
    let out = out.zeros(unused * 2).padded(&continued, PORTS)?;
    Some(out.u8(it.ports.is_negated().into()).finish())
}

fn read_multiport(reader: &mut Reader<'_>) -> Option<Multiport> {
    let kind = match reader.u8()? {
        0 => MultiportKind::Source,
        1 => MultiportKind::Destination,
        2 => MultiportKind::Either,
        _ => return None,
    };
    let count = usize::from(reader.u8()?);
    let mut numbers = [0; PORTS];
    for number in &mut numbers {
        *number = reader.u16()?;
    }
    let continued: [u8; PORTS] = reader.array()?;
    let mut ends = numbers.iter().zip(continued).take(count);
    let mut ports = Vec::new();
    while let Some((first, is_range)) = ends.next() {
        let last = if is_range == 0 { first } else { ends.next()?.0 };
        ports.push(Ports {
            first: *first,
            last: *last,
        });
    }
    let ports = Negatable::new(reader.u8()? != 0, ports);
    Some(Multiport { kind, ports })
}

/// Appends an interface name and the mask of its compared bytes.
fn put_interface(out: Writer, name: Option<&Negatable<Cow<'_, str>>>) -> Option<Writer> {
    let name = name.map_or("", |name| name.value());
    let compared = match name.strip_suffix('+') {
        Some(start) => start.len(),
        None if name.is_empty() => 0,
        None => name.len() + 1,
    };
    out.text(name, INTERFACE)?
        .padded(&vec![0xff; compared], INTERFACE)
}

fn physdev(it: &Physdev<'_>) -> Option<Bytes> {
    let out = put_interface(Writer::default(), it.input.as_ref())?;
    let out = put_interface(out, it.output.as_ref())?;
    let (input, output) = (it.input.as_ref(), it.output.as_ref());
    let [is_in, is_out, bridged] = [&it.is_in, &it.is_out, &it.is_bridged].map(Option::as_ref);
    let invert = inverted(input, 1)
        | inverted(output, 2)
        | inverted(bridged, 4)
        | inverted(is_in, 8)
        | inverted(is_out, 16);
    let used = present(input, 1)
        | present(output, 2)
        | present(bridged, 4)
        | present(is_in, 8)
        | present(is_out, 16);
    Some(out.u8(invert).u8(used).finish())
}

fn read_physdev(reader: &mut Reader<'_>) -> Option<Physdev<'static>> {
    let input = reader.text(INTERFACE)?.to_owned();
    reader.bytes(INTERFACE)?;
    let output = reader.text(INTERFACE)?.to_owned();
    reader.bytes(INTERFACE)?;
    let (invert, used) = (reader.u8()?, reader.u8()?);
    let flag = |bit| (used & bit != 0).then(|| Negatable::new(invert & bit != 0, ()));
    Some(Physdev {
        is_in: flag(8),
        input: flag(1).map(|flag| flag.map(|()| input.into())),
        is_out: flag(16),
        output: flag(2).map(|flag| flag.map(|()| output.into())),
        is_bridged: flag(4),
    })
}

/// Flags of `check_set`: actions, comparison of the TTL, and removal of old entries.
const ACTIONS: [(RecentAction, u8); 4] = [
    (RecentAction::Check, 1),
    (RecentAction::Set, 2),
    (RecentAction::Update, 4),
    (RecentAction::Remove, 8),
];
const TTL: u8 = 16;
const REAP: u8 = 32;

/// Returns the name of a list of addresses as iptables writes it: over its default.
fn list_name(name: &str) -> Option<Vec<u8>> {
    let mut bytes = b"DEFAULT\0".to_vec();
    if name.len() >= LIST {
        return None;
    }
    bytes.splice(
        ..bytes.len().min(name.len() + 1),
        [name.as_bytes(), &[0]].concat(),
    );
    Some(bytes)
}

fn recent(it: &Recent<'_>, family: Family) -> Option<Bytes> {
    let action = it.action?;
    let (_, bit) = ACTIONS.iter().find(|(known, _)| known == action.value())?;
    let flags = bit | if it.rttl { TTL } else { 0 } | if it.reap { REAP } else { 0 };
    let out = Writer::default()
        .u32(it.seconds.unwrap_or(0))
        .u32(it.hitcount.unwrap_or(0))
        .u8(flags)
        .u8(action.is_negated().into())
        .padded(&list_name(&it.name)?, LIST)?
        .u8((it.direction == Direction::Destination).into())
        .zeros(1);
    let out = match it.mask {
        Some(mask) => out.address(mask, family)?,
        None => out.bytes(&[u8::MAX; 16]),
    };
    Some(out.finish())
}

fn read_recent(reader: &mut Reader<'_>, family: Family) -> Option<Recent<'static>> {
    let (seconds, hitcount) = (reader.u32()?, reader.u32()?);
    let (flags, invert) = (reader.u8()?, reader.u8()?);
    let mut actions = ACTIONS.iter().filter(|(_, bit)| flags & bit != 0);
    let (action, _) = *actions.next()?;
    let mut recent = Recent::new(action, reader.text(LIST)?.to_owned());
    recent.action = Some(Negatable::new(invert != 0, action));
    if reader.u8()? != 0 {
        recent.direction = Direction::Destination;
    }
    reader.u8()?;
    let mask: [u8; 16] = reader.array()?;
    recent.mask = Some(mask)
        .filter(|mask| *mask != [u8::MAX; 16])
        .map(|mask| address_of(mask, family));
    recent.seconds = Some(seconds).filter(|seconds| *seconds != 0);
    recent.hitcount = Some(hitcount).filter(|count| *count != 0);
    (recent.rttl, recent.reap) = (flags & TTL != 0, flags & REAP != 0);
    Some(recent)
}

/// Appends the first and last port, or `default`.
fn put_ports(out: Writer, place: &Option<Negatable<Ports>>, default: Ports) -> Writer {
    let Ports { first, last } = place.as_ref().map_or(&default, Negatable::value);
    out.u16(*first).u16(*last)
}

fn read_ports(reader: &mut Reader<'_>) -> Option<Ports> {
    let (first, last) = (reader.u16()?, reader.u16()?);
    Some(Ports { first, last })
}

/// Returns the condition on ports, unless it matches all.
fn condition(ports: Ports, is_negated: bool) -> Option<Negatable<Ports>> {
    (ports != Ports::ALL).then(|| Negatable::new(is_negated, ports))
}

fn tcp(it: &Tcp) -> Bytes {
    let out = put_ports(Writer::default(), &it.sport, Ports::ALL);
    let out = put_ports(out, &it.dport, Ports::ALL);
    let option = it.option.map_or(0, |option| *option.value());
    let (mask, set) = match &it.flags {
        Some(flags) => (flags.value().mask.bits(), flags.value().set.bits()),
        None => (0, 0),
    };
    let invert = inverted(it.sport.as_ref(), 1)
        | inverted(it.dport.as_ref(), 2)
        | inverted(it.flags.as_ref(), 4)
        | inverted(it.option.as_ref(), 8);
    out.u8(option).u8(mask).u8(set).u8(invert).finish()
}

fn read_tcp(reader: &mut Reader<'_>) -> Option<Tcp> {
    let (sport, dport) = (read_ports(reader)?, read_ports(reader)?);
    let [option, mask, set, invert] = reader.array()?;
    let [mask, set] = [mask, set].map(Flags::from_bits);
    let flags = FlagsMatch {
        mask: mask?,
        set: set?,
    };
    Some(Tcp {
        sport: condition(sport, invert & 1 != 0),
        dport: condition(dport, invert & 2 != 0),
        option: (option != 0).then(|| Negatable::new(invert & 8 != 0, option)),
        flags: (!flags.mask.is_empty()).then(|| Negatable::new(invert & 4 != 0, flags)),
    })
}

fn udp(it: &Udp) -> Bytes {
    let out = put_ports(Writer::default(), &it.sport, Ports::ALL);
    let out = put_ports(out, &it.dport, Ports::ALL);
    let invert = inverted(it.sport.as_ref(), 1) | inverted(it.dport.as_ref(), 2);
    out.u8(invert).finish()
}

fn read_udp(reader: &mut Reader<'_>) -> Option<Udp> {
    let (sport, dport) = (read_ports(reader)?, read_ports(reader)?);
    let invert = reader.u8()?;
    Some(Udp {
        sport: condition(sport, invert & 1 != 0),
        dport: condition(dport, invert & 2 != 0),
    })
}

fn sctp(it: &Sctp) -> Option<Bytes> {
    let none = Ports { first: 0, last: 0 };
    let out = put_ports(Writer::default(), &it.dport, none);
    let chunks = it.chunks.as_ref();
    let out = chunks::encode(
        put_ports(out, &it.sport, none),
        chunks.map(Negatable::value),
    )?;
    let (sport, dport) = (it.sport.as_ref(), it.dport.as_ref());
    let used = present(sport, 1) | present(dport, 2) | present(chunks, 4);
    let invert = inverted(sport, 1) | inverted(dport, 2) | inverted(chunks, 4);
    Some(out.u32(used.into()).u32(invert.into()).finish())
}

fn read_sctp(reader: &mut Reader<'_>) -> Option<Sctp> {
    let (dport, sport) = (read_ports(reader)?, read_ports(reader)?);
    let chunks = chunks::decode(reader)?;
    let (used, invert) = (reader.u32()?, reader.u32()?);
    let ports = |bit, ports| (used & bit != 0).then(|| Negatable::new(invert & bit != 0, ports));
    Some(Sctp {
        sport: ports(1, sport),
        dport: ports(2, dport),
        chunks: match used & 4 {
            0 => None,
            _ => Some(Negatable::new(invert & 4 != 0, chunks?)),
        },
    })
}

/// Bit of the flags: the match is negated.
const INVERTED: u16 = 1;

fn statistic(it: &Statistic) -> Option<Bytes> {
    let out = Writer::default();
    let out = match it {
        Statistic::Random(probability) => out
            .u16(0)
            .u16(probability.is_negated().into())
            .u32(probability.value().parts())
            .u32(0)
            // iptables repeats it in the field `count` of the other mode.
            .u32(probability.value().parts()),
        Statistic::Nth { every, packet } => {
            let last = every.value().checked_sub(1)?;
            let count = last.checked_sub(*packet)?;
            let out = out.u16(1).u16(every.is_negated().into());
            out.u32(last).u32(*packet).u32(count)
        }
    };
    // The kernel stores a pointer.
    Some(out.zeros(8).finish())
}

fn read_statistic(reader: &mut Reader<'_>) -> Option<Statistic> {
    let (mode, flags) = (reader.u16()?, reader.u16()?);
    let first = reader.u32()?;
    let is_negated = flags & INVERTED != 0;
    match mode {
        0 => {
            let probability = Probability::from_parts(first)?;
            Some(Statistic::Random(Negatable::new(is_negated, probability)))
        }
        1 => Some(Statistic::Nth {
            every: Negatable::new(is_negated, first.checked_add(1)?),
            packet: reader.u32()?,
        }),
        _ => None,
    }
}
