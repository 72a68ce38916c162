//! Matches of IPsec headers and of IPv6 extension headers: `linux/netfilter_ipv6/ip6t_*.h`.

use std::net::Ipv6Addr;

use ipnet::IpNet;

use super::matches::Structure;
use super::structure::{Reader, Writer};
use crate::Family;
use crate::matches::{
    Addresses, Ah, Dst, Esp, Eui64, Frag, Hbh, HeaderOptions, Ipcomp, Ipv6Header, Ipv6Headers,
    Match, Mh, Rt, Srh,
};
use crate::negatable::Negatable;
use crate::number::Range;

/// A condition on a range of numbers.
type Ids = Option<Negatable<Range<u32>>>;

/// Number of option types or addresses: `IP6T_OPTS_OPTSNR`, `IP6T_RT_HOPS`.
const ENTRIES: usize = 16;
/// An option type without a length: `0x00FF`.
const ANY_LENGTH: u16 = 0xff;

/// Returns the structure of a match. Returns `None` if it is not supported.
pub(super) fn encode(one: &Match<'_>, family: Family) -> Option<Structure> {
    let out = Writer::default();
    Some(match one {
        Match::Ah(it) => ("ah", 0, ah(it, family)?.finish()),
        Match::Esp(Esp { spi }) => {
            let out = put_ids(out, spi, u32::MAX);
            ("esp", 0, out.u8(inverted(spi, 1)).finish())
        }
        Match::Ipcomp(Ipcomp { cpi, reserved }) => {
            let out = put_ids(out, cpi, 0);
            let out = out.u8(inverted(cpi, 1)).u8((*reserved).into());
            ("ipcomp", 0, out.finish())
        }
        _ if family == Family::V4 => return None,
        Match::Dst(Dst { length, options }) => ("dst", 0, header(*length, options)?.finish()),
        Match::Hbh(Hbh { length, options }) => ("hbh", 0, header(*length, options)?.finish()),
        // The structure is an unused number.
        Match::Eui64(Eui64 {}) => ("eui64", 0, out.u32(0).finish()),
        Match::Frag(it) => ("frag", 0, frag(it).finish()),
        Match::Ipv6Header(Ipv6Header { headers, soft }) => {
            let headers = headers.as_ref()?;
            let all = |is_set: bool| if is_set { u8::MAX } else { 0 };
            let out = out.u8(headers.value().bits()).u8(all(headers.is_negated()));
            ("ipv6header", 0, out.u8(all(*soft)).finish())
        }
        Match::Mh(Mh { ty }) => {
            let all = Range::from(0..=u8::MAX);
            let Range { first, last } = ty.map_or(all, |ty| *ty.value());
            ("mh", 0, out.u8(first).u8(last).u8(inverted(ty, 1)).finish())
        }
        Match::Rt(it) => ("rt", 0, rt(it)?.finish()),
        Match::Srh(it) => ("srh", 1, srh(it)?.finish()),
        _ => return None,
    })
}

/// Returns the match of a structure. Returns `None` if it is not supported.
pub(super) fn decode(
    name: &str,
    revision: u32,
    reader: &mut Reader<'_>,
    family: Family,
) -> Option<Match<'static>> {
    Some(match (name, revision) {
        ("ah", 0) => read_ah(reader, family)?.into(),
        ("esp", 0) => {
            let ids = read_ids(reader)?;
            let spi = condition(ids, u32::MAX, reader.u8()? & 1 != 0);
            Esp { spi }.into()
        }
        ("ipcomp", 0) => {
            let ids = read_ids(reader)?;
            let [invert, reserved] = reader.array()?;
            let cpi = condition(ids, 0, invert & 1 != 0);
            let reserved = reserved != 0;
            Ipcomp { cpi, reserved }.into()
        }
        ("dst", 0) => {
            let (length, options) = read_header(reader)?;
            Dst { length, options }.into()
        }
        ("hbh", 0) => {
            let (length, options) = read_header(reader)?;
            Hbh { length, options }.into()
        }
        ("eui64", 0) => Eui64 {}.into(),
        ("frag", 0) => read_frag(reader)?.into(),
        ("ipv6header", 0) => {
            let [headers, invert, soft] = reader.array()?;
            let headers = Ipv6Headers::from_bits(headers)?;
            let headers = Some(Negatable::new(invert != 0, headers));
            let soft = soft != 0;
            Ipv6Header { headers, soft }.into()
        }
        ("mh", 0) => {
            let [first, last, invert] = reader.array()?;
            let ty = Negatable::new(invert & 1 != 0, Range { first, last });
            let all = Negatable::Is(Range::from(0..=u8::MAX));
            let ty = Some(ty).filter(|ty| *ty != all);
            Mh { ty }.into()
        }
        ("rt", 0) => read_rt(reader)?.into(),
        ("srh", 1) => read_srh(reader)?.into(),
        _ => return None,
    })
}

