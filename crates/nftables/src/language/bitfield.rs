//! Named fields of headers that are not whole bytes.
//!
//! The kernel loads the bytes around such a field and masks the other bits.

use vipline_inet::Protocol;

use crate::Datatype;
use crate::Family;
use crate::expr::PayloadBase;
use crate::language::extension::{Extension, prefix};
use crate::language::header::Layer;
use crate::language::load::Load;
use crate::value::bytes::zip;

/// A field, with the location in its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitField {
    /// Words before the name of the protocol.
    pub(crate) prefix: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) name: &'static str,
    pub(crate) datatype: Datatype,
    /// Size of the loaded bytes.
    pub(crate) bytes: u16,
    /// Number of bits after the field.
    pub(crate) shift: u32,
}

/// Protocol, name, base, offset and length in bits, type and layer of a field.
type HeaderBits = (
    &'static str,
    &'static str,
    PayloadBase,
    u32,
    u32,
    Datatype,
    Layer,
);

const IP: Layer = Layer::Network(Family::Ip);
const IP6: Layer = Layer::Network(Family::Ip6);
const TCP: Layer = Layer::Transport(Protocol::TCP.0);
const DCCP: Layer = Layer::Transport(Protocol::DCCP.0);

const FIELDS: [HeaderBits; 14] = [
    (
        "vlan",
        "pcp",
        PayloadBase::Link,
        112,
        3,
        Datatype::Integer,
        Layer::Vlan,
    ),
    (
        "vlan",
        "dei",
        PayloadBase::Link,
        115,
        1,
        Datatype::Integer,
        Layer::Vlan,
    ),
    (
        "vlan",
        "id",
        PayloadBase::Link,
        116,
        12,
        Datatype::Integer,
        Layer::Vlan,
    ),
    (
        "ip",
        "version",
        PayloadBase::Network,
        0,
        4,
        Datatype::Integer,
        IP,
    ),
    (
        "ip",
        "hdrlength",
        PayloadBase::Network,
        4,
        4,
        Datatype::Integer,
        IP,
    ),
    ("ip", "dscp", PayloadBase::Network, 8, 6, Datatype::Dscp, IP),
    (
        "ip",
        "ecn",
        PayloadBase::Network,
        14,
        2,
        Datatype::Integer,
        IP,
    ),
    (
        "ip6",
        "version",
        PayloadBase::Network,
        0,
        4,
        Datatype::Integer,
        IP6,
    ),
    (
        "ip6",
        "dscp",
        PayloadBase::Network,
        4,
        6,
        Datatype::Dscp,
        IP6,
    ),
    (
        "ip6",
        "ecn",
        PayloadBase::Network,
        10,
        2,
        Datatype::Integer,
        IP6,
    ),
    (
        "ip6",
        "flowlabel",
        PayloadBase::Network,
        12,
        20,
        Datatype::Integer,
        IP6,
    ),
    (
        "tcp",
        "doff",
        PayloadBase::Transport,
        96,
        4,
        Datatype::Integer,
        TCP,
    ),
    (
        "tcp",
        "reserved",
        PayloadBase::Transport,
        100,
        4,
        Datatype::Integer,
        TCP,
    ),
    (
        "dccp",
        "type",
        PayloadBase::Transport,
        67,
        4,
        Datatype::Integer,
        DCCP,
    ),
];

/// Returns the number of bits before and in a field that a mask selects.
///
/// Returns `None` if the bits are not adjacent or if the first or the last byte has none.
fn bits(mask: &[u8]) -> Option<(u32, u32)> {
    let (first, last) = (mask.first()?, mask.last()?);
    let before = first.leading_zeros();
    let len = mask.iter().map(|byte| byte.count_ones()).sum();
    let all = u32::try_from(mask.len()).ok()?.checked_mul(8)?;
    let after = last.trailing_zeros();
    let is_tight = *first != 0 && *last != 0 && before + len + after == all;
    is_tight.then_some((before, len))
}

/// Returns the field of some bits of a header.
///
/// `distance` returns whether packets have the header of a layer, and the number of bits
/// by which other headers move it.
fn find(
    base: PayloadBase,
    start: u32,
    len: u32,
    distance: impl Fn(Layer) -> Option<u32>,
) -> Option<&'static HeaderBits> {
    let is_here = |it: &&HeaderBits| {
        let moved = distance(it.6).and_then(|bits| it.3.checked_add(bits));
        (it.2, it.4, moved) == (base, len, Some(start))
    };
    FIELDS.iter().find(is_here)
}

