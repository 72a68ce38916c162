//! Conditions that iptables-nft writes as expressions of nf_tables.
//!
//! The first half appends the expressions of a condition, the second half reads them:
//!
//! ```text
//! -i eth+               meta iifname, cmp eq "eth"
//! -s 10.244.0.0/16      payload 2 @ network + 12, cmp eq 0af4
//! --dport 8000:8010     payload 2 @ transport + 2, range eq 1f40-1f4a
//! ```
//!
//! What must stay true: each condition becomes exactly the expressions of iptables 1.8.9, also
//! where others would match the same packets. A rule to delete is found by comparing expressions
//! (`deletions.rs`), also one that iptables-nft wrote.
//!
//! The readers accept more than is written here: they do not look at registers, or at the `xor` of
//! a mask. That is harmless, because `decode` encodes the result again, and takes it only if the
//! expressions are the same.

use std::borrow::Cow;
use std::net::IpAddr;

use vipline_nftables::Bytes;
use vipline_nftables::expr::{
    Access, Bitwise, BitwiseOp, Cmp, CmpOp, Expr, Limit, LimitType, Meta, MetaKey, Payload,
    PayloadAccess, PayloadBase, Range, Register,
};

use crate::Protocol;
use crate::matches::{self, Flags, FlagsMatch, Rate};
use crate::options::address::Network;
use crate::options::negatable::Negatable;
use crate::options::number::{Masked, Ports};

/// The register of all conditions: each one loads and compares before the next one begins.
const REGISTER: Register = Register::word(0);
/// Suffix of interface names that matches any text.
const ANY_SUFFIX: u8 = b'+';
/// An interface name that no interface has, for `! -i +`: the kernel allows no `/` in names.
const NO_INTERFACE: &[u8] = b"INVAL/D\0";
/// Maximum length of an interface name in bytes, with its NUL byte: `IFNAMSIZ`.
const MAX_INTERFACE: usize = 16;
/// Offset and mask of the fragment offset in the IPv4 header, without the three flags before it.
const FRAGMENT: (u32, [u8; 2]) = (6, [0x1f, 0xff]);
/// Offset of the flags in the TCP header, in bytes.
const TCP_FLAGS: u32 = 13;

/// Conditions under construction.
pub(super) type Exprs = Vec<Expr>;

fn load_meta(out: &mut Exprs, key: MetaKey) {
    let access = Access::Load(REGISTER);
    out.push(Meta { key, access }.into());
}

fn load(out: &mut Exprs, base: PayloadBase, offset: u32, len: usize) {
    let payload = Payload {
        base,
        offset,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        access: PayloadAccess::Load(REGISTER),
    };
    out.push(payload.into());
}

fn mask(out: &mut Exprs, mask: &[u8]) {
    let op = BitwiseOp::MaskXor {
        mask: mask.into(),
        xor: Bytes::repeat(0, mask.len()),
    };
    let bitwise = Bitwise {
        source: REGISTER,
        destination: REGISTER,
        len: u32::try_from(mask.len()).unwrap_or(u32::MAX),
        op,
    };
    out.push(bitwise.into());
}

fn compare(out: &mut Exprs, negated: bool, data: &[u8]) {
    let op = if negated { CmpOp::Ne } else { CmpOp::Eq };
    compare_with(out, op, data);
}

fn compare_with(out: &mut Exprs, op: CmpOp, data: &[u8]) {
    let (source, data) = (REGISTER, data.into());
    out.push(Cmp { source, op, data }.into());
}

/// Appends a condition on an interface. Returns `None` if the name is too long.
pub(super) fn interface(
    out: &mut Exprs,
    key: MetaKey,
    name: &Negatable<Cow<'_, str>>,
) -> Option<()> {
    let text = name.value().as_bytes();
    if text.is_empty() || text.len() >= MAX_INTERFACE {
        return None;
    }
    load_meta(out, key);
    match text.split_last() {
        Some((&ANY_SUFFIX, [])) if name.is_negated() => compare(out, false, NO_INTERFACE),
        // Matches every packet. Like iptables-nft, loads the name and does not compare it.
        Some((&ANY_SUFFIX, [])) => {}
        // The kernel compares as many bytes as there are: without the NUL byte any name that begins
        // so, with it only this name.
        Some((&ANY_SUFFIX, start)) => compare(out, name.is_negated(), start),
        _ => compare(out, name.is_negated(), &[text, &[0]].concat()),
    }
    Some(())
}

/// Appends a condition on the protocol.
pub(super) fn protocol(out: &mut Exprs, protocol: Negatable<Protocol>) {
    load_meta(out, MetaKey::L4Proto);
    compare(out, protocol.is_negated(), &[protocol.value().0]);
}

