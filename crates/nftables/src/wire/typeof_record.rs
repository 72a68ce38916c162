//! Expressions of set fields as nft stores them in user data (`typeof`): a type, and
//! numbered parameters.
//!
//! A record that no [`Expression`] stands for, such as that of `vlan id`, is kept as text
//! ([`Declared`]), so that a listing shows the declaration.

use crate::Datatype;
use crate::expr::{
    CtKey, Direction, ExthdrOp, FibFlags, FibResult, MetaKey, NFT_HASH_SYM, NFT_SOCKET_MARK,
    NFT_SOCKET_TRANSPARENT, NFT_SOCKET_WILDCARD, NumgenMode, OsfTtl, PayloadBase, RtKey, SocketKey,
    XfrmDirection, XfrmKey,
};
use crate::expression::{Expression, Term, exthdr, ipsec, osf_name};
use crate::language::extension::Extension;
use crate::language::field::Declared;
use crate::language::header;
use crate::language::load::Load;
use crate::value::ByteOrder;

// enum expr_types of nft 1.0.6
const EXPR_PAYLOAD: u32 = 7;
const EXPR_EXTHDR: u32 = 8;
const EXPR_META: u32 = 9;
const EXPR_SOCKET: u32 = 10;
const EXPR_OSF: u32 = 11;
const EXPR_CT: u32 = 12;
const EXPR_NUMGEN: u32 = 23;
const EXPR_HASH: u32 = 24;
const EXPR_RT: u32 = 25;
const EXPR_FIB: u32 = 26;
const EXPR_XFRM: u32 = 27;
/// Direction of a conntrack key without a direction.
const NO_DIRECTION: u32 = u32::MAX;

/// Type and parameters of an expression.
type Record = (u32, Vec<(u8, u32)>);

/// Returns the stored form of an expression.
pub(super) fn record(expression: &Expression) -> Option<Record> {
    let numbered = |numbers: &[u32]| (0..).zip(numbers.iter().copied()).collect();
    Some(match &expression.0 {
        Term::Header(field) => {
            let mut numbers = vec![(0, field.typeof_ids.0), (1, field.typeof_ids.1)];
            if field.datatype == Datatype::Integer {
                numbers.push((4, u32::from(field.bytes) * 8));
            }
            (EXPR_PAYLOAD, numbers)
        }
        Term::Payload { base, offset, len } => {
            let base = base.number().checked_add(1)?;
            let (offset, len) = (offset.checked_mul(8)?, len.checked_mul(8)?);
            (EXPR_PAYLOAD, numbered(&[0, 0, base, offset, len]))
        }
        Term::Meta(key) => (EXPR_META, numbered(&[key.number()])),
        Term::Ct(key, direction) => {
            let direction = direction.map_or(NO_DIRECTION, |it| it.number().into());
            (EXPR_CT, numbered(&[key.number(), direction]))
        }
        Term::Numgen {
            mode,
            modulus,
            offset,
        } => (EXPR_NUMGEN, numbered(&[mode.number(), *modulus, *offset])),
        Term::Symmetric { modulus, offset } => {
            // The last two are those of a seed.
            (
                EXPR_HASH,
                numbered(&[NFT_HASH_SYM, *offset, *modulus, 0, 0]),
            )
        }
        Term::Fib(flags, result) if !flags.contains(FibFlags::PRESENT) => {
            (EXPR_FIB, numbered(&[result.number(), flags.bits()]))
        }
        Term::Load(load) => record_of_load(load)?,
        _ => return None,
    })
}

fn record_of_load(load: &Load) -> Option<Record> {
    Some(match load {
        Load::Exthdr {
            op,
            kind,
            present: false,
            ..
        } => {
            let (header, field) = exthdr_numbers(*op, *kind, &load.to_string())?;
            let number = op.number();
            let numbers = match op {
                ExthdrOp::Ipv6 => vec![(1, field), (0, header)],
                _ => vec![(1, field), (2, number), (0, header)],
            };
            (EXPR_EXTHDR, numbers)
        }
        Load::Rt(key) => (EXPR_RT, vec![(0, key.number())]),
        // nft does not store the level of a control group.
        Load::Socket(SocketKey::Cgroupv2(_)) => return None,
        Load::Socket(key) => (EXPR_SOCKET, vec![(0, key.number())]),
        Load::Xfrm {
            key,
            direction,
            spnum,
        } => {
            let direction = direction.number().into();
            (
                EXPR_XFRM,
                vec![(0, key.number()), (1, *spnum), (2, direction)],
            )
        }
        Load::Osf {
            ttl: OsfTtl::True,
            version: false,
        } => (EXPR_OSF, Vec::new()),
        _ => return None,
    })
}