/// Returns the field that a mask selects in the bytes at an offset of a header.
///
/// `distance`: see `find`.
pub(crate) fn in_header(
    base: PayloadBase,
    offset: u32,
    mask: &[u8],
    distance: impl Fn(Layer) -> Option<u32>,
) -> Option<BitField> {
    let (before, len) = bits(mask)?;
    let start = offset.checked_mul(8)?.checked_add(before)?;
    let found = find(base, start, len, distance)?;
    Some(BitField {
        prefix: "",
        protocol: found.0,
        name: found.1,
        datatype: found.5,
        bytes: u16::try_from(mask.len()).ok()?,
        shift: u32::try_from(mask.len()).ok()? * 8 - before - len,
    })
}

/// Returns the field that a mask selects in the bytes of an optional header.
pub(crate) fn in_extension(load: &Load, mask: &[u8]) -> Option<BitField> {
    let Load::Exthdr {
        op,
        kind,
        offset,
        present: false,
        ..
    } = *load
    else {
        return None;
    };
    let (before, len) = bits(mask)?;
    let (extension, field) = Extension::find_field(op, kind, offset.checked_mul(8)? + before, len)?;
    Some(BitField {
        prefix: prefix(op),
        protocol: extension.name,
        name: field.0,
        datatype: field.3,
        bytes: u16::try_from(mask.len()).ok()?,
        shift: u32::try_from(mask.len()).ok()? * 8 - before - len,
    })
}

/// Returns the name of the field of some bits of a header.
///
/// `distance`: see `find`.
pub(crate) fn at(
    base: PayloadBase,
    start: u32,
    len: u32,
    distance: impl Fn(Layer) -> Option<u32>,
) -> Option<String> {
    let found = find(base, start, len, distance)?;
    Some(format!("{} {}", found.0, found.1))
}

impl BitField {
    /// Returns whether a value of the loaded bytes has no bits after the field.
    pub(crate) fn contains(&self, value: &[u8]) -> bool {
        let mut after = self.shift;
        value.iter().rev().all(|byte| {
            let here = after.min(8);
            after -= here;
            byte.trailing_zeros() >= here
        })
    }
}

/// Returns the field that is replaced by `value & mask ^ xor`: its offset in bits, its
/// length, and the new value.
pub(crate) fn replaced(mask: &[u8], xor: &[u8]) -> Option<(u32, u32, u64)> {
    let field = zip(mask, mask, |byte, _| !byte);
    let before = field.iter().take_while(|byte| **byte == 0).count() * 8;
    let skipped = field.get(before / 8..)?;
    let before = u32::try_from(before).ok()? + skipped.first()?.leading_zeros();
    let len: u32 = field.iter().map(|byte| byte.count_ones()).sum();
    let all = u32::try_from(field.len()).ok()? * 8;
    let shift = all.checked_sub(before)?.checked_sub(len)?;
    let number = |bytes: &[u8]| {
        bytes.iter().try_fold(0_u64, |number, byte| {
            number.checked_mul(256)?.checked_add((*byte).into())
        })
    };
    let (bits, value) = (number(&field)?, number(xor)?);
    let ones = u64::MAX.checked_shr(64_u32.checked_sub(len)?)?;
    let is_whole = bits == ones << shift && value & !bits == 0;
    is_whole.then_some((before, len, value >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::ExthdrOp;

    #[test]
    fn a_mask_selects_a_field_of_adjacent_bits() {
        let load = Load::Exthdr {
            op: ExthdrOp::Ipv6,
            kind: 44,
            offset: 2,
            len: 2,
            present: false,
        };
        let masked = |mask: &[u8]| in_extension(&load, mask);
        let field = masked(&[0xff, 0xf8]).unwrap();
        assert_eq!((field.protocol, field.name), ("frag", "frag-off"));
        assert!(field.contains(&[0x12, 0x38]) && !field.contains(&[0x12, 0x34]));
        for mask in [
            &[0xff, 0xf7][..],
            &[0, 0],
            &[0xff, 0xf8, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(masked(mask).is_none());
        }
    }

    #[test]
    fn a_store_of_a_word_replaces_a_field() {
        assert_eq!(replaced(&[0xff, 0x03], &[0, 0x58]), Some((8, 6, 0x16)));
        assert_eq!(replaced(&[0, 0xff], &[23, 0]), Some((0, 8, 23)));
        assert_eq!(replaced(&[0xff, 0xff], &[0, 0]), None);
        assert_eq!(replaced(&[0xff, 0x03], &[1, 0x58]), None);
    }
}
