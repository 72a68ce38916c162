//! Matches whose structures have few fields: `linux/netfilter/xt_*.h`.

use super::matches::Structure;
use super::structure::{Reader, Writer};
use super::{ipv6_matches, packet_matches, policy, rate_matches};
use crate::Family;
use crate::field::Text;
use crate::matches::{
    AddressSpan, Connmark, Dscp, DscpValue, Helper, Hl, IpRange, Length, Mac, MacAddress, Match,
    PacketType, Pkttype, Rpfilter, Socket, Tcpmss, Tos, TosValue, Ttl,
};
use crate::negatable::Negatable;
use crate::number::{Masked, MaskedMatch, Range};

/// Length of the name of a helper: `xt_helper_info`.
const HELPER: usize = 30;

// Flags of `struct xt_iprange_mtinfo`.
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;
/// Shift of the flags of negated conditions.
const NEGATED: u8 = 4;

/// Returns the structure of a match. Returns `None` if it is not supported.
pub(super) fn encode(one: &Match<'_>, family: Family) -> Option<Structure> {
    let out = Writer::default();
    Some(match one {
        Match::Connmark(Connmark { mark }) => {
            let mark = mark.as_ref()?;
            let Masked { value, mask } = mark.value().0;
            let out = out.u32(value).u32(mask).u8(mark.is_negated().into());
            ("connmark", 1, out.finish())
        }
        Match::Dscp(Dscp { dscp }) => {
            let dscp = dscp.as_ref()?;
            let out = out.u8(dscp.value().get()).u8(dscp.is_negated().into());
            ("dscp", 0, out.finish())
        }
        Match::Helper(Helper { name }) => {
            let name = name.as_ref()?;
            let out = out.u32(name.is_negated().into());
            ("helper", 0, out.text(&name.value().0, HELPER)?.finish())
        }
        Match::Hl(it) if family == Family::V6 => {
            let (mode, value) = mode(it.eq, it.lt, it.gt)?;
            ("hl", 0, out.u8(mode).u8(value).finish())
        }
        Match::IpRange(it) => ("iprange", 1, iprange(it, family)?.finish()),
        Match::Length(Length { length }) => ("length", 0, range(out, length.as_ref()?).finish()),
        Match::Mac(Mac { source }) => {
            let source = source.as_ref()?;
            let out = out.bytes(&source.value().0).zeros(2);
            ("mac", 0, out.u32(source.is_negated().into()).finish())
        }
        Match::Pkttype(Pkttype { ty }) => {
            let ty = ty.as_ref()?;
            let all = PACKET_TYPES.iter().zip(0..);
            let (_, number) = all.into_iter().find(|(known, _)| *known == ty.value())?;
            let out = out.u32(number).u32(ty.is_negated().into());
            ("pkttype", 0, out.finish())
        }
        Match::Rpfilter(it) => {
            let flags = [it.loose, it.validmark, it.accept_local, it.invert];
            ("rpfilter", 0, out.u8(bits(flags)).finish())
        }
        Match::Socket(it) => {
            let flags = [it.transparent, it.nowildcard, it.restore_skmark, false];
            ("socket", 3, out.u8(bits(flags)).finish())
        }
        Match::Tcpmss(Tcpmss { mss }) => ("tcpmss", 0, range(out, mss.as_ref()?).finish()),
        Match::Tos(Tos { tos }) => {
            let tos = tos.as_ref()?;
            let TosValue { value, mask } = *tos.value();
            let out = out.u8(mask).u8(value).u8(tos.is_negated().into());
            ("tos", 1, out.finish())
        }
        Match::Ttl(it) if family == Family::V4 => {
            let (mode, value) = mode(it.eq, it.lt, it.gt)?;
            ("ttl", 0, out.u8(mode).u8(value).finish())
        }
        Match::Policy(it) => ("policy", 0, policy::encode(it, family)?.finish()),
        _ => return encode_other(one, family),
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
        ("connmark", 1) => {
            let (value, mask) = (reader.u32()?, reader.u32()?);
            let mark = MaskedMatch(Masked { value, mask });
            let mark = Some(Negatable::new(reader.u8()? != 0, mark));
            Connmark { mark }.into()
        }
        ("dscp", 0) => {
            let dscp = DscpValue::new(reader.u8()?)?;
            let dscp = Some(Negatable::new(reader.u8()? != 0, dscp));
            Dscp { dscp }.into()
        }
        ("helper", 0) => {
            let is_negated = reader.u32()? != 0;
            let name = Text(reader.text(HELPER)?.to_owned().into());
            let name = Some(Negatable::new(is_negated, name));
            Helper { name }.into()
        }
        ("hl", 0) => {
            let (eq, lt, gt) = read_mode(reader)?;
            Hl { eq, lt, gt }.into()
        }
        ("iprange", 1) => read_iprange(reader, family)?.into(),
        ("length", 0) => {
            let length = Some(read_range(reader)?);
            Length { length }.into()
        }
        ("mac", 0) => {
            let address = MacAddress(reader.array()?);
            reader.bytes(2)?;
            let source = Some(Negatable::new(reader.u32()? != 0, address));
            Mac { source }.into()
        }
        ("pkttype", 0) => {
            let ty = *PACKET_TYPES.get(usize::try_from(reader.u32()?).ok()?)?;
            let ty = Some(Negatable::new(reader.u32()? != 0, ty));
            Pkttype { ty }.into()
        }
        ("rpfilter", 0) => {
            let [loose, validmark, accept_local, invert] = read_bits(reader)?;
            Rpfilter {
                loose,
                validmark,
                accept_local,
                invert,
            }
            .into()
        }
        ("socket", 3) => {
            let [transparent, nowildcard, restore_skmark, _] = read_bits(reader)?;
            Socket {
                transparent,
                nowildcard,
                restore_skmark,
            }
            .into()
        }
        ("tcpmss", 0) => {
            let mss = Some(read_range(reader)?);
            Tcpmss { mss }.into()
        }
        ("tos", 1) => {
            let (mask, value) = (reader.u8()?, reader.u8()?);
            let tos = TosValue { value, mask };
            let tos = Some(Negatable::new(reader.u8()? != 0, tos));
            Tos { tos }.into()
        }
        ("ttl", 0) => {
            let (eq, lt, gt) = read_mode(reader)?;
            Ttl { eq, lt, gt }.into()
        }
        _ => return decode_other(name, revision, reader, family),
    })
}