/// Returns the expression of a stored type and parameters.
pub(super) fn expression(kind: u32, numbers: &[u32]) -> Option<Expression> {
    Some(match (kind, numbers) {
        (EXPR_PAYLOAD, [0, _, base, offset, len]) if (offset | len) % 8 == 0 => {
            let base = PayloadBase::from_number(base.checked_sub(1)?);
            let (offset, len) = (offset / 8, len / 8);
            Expression::of(Term::Payload { base, offset, len })
        }
        (EXPR_PAYLOAD, [protocol, field] | [protocol, field, _]) => {
            let ids = (*protocol, *field);
            Expression::of(Term::Header(
                header::ALL.iter().find(|f| f.typeof_ids == ids)?,
            ))
        }
        (EXPR_META, [key]) => MetaKey::from_number(*key).into(),
        (EXPR_CT, [key, direction]) => {
            let direction = u8::try_from(*direction).ok();
            let direction = direction.and_then(Direction::from_number);
            Expression::ct(CtKey::from_number(*key), direction)
        }
        (EXPR_NUMGEN, [mode, modulus, offset]) => {
            Expression::numgen(NumgenMode::from_number(*mode)?, *modulus, *offset)
        }
        (EXPR_HASH, [NFT_HASH_SYM, offset, modulus, 0, 0]) => {
            Expression::symmetric(*modulus, *offset)
        }
        (EXPR_FIB, [result, flags]) => {
            let flags = FibFlags::from_bits_retain(*flags);
            Expression::fib(flags, FibResult::from_number(*result)?)
        }
        (EXPR_EXTHDR, [field, header]) => exthdr_of(ExthdrOp::Ipv6, *field, *header)?,
        (EXPR_EXTHDR, [field, op, header]) => {
            exthdr_of(ExthdrOp::from_number(*op), *field, *header)?
        }
        (EXPR_RT, [key]) => RtKey::from_number(*key).into(),
        (EXPR_SOCKET, [NFT_SOCKET_TRANSPARENT]) => SocketKey::Transparent.into(),
        (EXPR_SOCKET, [NFT_SOCKET_MARK]) => SocketKey::Mark.into(),
        (EXPR_SOCKET, [NFT_SOCKET_WILDCARD]) => SocketKey::Wildcard.into(),
        (EXPR_XFRM, [key, spnum, direction]) => {
            let direction = u8::try_from(*direction).ok();
            let direction = direction.and_then(XfrmDirection::from_number)?;
            ipsec(direction, *spnum, XfrmKey::from_number(*key))
        }
        (EXPR_OSF, []) => osf_name(OsfTtl::True),
        _ => return None,
    })
}

/// Returns the field of an optional header that nft numbers so, if it has whole bytes.
fn exthdr_of(op: ExthdrOp, field: u32, header: u32) -> Option<Expression> {
    let text = exthdr_text(op.number(), header, field)?;
    let (kind, offset, len) = Extension::find_text(op, &text)?;
    let is_whole = offset.is_multiple_of(8) && len.is_multiple_of(8);
    is_whole.then(|| exthdr(op, kind, offset / 8, len / 8))
}