fn inverted<T>(condition: &Option<Negatable<T>>, bit: u8) -> u8 {
    match condition {
        Some(Negatable::Not(_)) => bit,
        _ => 0,
    }
}

/// Appends the first and the last number; without a condition, 0 and `last`.
fn put_ids(out: Writer, ids: &Ids, last: u32) -> Writer {
    let range = ids.map_or(Range { first: 0, last }, |ids| *ids.value());
    out.u32(range.first).u32(range.last)
}

fn read_ids(reader: &mut Reader<'_>) -> Option<Range<u32>> {
    let (first, last) = (reader.u32()?, reader.u32()?);
    Some(Range { first, last })
}

/// Returns a condition, unless it is the one of a match without it.
fn condition(ids: Range<u32>, last: u32, is_negated: bool) -> Ids {
    let is_set = is_negated || ids != Range { first: 0, last };
    is_set.then(|| Negatable::new(is_negated, ids))
}

/// Returns the length of a header, or 0, and its condition.
fn length_of(length: Option<Negatable<u32>>) -> u32 {
    length.map_or(0, |length| *length.value())
}

fn read_length(length: u32, flags: u8, invert: u8, bit: u8) -> Option<Negatable<u32>> {
    (flags & bit != 0).then(|| Negatable::new(invert & bit != 0, length))
}

/// Writes `struct ipt_ah` or `struct ip6t_ah`.
fn ah(it: &Ah, family: Family) -> Option<Writer> {
    let out = put_ids(Writer::default(), &it.spi, u32::MAX);
    let invert = inverted(&it.spi, 1) | inverted(&it.length, 2);
    if family == Family::V4 {
        let has_others = it.length.is_some() || it.reserved;
        return (!has_others).then(|| out.u8(invert));
    }
    let out = out.u32(length_of(it.length)).u8(it.reserved.into());
    Some(out.u8(invert))
}

fn read_ah(reader: &mut Reader<'_>, family: Family) -> Option<Ah> {
    let ids = read_ids(reader)?;
    if family == Family::V4 {
        let spi = condition(ids, u32::MAX, reader.u8()? & 1 != 0);
        return Some(Ah {
            spi,
            length: None,
            reserved: false,
        });
    }
    let length = reader.u32()?;
    let [reserved, invert] = reader.array()?;
    let has_length = length != 0 || invert & 2 != 0;
    Some(Ah {
        spi: condition(ids, u32::MAX, invert & 1 != 0),
        length: has_length.then(|| Negatable::new(invert & 2 != 0, length)),
        reserved: reserved != 0,
    })
}

/// Writes `struct ip6t_frag`.
fn frag(it: &Frag) -> Writer {
    let flags = bits([
        it.id.is_some(),
        it.length.is_some(),
        it.reserved,
        it.first,
        it.more,
        it.last,
    ]);
    let invert = inverted(&it.id, 1) | inverted(&it.length, 2);
    let out = put_ids(Writer::default(), &it.id, u32::MAX);
    out.u32(length_of(it.length)).u8(flags).u8(invert)
}

fn read_frag(reader: &mut Reader<'_>) -> Option<Frag> {
    let (ids, length) = (read_ids(reader)?, reader.u32()?);
    let [flags, invert] = reader.array()?;
    Some(Frag {
        id: (flags & 1 != 0).then(|| Negatable::new(invert & 1 != 0, ids)),
        length: read_length(length, flags, invert, 2),
        reserved: flags & 4 != 0,
        first: flags & 8 != 0,
        more: flags & 0x10 != 0,
        last: flags & 0x20 != 0,
    })
}

