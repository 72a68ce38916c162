//! `nat`, `masq` and `redir`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_nftables::expr::{Masq, Nat, NatType, Redir, Register};
use vipline_nftables::{Family, Hook};

use crate::cause::Cause;
use crate::nat::{NatRange, decide, interface_addr};
use crate::packet::connection::Part;
use crate::walk::{Flow, Walk};

pub(super) fn evaluate(walk: &mut Walk<'_>, nat: &Nat) -> Result<Flow, Cause> {
    if nat.family != Family::Inet && nat.family != walk.packet.family() {
        return Ok(Flow::Next);
    }
    let part = match nat.kind {
        NatType::Snat => Part::Source,
        NatType::Dnat => Part::Destination,
    };
    let addrs = ends(nat.addr_min, nat.addr_max, |it| addr(walk, it))?;
    let ports = ports(walk, nat.proto_min, nat.proto_max)?;
    let flags = nat.flags;
    decide(
        walk,
        part,
        NatRange {
            addrs,
            ports,
            flags,
        },
    )
}

/// Translates the source to an address of the output interface.
pub(super) fn masquerade(walk: &mut Walk<'_>, masq: &Masq) -> Result<Flow, Cause> {
    let source = interface_addr(walk, walk.place.output.as_ref(), walk.packet.destination())?;
    let range = NatRange {
        addrs: Some((source, source)),
        ports: ports(walk, masq.proto_min, masq.proto_max)?,
        flags: masq.flags,
    };
    decide(walk, Part::Source, range)
}

/// Translates the destination to an address of the input interface, or to the loopback
/// address.
pub(super) fn redirect(walk: &mut Walk<'_>, redir: &Redir) -> Result<Flow, Cause> {
    let destination = match (walk.place.hook, walk.packet.family()) {
        (Hook::Output, Family::Ip6) => Ipv6Addr::LOCALHOST.into(),
        (Hook::Output, _) => Ipv4Addr::LOCALHOST.into(),
        _ => interface_addr(walk, walk.place.input.as_ref(), walk.packet.destination())?,
    };
    let range = NatRange {
        addrs: Some((destination, destination)),
        ports: ports(walk, redir.proto_min, redir.proto_max)?,
        flags: redir.flags,
    };
    decide(walk, Part::Destination, range)
}

/// Reads both ends of a range. A range without a last value has one value.
fn ends<T: Copy>(
    first: Option<Register>,
    last: Option<Register>,
    read: impl Fn(Register) -> Result<T, Cause>,
) -> Result<Option<(T, T)>, Cause> {
    let Some(first) = first else {
        return Ok(None);
    };
    let low = read(first)?;
    let high = last.map_or(Ok(low), read)?;
    Ok(Some((low, high)))
}

fn addr(walk: &Walk<'_>, register: Register) -> Result<IpAddr, Cause> {
    let bytes = |len| walk.registers.read(register, len);
    Ok(match walk.packet.family() {
        Family::Ip6 => {
            let bytes = bytes(16)?;
            IpAddr::from(*bytes.first_chunk::<16>().ok_or(Cause::Operand)?)
        }
        _ => {
            let bytes = bytes(4)?;
            IpAddr::from(*bytes.first_chunk::<4>().ok_or(Cause::Operand)?)
        }
    })
}

fn ports(
    walk: &Walk<'_>,
    first: Option<Register>,
    last: Option<Register>,
) -> Result<Option<(u16, u16)>, Cause> {
    ends(first, last, |register| {
        let bytes = walk.registers.read(register, 2)?;
        let bytes = bytes.first_chunk().ok_or(Cause::Operand)?;
        Ok(u16::from_be_bytes(*bytes))
    })
}