/// A field of a header: its number, name and size in bytes.
type HeaderField = (u32, &'static str, u16);

/// Header fields of less than a byte, and of messages of some types: number and name of
/// the header, and the fields.
const HEADERS: &[(u32, &str, &[HeaderField])] = &[
    (1, "ah", &[(1, "nexthdr", 1)]),
    (3, "comp", &[(1, "nexthdr", 1), (2, "flags", 1)]),
    (
        4,
        "icmp",
        &[
            (4, "id", 2),
            (5, "sequence", 2),
            (6, "gateway", 4),
            (7, "mtu", 2),
        ],
    ),
    (5, "igmp", &[(1, "type", 1), (3, "mrt", 1)]),
    (8, "tcp", &[(5, "doff", 1), (6, "reserved", 1)]),
    (9, "dccp", &[(3, "type", 1)]),
    (
        12,
        "ip",
        &[
            (1, "version", 1),
            (2, "hdrlength", 1),
            (3, "dscp", 1),
            (4, "ecn", 1),
        ],
    ),
    (
        13,
        "ip6",
        &[
            (1, "version", 1),
            (2, "dscp", 1),
            (3, "ecn", 1),
            (4, "flowlabel", 3),
        ],
    ),
    (
        14,
        "icmpv6",
        &[
            (4, "parameter-problem", 4),
            (5, "mtu", 4),
            (6, "id", 2),
            (7, "sequence", 2),
            (8, "max-delay", 2),
        ],
    ),
    (
        16,
        "vlan",
        &[(1, "pcp", 1), (2, "dei", 1), (3, "cfi", 1), (4, "id", 2)],
    ),
];

/// Names of IPv6 extension headers and of their fields, from number 1.
const EXTENSIONS: &[(&str, &[&str])] = &[
    ("hbh", &["nexthdr", "hdrlength"]),
    ("rt", &["nexthdr", "hdrlength", "type", "seg-left"]),
    ("rt0", &["reserved", "addr[1]"]),
    ("rt2", &["reserved", "addr"]),
    ("srh", &["last-entry", "flags", "tag", "sid[1]"]),
    (
        "frag",
        &[
            "nexthdr",
            "reserved",
            "frag-off",
            "reserved2",
            "more-fragments",
            "id",
        ],
    ),
    ("dst", &["nexthdr", "hdrlength"]),
    (
        "mh",
        &["nexthdr", "hdrlength", "type", "reserved", "checksum"],
    ),
];

/// Names of TCP options, of fields from number 2. Fields 0 and 1 are `kind` and `length`.
const TCP_OPTIONS: &[(u32, &str, &[&str])] = &[
    (2, "maxseg", &["size"]),
    (3, "window", &["count"]),
    (4, "sack-perm", &[]),
    (5, "sack", &["left", "right"]),
    (8, "timestamp", &["tsval", "tsecr"]),
    (19, "md5sig", &[]),
    (30, "mptcp", &["subtype"]),
    (34, "fastopen", &[]),
];

/// Returns the declaration that user data describes: a type and numbered parameters.
pub(super) fn declared(kind: u32, parameters: &[(u8, u32)]) -> Option<Declared> {
    let get = |id: u8| {
        let found = parameters.iter().find(|(of, _)| *of == id);
        found.map(|(_, number)| *number)
    };
    Some(match kind {
        EXPR_PAYLOAD => payload(get(0)?, get(1)?, [get(2), get(3), get(4)])?,
        EXPR_EXTHDR => Declared::big(exthdr_text(get(2).unwrap_or(0), get(0)?, get(1)?)?),
        EXPR_OSF => Declared::big("osf name"),
        EXPR_SOCKET => {
            let keys = ["transparent", "mark", "wildcard"];
            let key = keys.get(usize::try_from(get(0)?).ok()?)?;
            Declared::new(format!("socket {key}"), ByteOrder::Host, None)
        }
        EXPR_RT => {
            let key = RtKey::from_number(get(0)?);
            Expression::of(Term::Load(Load::Rt(key))).into()
        }
        EXPR_FIB => {
            let result = FibResult::from_number(get(0)?)?;
            let flags = FibFlags::from_bits_retain(get(1)?);
            Expression::of(Term::Fib(flags, result)).into()
        }
        EXPR_XFRM => {
            let key = XfrmKey::from_number(get(0)?);
            let direction = match XfrmDirection::from_number(u8::try_from(get(2)?).ok()?)? {
                XfrmDirection::In => "in",
                XfrmDirection::Out => "out",
            };
            let spnum = match get(1)? {
                0 => String::new(),
                number => format!(" spnum {number}"),
            };
            let order = match key {
                XfrmKey::Reqid => ByteOrder::Host,
                _ => ByteOrder::Big,
            };
            let text = format!("ipsec {direction}{spnum} {}", key.as_str()?);
            Declared::new(text, order, None)
        }
        // nft 1.0.6 aborts when it lists a set that is declared with `jhash`.
        EXPR_HASH if get(0)? == NFT_HASH_SYM => {
            let (modulus, offset) = (get(2)?, get(1)?);
            Expression::of(Term::Symmetric { modulus, offset }).into()
        }
        _ => return None,
    })
}

/// Returns the declaration of bytes of the packet: a named field, or base, offset and
/// length in bits.
fn payload(header: u32, field: u32, place: [Option<u32>; 3]) -> Option<Declared> {
    if header != 0 {
        let (_, name, fields) = HEADERS.iter().find(|(of, ..)| *of == header)?;
        let (_, field, bytes) = fields.iter().find(|(of, ..)| *of == field)?;
        let text = format!("{name} {field}");
        return Some(Declared::new(text, ByteOrder::Big, Some(*bytes)));
    }
    let [Some(base), Some(offset), Some(len)] = place else {
        return None;
    };
    let bases = ["ll", "nh", "th", "ih"];
    let base = bases.get(usize::try_from(base).ok()?.checked_sub(1)?)?;
    let (text, bytes) = (format!("@{base},{offset},{len}"), len.div_ceil(8));
    let bytes = u16::try_from(bytes).ok();
    Some(Declared::new(text, ByteOrder::Big, bytes))
}

/// Maximum of nft's numbers of fields of optional headers.
const MAX_FIELD: u32 = 16;

/// Returns nft's numbers of the optional header and its field with this text.
fn exthdr_numbers(op: ExthdrOp, kind: u8, text: &str) -> Option<(u32, u32)> {
    let number = op.number();
    let headers = match op {
        ExthdrOp::Ipv6 => 1..=u32::try_from(EXTENSIONS.len()).ok()?,
        _ => kind.into()..=kind.into(),
    };
    let mut numbers = headers.flat_map(|header| (0..MAX_FIELD).map(move |field| (header, field)));
    numbers.find(|(header, field)| exthdr_text(number, *header, *field).as_deref() == Some(text))
}

/// Returns the text of a field of an optional header.
fn exthdr_text(op: u32, header: u32, field: u32) -> Option<String> {
    let field = usize::try_from(field).ok()?;
    let find = |op| Extension::find(op, u8::try_from(header).ok()?);
    Some(match ExthdrOp::from_number(op) {
        ExthdrOp::Ipv6 => {
            let header = usize::try_from(header).ok()?.checked_sub(1)?;
            let (name, fields) = EXTENSIONS.get(header)?;
            format!("{name} {}", fields.get(field.checked_sub(1)?)?)
        }
        ExthdrOp::TcpOption => {
            let (_, name, fields) = TCP_OPTIONS.iter().find(|(of, ..)| *of == header)?;
            let field = match field {
                0 => "kind",
                1 => "length",
                _ => fields.get(field.checked_sub(2)?)?,
            };
            format!("tcp option {name} {field}")
        }
        ExthdrOp::Ipv4 => {
            let fields = ["type", "length", "value", "ptr", "addr"];
            let field = fields.get(field.checked_sub(1)?)?;
            format!("ip option {} {field}", find(ExthdrOp::Ipv4)?.name)
        }
        ExthdrOp::Sctp => {
            let chunk = find(ExthdrOp::Sctp)?;
            format!("sctp chunk {} {}", chunk.name, chunk.field(field)?)
        }
        ExthdrOp::Other(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_user_data_are_text() {
        let text = |kind, parameters: &[(u8, u32)]| {
            declared(kind, parameters).map(|declared| declared.text.to_string())
        };
        let raw = [(0, 0), (1, 0), (2, 3), (3, 160), (4, 128)];
        for (found, expected) in [
            (text(EXPR_PAYLOAD, &[(0, 16), (1, 4)]), "vlan id"),
            (text(EXPR_PAYLOAD, &raw), "@th,160,128"),
            (text(EXPR_EXTHDR, &[(1, 3), (0, 6)]), "frag frag-off"),
            (
                text(EXPR_EXTHDR, &[(1, 2), (2, 1), (0, 2)]),
                "tcp option maxseg size",
            ),
            (
                text(EXPR_EXTHDR, &[(1, 3), (2, 2), (0, 148)]),
                "ip option ra value",
            ),
            (
                text(EXPR_EXTHDR, &[(1, 4), (2, 3), (0, 1)]),
                "sctp chunk init a-rwnd",
            ),
            (text(EXPR_OSF, &[]), "osf name"),
            (
                text(EXPR_XFRM, &[(0, 5), (1, 1), (2, 0)]),
                "ipsec in spnum 1 reqid",
            ),
            (text(EXPR_FIB, &[(0, 3), (1, 1)]), "fib saddr type"),
        ] {
            assert_eq!(found.as_deref(), Some(expected));
        }
        assert_eq!(text(99, &[]), None);
    }
}