/// Writes `struct ip6t_opts`.
fn header(length: Option<Negatable<u32>>, options: &Option<HeaderOptions>) -> Option<Writer> {
    let flags = u8::from(length.is_some()) | u8::from(options.is_some()) << 1;
    let out = Writer::default().u32(length_of(length)).u8(flags);
    let mut out = out.u8(inverted(&length, 1));
    let options = options.as_ref().map_or(&[][..], HeaderOptions::get);
    for (ty, length) in options {
        let length = length.map_or(ANY_LENGTH, u16::from);
        out = out.u16(u16::from(*ty) << 8 | length);
    }
    let unused = ENTRIES.checked_sub(options.len())?;
    Some(out.zeros(unused * 2).u8(options.len().try_into().ok()?))
}

/// Length and options of a header.
type Header = (Option<Negatable<u32>>, Option<HeaderOptions>);

fn read_header(reader: &mut Reader<'_>) -> Option<Header> {
    let length = reader.u32()?;
    let [flags, invert] = reader.array()?;
    let mut entries = [0; ENTRIES];
    for entry in &mut entries {
        *entry = reader.u16()?;
    }
    let count = usize::from(reader.u8()?);
    let option = |entry: &u16| {
        let [ty, length] = entry.to_be_bytes();
        (ty, Some(length).filter(|it| u16::from(*it) != ANY_LENGTH))
    };
    let options = entries.get(..count)?.iter().map(option);
    Some((
        read_length(length, flags, invert, 1),
        HeaderOptions::new(options),
    ))
}

/// Writes `struct ip6t_rt`.
fn rt(it: &Rt) -> Option<Writer> {
    let flags = bits([
        it.ty.is_some(),
        it.segments_left.is_some(),
        it.length.is_some(),
        it.reserved,
        it.addresses.is_some(),
        it.not_strict,
    ]);
    let invert = inverted(&it.ty, 1) | inverted(&it.segments_left, 2) | inverted(&it.length, 4);
    let out = Writer::default().u32(length_of(it.ty));
    let out = put_ids(out, &it.segments_left, u32::MAX).u32(length_of(it.length));
    let mut out = out.u8(flags).u8(invert).zeros(2);
    let addresses = it.addresses.as_ref().map_or(&[][..], Addresses::get);
    for address in addresses {
        out = out.bytes(&address.octets());
    }
    let unused = ENTRIES.checked_sub(addresses.len())?;
    Some(
        out.zeros(unused * 16)
            .u8(addresses.len().try_into().ok()?)
            .zeros(3),
    )
}

fn read_rt(reader: &mut Reader<'_>) -> Option<Rt> {
    let ty = reader.u32()?;
    let (segments, length) = (read_ids(reader)?, reader.u32()?);
    let [flags, invert] = reader.array()?;
    reader.bytes(2)?;
    let mut addresses = [Ipv6Addr::UNSPECIFIED; ENTRIES];
    for address in &mut addresses {
        *address = Ipv6Addr::from(reader.array::<16>()?);
    }
    let count = usize::from(reader.u8()?);
    Some(Rt {
        ty: read_length(ty, flags, invert, 1),
        segments_left: (flags & 2 != 0).then(|| Negatable::new(invert & 2 != 0, segments)),
        length: read_length(length, flags, invert, 4),
        reserved: flags & 8 != 0,
        addresses: Addresses::new(addresses.get(..count)?.iter().copied()),
        not_strict: flags & 0x20 != 0,
    })
}

/// Returns the bits of flags, from bit 0.
fn bits<const N: usize>(flags: [bool; N]) -> u8 {
    let flags = flags.iter().zip(0..);
    flags.fold(0, |all, (flag, bit)| all | u8::from(*flag) << bit)
}

/// Conditions that share a field: equal, greater and less.
type Comparisons = [Option<Negatable<u8>>; 3];

/// Returns the value of the only condition. Returns `None` for conditions with several
/// values, of which the structure has only one.
fn shared(conditions: Comparisons) -> Option<u8> {
    let mut values = conditions.iter().flatten().map(|it| *it.value());
    let first = values.next().unwrap_or(0);
    values.all(|value| value == first).then_some(first)
}

