//! Expressions of set fields as nft stores them in user data (`typeof`): a type, and
//! numbered parameters.

use crate::Datatype;
use crate::declared::{EXPR_EXTHDR, EXPR_FIB, EXPR_HASH, EXPR_OSF, EXPR_PAYLOAD, EXPR_RT};
use crate::declared::{EXPR_SOCKET, EXPR_XFRM, exthdr_numbers, exthdr_text};
use crate::expr::{
    CtKey, Direction, ExthdrOp, FibFlags, FibResult, MetaKey, NFT_HASH_SYM, NFT_SOCKET_MARK,
    NFT_SOCKET_TRANSPARENT, NFT_SOCKET_WILDCARD, NumgenMode, OsfTtl, PayloadBase, RtKey, SocketKey,
    XfrmDirection, XfrmKey,
};
use crate::expression::{Expression, Term, exthdr, ipsec, osf_name};
use crate::extension::Extension;
use crate::header;
use crate::load::Load;

// enum expr_types of nft 1.0.6
const EXPR_META: u32 = 9;
const EXPR_CT: u32 = 12;
const EXPR_NUMGEN: u32 = 23;
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
