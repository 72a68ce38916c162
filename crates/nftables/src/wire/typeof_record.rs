//! Expressions of set fields as nft stores them in user data (`typeof`): a type, and
//! numbered parameters.

use crate::Datatype;
use crate::declared::{KIND_EXTHDR, KIND_FIB, KIND_HASH, KIND_OSF, KIND_PAYLOAD, KIND_RT};
use crate::declared::{KIND_SOCKET, KIND_XFRM, exthdr_numbers, exthdr_text};
use crate::expr::{
    CtKey, Direction, ExthdrOp, FibFlags, FibResult, MetaKey, NumgenMode, OsfTtl, PayloadBase,
    RtKey, SocketKey, XfrmDirection, XfrmKey,
};
use crate::expression::{Expression, Term, exthdr, ipsec, osf_name};
use crate::extension::Extension;
use crate::header;
use crate::load::Load;

// enum expr_types of nft 1.0.6
const KIND_META: u32 = 9;
const KIND_CT: u32 = 12;
const KIND_NUMGEN: u32 = 23;
/// Direction of a conntrack key without a direction.
const NO_DIRECTION: u32 = u32::MAX;
/// Type of a symmetric hash.
const SYMMETRIC: u32 = 1;

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
            (KIND_PAYLOAD, numbers)
        }
        Term::Payload { base, offset, len } => {
            let base = base.number().checked_add(1)?;
            let (offset, len) = (offset.checked_mul(8)?, len.checked_mul(8)?);
            (KIND_PAYLOAD, numbered(&[0, 0, base, offset, len]))
        }
        Term::Meta(key) => (KIND_META, numbered(&[key.number()])),
        Term::Ct(key, direction) => {
            let direction = match direction {
                None => NO_DIRECTION,
                Some(Direction::Original) => 0,
                Some(Direction::Reply) => 1,
            };
            (KIND_CT, numbered(&[key.number(), direction]))
        }
        Term::Numgen {
            mode,
            modulus,
            offset,
        } => {
            let random = u32::from(*mode == NumgenMode::Random);
            (KIND_NUMGEN, numbered(&[random, *modulus, *offset]))
        }
        Term::Symmetric { modulus, offset } => {
            // The last two are those of a seed.
            (KIND_HASH, numbered(&[SYMMETRIC, *offset, *modulus, 0, 0]))
        }
        Term::Fib(flags, result) if !flags.contains(FibFlags::PRESENT) => {
            (KIND_FIB, numbered(&[fib_result(*result), flags.bits()]))
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
            (KIND_EXTHDR, numbers)
        }
        Load::Rt(key) => (KIND_RT, vec![(0, key.number())]),
        // nft does not store the level of a control group.
        Load::Socket(SocketKey::Cgroupv2(_)) => return None,
        Load::Socket(key) => (KIND_SOCKET, vec![(0, key.number())]),
        Load::Xfrm {
            key,
            direction,
            spnum,
        } => {
            let direction = u32::from(*direction == XfrmDirection::Out);
            (
                KIND_XFRM,
                vec![(0, key.number()), (1, *spnum), (2, direction)],
            )
        }
        Load::Osf {
            ttl: OsfTtl::True,
            version: false,
        } => (KIND_OSF, Vec::new()),
        _ => return None,
    })
}

/// Returns the expression of a stored type and parameters.
pub(super) fn expression(kind: u32, numbers: &[u32]) -> Option<Expression> {
    Some(match (kind, numbers) {
        (KIND_PAYLOAD, [0, _, base, offset, len]) if (offset | len) % 8 == 0 => {
            let base = PayloadBase::from_number(base.checked_sub(1)?);
            let (offset, len) = (offset / 8, len / 8);
            Expression::of(Term::Payload { base, offset, len })
        }
        (KIND_PAYLOAD, [protocol, field] | [protocol, field, _]) => {
            let ids = (*protocol, *field);
            Expression::of(Term::Header(
                header::ALL.iter().find(|f| f.typeof_ids == ids)?,
            ))
        }
        (KIND_META, [key]) => MetaKey::from_number(*key).into(),
        (KIND_CT, [key, direction]) => {
            let direction = match direction {
                0 => Some(Direction::Original),
                1 => Some(Direction::Reply),
                _ => None,
            };
            Expression::ct(CtKey::from_number(*key), direction)
        }
        (KIND_NUMGEN, [random, modulus, offset]) => {
            let mode = if *random == 1 {
                NumgenMode::Random
            } else {
                NumgenMode::Incremental
            };
            Expression::numgen(mode, *modulus, *offset)
        }
        (KIND_HASH, [SYMMETRIC, offset, modulus, 0, 0]) => Expression::symmetric(*modulus, *offset),
        (KIND_FIB, [result, flags]) => {
            let results = [FibResult::Oif, FibResult::Oifname, FibResult::AddrType];
            let mut results = results.into_iter();
            let result = results.find(|it| fib_result(*it) == *result)?;
            Expression::fib(FibFlags::from_bits_retain(*flags), result)
        }
        (KIND_EXTHDR, [field, header]) => exthdr_of(ExthdrOp::Ipv6, *field, *header)?,
        (KIND_EXTHDR, [field, op, header]) => {
            exthdr_of(ExthdrOp::from_number(*op), *field, *header)?
        }
        (KIND_RT, [key]) => RtKey::from_number(*key).into(),
        (KIND_SOCKET, [0]) => SocketKey::Transparent.into(),
        (KIND_SOCKET, [1]) => SocketKey::Mark.into(),
        (KIND_SOCKET, [2]) => SocketKey::Wildcard.into(),
        (KIND_XFRM, [key, spnum, direction]) => {
            let direction = match direction {
                0 => XfrmDirection::In,
                _ => XfrmDirection::Out,
            };
            ipsec(direction, *spnum, XfrmKey::from_number(*key))
        }
        (KIND_OSF, []) => osf_name(OsfTtl::True),
        _ => return None,
    })
}

/// `enum nft_fib_result`
fn fib_result(result: FibResult) -> u32 {
    match result {
        FibResult::Oif => 1,
        FibResult::Oifname => 2,
        FibResult::AddrType => 3,
    }
}

/// Returns the field of an optional header that nft numbers so, if it has whole bytes.
fn exthdr_of(op: ExthdrOp, field: u32, header: u32) -> Option<Expression> {
    let text = exthdr_text(op.number(), header, field)?;
    let (kind, offset, len) = Extension::find_text(op, &text)?;
    let is_whole = offset.is_multiple_of(8) && len.is_multiple_of(8);
    is_whole.then(|| exthdr(op, kind, offset / 8, len / 8))
}