/// Conditions of `struct ip6t_srh1` in the order of their flags.
fn srh_conditions(it: &Srh) -> [Option<bool>; 14] {
    fn of<T>(condition: &Option<Negatable<T>>) -> Option<bool> {
        condition.as_ref().map(Negatable::is_negated)
    }
    [
        of(&it.next_header),
        of(&it.length),
        of(&it.length_gt),
        of(&it.length_lt),
        of(&it.segments_left),
        of(&it.segments_left_gt),
        of(&it.segments_left_lt),
        of(&it.last_entry),
        of(&it.last_entry_gt),
        of(&it.last_entry_lt),
        of(&it.tag),
        of(&it.previous),
        of(&it.next),
        of(&it.last),
    ]
}

/// Writes `struct ip6t_srh1`.
fn srh(it: &Srh) -> Option<Writer> {
    let (mut flags, mut invert) = (0, 0);
    for (is_negated, bit) in srh_conditions(it).into_iter().zip(0_u16..) {
        flags |= u16::from(is_negated.is_some()) << bit;
        invert |= u16::from(is_negated == Some(true)) << bit;
    }
    let out = Writer::default()
        .u8(it.next_header.map_or(0, |it| *it.value()))
        .u8(shared([it.length, it.length_gt, it.length_lt])?)
        .u8(shared([
            it.segments_left,
            it.segments_left_gt,
            it.segments_left_lt,
        ])?)
        .u8(shared([it.last_entry, it.last_entry_gt, it.last_entry_lt])?)
        .u16(it.tag.map_or(0, |it| *it.value()))
        .zeros(2);
    let networks = [it.previous, it.next, it.last];
    let parts = networks.map(|network| match network.as_ref().map(Negatable::value) {
        Some(IpNet::V6(network)) => Some([network.addr(), network.netmask()]),
        Some(IpNet::V4(_)) => None,
        None => Some([Ipv6Addr::UNSPECIFIED; 2]),
    });
    let addresses = |index: usize| parts.iter().map(move |parts| Some((*parts)?[index]));
    let all: Vec<Ipv6Addr> = addresses(0).chain(addresses(1)).collect::<Option<_>>()?;
    let out = all.iter().fold(out, |out, it| out.bytes(&it.octets()));
    Some(out.u16(flags).u16(invert))
}

fn read_srh(reader: &mut Reader<'_>) -> Option<Srh> {
    let [next_header, length, segments_left, last_entry] = reader.array()?;
    let tag = reader.u16()?;
    reader.bytes(2)?;
    let mut addresses = [Ipv6Addr::UNSPECIFIED; 6];
    for address in &mut addresses {
        *address = Ipv6Addr::from(reader.array::<16>()?);
    }
    let (flags, invert) = (reader.u16()?, reader.u16()?);
    let negated = |bit: u16| (flags >> bit & 1 != 0).then_some(invert >> bit & 1 != 0);
    let byte = |bit, value| Some(Negatable::new(negated(bit)?, value));
    let mut networks = [None; 3];
    for ((network, bit), at) in networks.iter_mut().zip(11..).zip(0..) {
        if let Some(is_negated) = negated(bit) {
            let (address, mask) = (addresses.get(at)?, addresses.get(at + 3)?);
            let found = IpNet::with_netmask((*address).into(), (*mask).into()).ok()?;
            *network = Some(Negatable::new(is_negated, found));
        }
    }
    let [previous, next, last] = networks;
    Some(Srh {
        next_header: byte(0, next_header),
        length: byte(1, length),
        length_gt: byte(2, length),
        length_lt: byte(3, length),
        segments_left: byte(4, segments_left),
        segments_left_gt: byte(5, segments_left),
        segments_left_lt: byte(6, segments_left),
        last_entry: byte(7, last_entry),
        last_entry_gt: byte(8, last_entry),
        last_entry_lt: byte(9, last_entry),
        tag: negated(10).map(|is_negated| Negatable::new(is_negated, tag)),
        previous,
        next,
        last,
    })
}
