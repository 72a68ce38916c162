//! Declarations of set fields (`typeof`) that have no expression in this crate.

use crate::datatype::ByteOrder;
use crate::expr::{ExthdrOp, FibFlags, FibResult, NFT_HASH_SYM, RtKey, XfrmDirection, XfrmKey};
use crate::expression::{Expression, Term};
use crate::extension::Extension;
use crate::load::Load;

/// The expression that a field is declared with, as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Declared {
    /// Text in nft syntax.
    pub(crate) text: Box<str>,
    /// Byte order of the values.
    pub(crate) order: ByteOrder,
    /// Size of a value in bytes, if it follows from the expression.
    pub(crate) bytes: Option<u16>,
}

impl Declared {
    fn new(text: impl Into<Box<str>>, order: ByteOrder, bytes: Option<u16>) -> Self {
        let text = text.into();
        Self { text, order, bytes }
    }

    fn big(text: impl Into<Box<str>>) -> Self {
        Self::new(text, ByteOrder::Big, None)
    }
}

impl From<Expression> for Declared {
    fn from(expression: Expression) -> Self {
        let (order, bytes) = (expression.order(), expression.bytes());
        Self::new(expression.to_string(), order, Some(bytes))
    }
}

// enum expr_types of nft 1.0.6
pub(crate) const EXPR_PAYLOAD: u32 = 7;
pub(crate) const EXPR_EXTHDR: u32 = 8;
pub(crate) const EXPR_SOCKET: u32 = 10;
pub(crate) const EXPR_OSF: u32 = 11;
pub(crate) const EXPR_HASH: u32 = 24;
pub(crate) const EXPR_RT: u32 = 25;
pub(crate) const EXPR_FIB: u32 = 26;
pub(crate) const EXPR_XFRM: u32 = 27;

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
pub(crate) fn declared(kind: u32, parameters: &[(u8, u32)]) -> Option<Declared> {
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
pub(crate) fn exthdr_numbers(op: ExthdrOp, kind: u8, text: &str) -> Option<(u32, u32)> {
    let number = op.number();
    let headers = match op {
        ExthdrOp::Ipv6 => 1..=u32::try_from(EXTENSIONS.len()).ok()?,
        _ => kind.into()..=kind.into(),
    };
    let mut numbers = headers.flat_map(|header| (0..MAX_FIELD).map(move |field| (header, field)));
    numbers.find(|(header, field)| exthdr_text(number, *header, *field).as_deref() == Some(text))
}

/// Returns the text of a field of an optional header.
pub(crate) fn exthdr_text(op: u32, header: u32, field: u32) -> Option<String> {
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