/// Returns the structure of a match of another file.
fn encode_other(one: &Match<'_>, family: Family) -> Option<Structure> {
    ipv6_matches::encode(one, family)
        .or_else(|| rate_matches::encode(one, family))
        .or_else(|| packet_matches::encode(one))
}

/// Returns the match of a structure of another file.
fn decode_other(
    name: &str,
    revision: u32,
    reader: &mut Reader<'_>,
    family: Family,
) -> Option<Match<'static>> {
    if (name, revision) == ("policy", 0) {
        return policy::decode(reader, family).map(Match::from);
    }
    ipv6_matches::decode(name, revision, reader, family)
        .or_else(|| rate_matches::decode(name, revision, reader, family))
        .or_else(|| packet_matches::decode(name, revision, reader))
}

/// Packet types by their number: `PACKET_HOST`, `PACKET_BROADCAST`, `PACKET_MULTICAST`.
const PACKET_TYPES: [PacketType; 3] = [
    PacketType::Unicast,
    PacketType::Broadcast,
    PacketType::Multicast,
];

fn bits(flags: [bool; 4]) -> u8 {
    let bits = flags.iter().zip(0..);
    bits.fold(0, |all, (flag, bit)| all | u8::from(*flag) << bit)
}

fn read_bits(reader: &mut Reader<'_>) -> Option<[bool; 4]> {
    let bits = reader.u8()?;
    Some([1, 2, 4, 8].map(|bit| bits & bit != 0))
}

fn range(out: Writer, range: &Negatable<Range<u16>>) -> Writer {
    let Range { first, last } = range.value();
    out.u16(*first).u16(*last).u8(range.is_negated().into())
}

fn read_range(reader: &mut Reader<'_>) -> Option<Negatable<Range<u16>>> {
    let (first, last) = (reader.u16()?, reader.u16()?);
    Some(Negatable::new(reader.u8()? != 0, Range { first, last }))
}

/// Conditions equal, less and greater of a time to live.
type Comparisons = (Option<Negatable<u8>>, Option<u8>, Option<u8>);

/// Returns `IPT_TTL_EQ` and the following modes, and the value.
fn mode(eq: Option<Negatable<u8>>, lt: Option<u8>, gt: Option<u8>) -> Option<(u8, u8)> {
    match (eq, lt, gt) {
        (Some(Negatable::Is(value)), None, None) => Some((0, value)),
        (Some(Negatable::Not(value)), None, None) => Some((1, value)),
        (None, Some(value), None) => Some((2, value)),
        (None, None, Some(value)) => Some((3, value)),
        _ => None,
    }
}

fn read_mode(reader: &mut Reader<'_>) -> Option<Comparisons> {
    let (mode, value) = (reader.u8()?, reader.u8()?);
    Some(match mode {
        0 => (Some(Negatable::Is(value)), None, None),
        1 => (Some(Negatable::Not(value)), None, None),
        2 => (None, Some(value), None),
        3 => (None, None, Some(value)),
        _ => return None,
    })
}

fn iprange(it: &IpRange, family: Family) -> Option<Writer> {
    let mut out = Writer::default();
    let mut flags = 0;
    for (range, bit) in [(&it.source, SOURCE), (&it.destination, DESTINATION)] {
        let Some(range) = range else {
            out = out.zeros(32);
            continue;
        };
        let AddressSpan { first, last } = *range.value();
        out = out.address(first, family)?.address(last, family)?;
        flags |= bit;
        if range.is_negated() {
            flags |= bit << NEGATED;
        }
    }
    Some(out.u8(flags))
}

fn read_iprange(reader: &mut Reader<'_>, family: Family) -> Option<IpRange> {
    let mut span = || {
        let (first, last) = (reader.address(family)?, reader.address(family)?);
        Some(AddressSpan { first, last })
    };
    let (source, destination) = (span()?, span()?);
    let flags = reader.u8()?;
    let range = |bit, span| {
        let is_negated = flags & bit << NEGATED != 0;
        (flags & bit != 0).then(|| Negatable::new(is_negated, span))
    };
    Some(IpRange {
        source: range(SOURCE, source),
        destination: range(DESTINATION, destination),
    })
}
