//! Match `policy`: `linux/netfilter/xt_policy.h`.

use ipnet::IpNet;

use super::structure::{Reader, Writer};
use crate::Family;
use crate::matches::{Policy, PolicyDirection, PolicyElement, PolicyKind, PolicyMode};
use crate::negatable::Negatable;
use crate::protocol::Protocol;

/// Number of elements: `XT_POLICY_MAX_ELEM`.
const ELEMENTS: usize = 4;
/// Length of `struct xt_policy_elem`.
const ELEMENT: usize = 76;

// enum xt_policy_flags
const IN: u16 = 1;
const OUT: u16 = 2;
const NONE: u16 = 4;
const STRICT: u16 = 8;

/// Writes `struct xt_policy_info`.
pub(super) fn encode(it: &Policy, family: Family) -> Option<Writer> {
    let direction = match it.direction? {
        PolicyDirection::In => IN,
        PolicyDirection::Out => OUT,
    };
    let is_none = it.policy? == PolicyKind::None;
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    let flags = direction | flag(is_none, NONE) | flag(it.strict, STRICT);
    let mut out = Writer::default();
    for element in &it.elements {
        out = put_element(out, element, family)?;
    }
    let unused = ELEMENTS.checked_sub(it.elements.len())?;
    // A policy without conditions has one empty element.
    let len = match is_none {
        true => 0,
        false => it.elements.len().max(1),
    };
    let out = out.zeros(unused * ELEMENT).u16(flags);
    Some(out.u16(len.try_into().ok()?))
}

/// Reads `struct xt_policy_info`.
pub(super) fn decode(reader: &mut Reader<'_>, family: Family) -> Option<Policy> {
    let mut elements = Vec::new();
    for _ in 0..ELEMENTS {
        elements.push(read_element(reader, family)?);
    }
    let (flags, len) = (reader.u16()?, reader.u16()?);
    elements.truncate(len.into());
    if *elements == [PolicyElement::default()] {
        elements.clear();
    }
    let direction = match flags & (IN | OUT) {
        IN => PolicyDirection::In,
        OUT => PolicyDirection::Out,
        _ => return None,
    };
    let policy = match flags & NONE {
        0 => PolicyKind::Ipsec,
        _ => PolicyKind::None,
    };
    Some(Policy {
        direction: Some(direction),
        policy: Some(policy),
        strict: flags & STRICT != 0,
        elements,
    })
}

/// Returns the bits of `struct xt_policy_spec`, from the first one.
fn spec(fields: [bool; 6]) -> u8 {
    let bits = fields.iter().zip(0..);
    let bits = bits.fold(0, |all, (is_set, bit)| all | u8::from(*is_set) << bit);
    if cfg!(target_endian = "big") {
        bits.reverse_bits()
    } else {
        bits
    }
}

/// Writes `struct xt_policy_elem`.
fn put_element(mut out: Writer, it: &PolicyElement, family: Family) -> Option<Writer> {
    for network in [it.tunnel_source, it.tunnel_destination] {
        let Some(network) = network else {
            out = out.zeros(32);
            continue;
        };
        let network = network.value();
        out = out.address(network.addr(), family)?;
        out = out.address(network.netmask(), family)?;
    }
    let out = out
        .u32(it.spi.map_or(0, |spi| *spi.value()))
        .u32(it.reqid.map_or(0, |reqid| *reqid.value()))
        .u8(it.protocol.map_or(0, |protocol| protocol.value().0))
        .u8(u8::from(
            it.mode.as_ref().map(Negatable::value) == Some(&PolicyMode::Tunnel),
        ));
    // The order of the fields of `struct xt_policy_spec`.
    let conditions = [
        it.tunnel_source.map(|it| it.is_negated()),
        it.tunnel_destination.map(|it| it.is_negated()),
        it.protocol.map(|it| it.is_negated()),
        it.mode.map(|it| it.is_negated()),
        it.spi.map(|it| it.is_negated()),
        it.reqid.map(|it| it.is_negated()),
    ];
    let out = out.u8(spec(conditions.map(|one| one.is_some())));
    Some(out.u8(spec(conditions.map(|one| one == Some(true)))))
}

/// Reads `struct xt_policy_elem`.
fn read_element(reader: &mut Reader<'_>, family: Family) -> Option<PolicyElement> {
    let mut addresses = Vec::new();
    for _ in 0..4 {
        addresses.push(reader.address(family)?);
    }
    let (spi, reqid) = (reader.u32()?, reader.u32()?);
    let [protocol, mode, used, invert] = reader.array()?;
    let negated = |field: usize| {
        let bit = spec(std::array::from_fn(|at| at == field));
        (used & bit != 0).then_some(invert & bit != 0)
    };
    let network = |field: usize| -> Option<Option<Negatable<IpNet>>> {
        let Some(is_negated) = negated(field) else {
            return Some(None);
        };
        let (address, mask) = (addresses.get(field * 2)?, addresses.get(field * 2 + 1)?);
        let network = IpNet::with_netmask(*address, *mask).ok()?;
        Some(Some(Negatable::new(is_negated, network)))
    };
    let mode = match mode {
        0 => PolicyMode::Transport,
        _ => PolicyMode::Tunnel,
    };
    Some(PolicyElement {
        reqid: negated(5).map(|it| Negatable::new(it, reqid)),
        spi: negated(4).map(|it| Negatable::new(it, spi)),
        protocol: negated(2).map(|it| Negatable::new(it, Protocol(protocol))),
        mode: negated(3).map(|it| Negatable::new(it, mode)),
        tunnel_destination: network(1)?,
        tunnel_source: network(0)?,
    })
}