/// Appends a condition on an address at an offset of the network header. Returns
/// `None` for the negation of all addresses, which no rule can match.
pub(super) fn address(out: &mut Exprs, offset: u32, network: &Negatable<Network>) -> Option<()> {
    let (address, netmask) = network.value().parts();
    let (address, netmask) = (octets(address), octets(netmask));
    match network.value().prefix().map(|prefix| prefix.prefix_len()) {
        // All addresses: no condition.
        Some(0) => return (!network.is_negated()).then_some(()),
        // A prefix of whole bytes needs no mask.
        Some(bits) if bits % 8 == 0 => {
            let len = usize::from(bits / 8);
            load(out, PayloadBase::Network, offset, len);
            compare(out, network.is_negated(), address.get(..len)?);
        }
        _ => {
            load(out, PayloadBase::Network, offset, address.len());
            mask(out, &netmask);
            compare(out, network.is_negated(), &address);
        }
    }
    Some(())
}

fn octets(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

/// Appends a condition on fragments of IPv4.
pub(super) fn fragment(out: &mut Exprs, fragment: Negatable<()>) {
    let (offset, bits) = FRAGMENT;
    load(out, PayloadBase::Network, offset, bits.len());
    mask(out, &bits);
    // `-f` means every fragment but the first: an offset that is not 0.
    compare(out, !fragment.is_negated(), &[0, 0]);
}

/// Appends a condition on TCP flags.
pub(super) fn flags(out: &mut Exprs, flags: &Negatable<FlagsMatch>) {
    let FlagsMatch { mask: bits, set } = flags.value();
    load(out, PayloadBase::Transport, TCP_FLAGS, 1);
    mask(out, &[bits.bits()]);
    compare(out, flags.is_negated(), &[set.bits()]);
}

/// A condition on ports.
type Place = Option<Negatable<Ports>>;

/// Appends conditions on source and destination ports.
pub(super) fn ports(out: &mut Exprs, sport: &Place, dport: &Place) {
    let single = |place: &Place| match place {
        Some(Negatable::Is(Ports { first, last })) if first == last => Some(*first),
        _ => None,
    };
    // Two single ports are adjacent, so one load and one comparison are enough. Not if they are
    // negated, see the limitations of this module.
    if let (Some(sport), Some(dport)) = (single(sport), single(dport)) {
        load(out, PayloadBase::Transport, 0, 4);
        return compare(
            out,
            false,
            &[sport.to_be_bytes(), dport.to_be_bytes()].concat(),
        );
    }
    for (offset, place) in [(0, sport), (2, dport)] {
        let Some(place) = place else { continue };
        let Ports { first, last } = place.value();
        load(out, PayloadBase::Transport, offset, 2);
        if first == last {
            compare(out, place.is_negated(), &first.to_be_bytes());
            continue;
        }
        // Every port is at least 0.
        if *first == 0 {
            let op = if place.is_negated() {
                CmpOp::Gt
            } else {
                CmpOp::Le
            };
            compare_with(out, op, &last.to_be_bytes());
            continue;
        }
        let range = Range {
            source: REGISTER,
            invert: place.is_negated(),
            from: first.to_be_bytes().into(),
            to: last.to_be_bytes().into(),
        };
        out.push(range.into());
    }
}

/// Appends a condition on the packet mark.
pub(super) fn mark(out: &mut Exprs, mark: &matches::Mark) {
    let Masked { value, mask: bits } = mark.mark.value();
    load_meta(out, MetaKey::Mark);
    // In host order, as the kernel stores it in the packet.
    if *bits != u32::MAX {
        mask(out, &bits.to_ne_bytes());
    }
    compare(out, mark.mark.is_negated(), &value.to_ne_bytes());
}

/// Appends a rate limit.
pub(super) fn limit(out: &mut Exprs, limit: &matches::Limit) {
    let (rate, unit) = limit.rate.per_seconds();
    let limit = Limit {
        rate: rate.into(),
        unit: unit.into(),
        burst: limit.burst,
        kind: LimitType::Packets,
        // Match `limit` matches up to the rate, not above it.
        over: false,
    };
    out.push(limit.into());
}

/// A condition that was read from expressions.
pub(super) enum Condition {
    Interface(MetaKey, Negatable<Cow<'static, str>>),
    Protocol(Negatable<Protocol>),
    /// Offset in the network header, number of bytes, mask if any, and value.
    Address(u32, Option<Bytes>, Negatable<Bytes>),
    Fragment(Negatable<()>),
    Flags(Negatable<FlagsMatch>),
    /// Offset in the transport header and ports.
    Ports(u32, Negatable<Ports>),
    BothPorts(u16, u16),
    Mark(matches::Mark),
    Limit(matches::Limit),
}

/// Reads one condition, and returns the rest of the expressions. `None`: iptables-nft writes no
/// condition like this.
pub(super) fn read(exprs: &[Expr]) -> Option<(Condition, &[Expr])> {
    match exprs {
        [Expr::Limit(limit), rest @ ..] => {
            let (rate, unit) = (limit.rate.try_into().ok()?, limit.unit.try_into().ok()?);
            let rate = Rate::from_seconds(rate, unit)?;
            let limit = matches::Limit::new(rate).with_burst(limit.burst);
            Some((Condition::Limit(limit), rest))
        }
        [Expr::Meta(meta), rest @ ..] => read_meta(meta.key, rest),
        [Expr::Payload(payload), rest @ ..] => {
            let (bits, rest) = read_mask(rest);
            let (condition, rest) = match rest {
                [Expr::Range(range), rest @ ..] => (ports_range(payload, range)?, rest),
                [Expr::Cmp(cmp), rest @ ..] if matches!(cmp.op, CmpOp::Le | CmpOp::Gt) => {
                    (ports_up_to(payload, cmp)?, rest)
                }
                [Expr::Cmp(cmp), rest @ ..] => (compared(payload, bits, negatable(cmp)?)?, rest),
                _ => return None,
            };
            Some((condition, rest))
        }
        _ => None,
    }
}

/// Returns the mask of a `bitwise` expression, if it is the first, and the expressions after it.
fn read_mask(exprs: &[Expr]) -> (Option<Bytes>, &[Expr]) {
    match exprs {
        [Expr::Bitwise(bitwise), rest @ ..] => match &bitwise.op {
            BitwiseOp::MaskXor { mask, .. } => (Some(mask.clone()), rest),
            _ => (None, exprs),
        },
        _ => (None, exprs),
    }
}

fn negatable(cmp: &Cmp) -> Option<Negatable<Bytes>> {
    let negated = match cmp.op {
        CmpOp::Eq => false,
        CmpOp::Ne => true,
        _ => return None,
    };
    Some(Negatable::new(negated, cmp.data.clone()))
}

fn read_meta(key: MetaKey, exprs: &[Expr]) -> Option<(Condition, &[Expr])> {
    let (bits, rest) = read_mask(exprs);
    let compared = match rest {
        [Expr::Cmp(cmp), rest @ ..] => Some((negatable(cmp)?, rest)),
        _ => None,
    };
    let interface = |value, rest| Some((Condition::Interface(key, value), rest));
    match key {
        MetaKey::Iifname | MetaKey::Oifname => {
            // What follows is the next condition, so nothing of it is taken.
            let Some((name, rest)) = compared else {
                return interface(Negatable::Is("+".into()), exprs);
            };
            if **name.value() == *NO_INTERFACE {
                return interface(Negatable::Not("+".into()), rest);
            }
            // The reverse of `interface`.
            let text = match name.value().split_last()? {
                (0, text) => str::from_utf8(text).ok()?.to_owned(),
                _ => str::from_utf8(name.value()).ok()?.to_owned() + "+",
            };
            interface(name.map(|_| text.into()), rest)
        }
        MetaKey::L4Proto => {
            let (number, rest) = compared?;
            let [first] = **number.value() else {
                return None;
            };
            let protocol = number.map(|_| Protocol(first));
            Some((Condition::Protocol(protocol), rest))
        }
        MetaKey::Mark => {
            let (value, rest) = compared?;
            let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
            let mask = match &bits {
                Some(bits) => word(bits)?,
                None => u32::MAX,
            };
            let number = word(value.value())?;
            let mark = value.map(|_| Masked {
                value: number,
                mask,
            });
            Some((Condition::Mark(matches::Mark { mark }), rest))
        }
        _ => None,
    }
}

/// Returns the condition on a value of the packet.
fn compared(payload: &Payload, bits: Option<Bytes>, value: Negatable<Bytes>) -> Option<Condition> {
    let port = |bytes: &[u8]| bytes.try_into().ok().map(u16::from_be_bytes);
    match (payload.base, payload.offset, payload.len) {
        (PayloadBase::Network, offset, 2)
            if (offset, bits.as_deref()) == (FRAGMENT.0, Some(&FRAGMENT.1)) =>
        {
            let condition = Negatable::new(!value.is_negated(), ());
            Some(Condition::Fragment(condition))
        }
        (PayloadBase::Network, offset, _) => Some(Condition::Address(offset, bits, value)),
        (PayloadBase::Transport, TCP_FLAGS, 1) => {
            let ([mask], [set]) = (&**bits.as_ref()?, &**value.value()) else {
                return None;
            };
            let [mask, set] = [*mask, *set].map(Flags::from_bits);
            let flags = FlagsMatch {
                mask: mask?,
                set: set?,
            };
            Some(Condition::Flags(value.map(|_| flags)))
        }
        (PayloadBase::Transport, 0, 4) => {
            let (sport, dport) = value.value().split_at_checked(2)?;
            Some(Condition::BothPorts(port(sport)?, port(dport)?))
        }
        (PayloadBase::Transport, offset, 2) => {
            let only = port(value.value())?;
            Some(Condition::Ports(offset, value.map(|_| only.into())))
        }
        _ => None,
    }
}

fn ports_range(payload: &Payload, range: &Range) -> Option<Condition> {
    let port = |bytes: &Bytes| (**bytes).try_into().ok().map(u16::from_be_bytes);
    let (first, last) = (port(&range.from)?, port(&range.to)?);
    let ports = Negatable::new(range.invert, Ports { first, last });
    Some(Condition::Ports(payload.offset, ports))
}

fn ports_up_to(payload: &Payload, cmp: &Cmp) -> Option<Condition> {
    let last = (*cmp.data).try_into().ok().map(u16::from_be_bytes)?;
    let ports = Negatable::new(cmp.op == CmpOp::Gt, Ports { first: 0, last });
    Some(Condition::Ports(payload.offset, ports))
}
