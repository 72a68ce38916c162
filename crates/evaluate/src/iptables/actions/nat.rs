//! Targets of address translation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_iptables::targets::{AddressRange, Dnat, Masquerade, NatPorts, Netmap, Redirect, Snat};
use vipline_nftables::Hook;
use vipline_nftables::expr::{NatFlags, NatType};

use crate::{Cause, Context, Flow, NatRange};

fn flag(is_set: bool, flag: NatFlags) -> NatFlags {
    if is_set { flag } else { NatFlags::empty() }
}

fn range(addresses: Option<AddressRange>, ports: Option<NatPorts>, flags: NatFlags) -> NatRange {
    NatRange {
        addrs: addresses.map(|it| (it.first, it.last)),
        ports: ports.map(|NatPorts(ports)| (ports.first, ports.last)),
        flags,
    }
}

fn only(addr: IpAddr, ports: Option<NatPorts>, flags: NatFlags) -> NatRange {
    let addresses = AddressRange {
        first: addr,
        last: addr,
    };
    range(Some(addresses), ports, flags)
}

pub(super) fn dnat(it: &Dnat, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let flags = flag(it.random, NatFlags::RANDOM) | flag(it.persistent, NatFlags::PERSISTENT);
    let mut range = range(it.addresses, it.ports, flags);
    if let (Some(base), Some((first, last))) = (it.base_port, range.ports) {
        let unknown = || Cause::unknown("destination port of the packet");
        let port = context.packet().destination_port().ok_or_else(unknown)?;
        let count = last.checked_sub(first).ok_or(Cause::Operand)?;
        // `NF_NAT_RANGE_PROTO_OFFSET`: the offset wraps around at the end of the range.
        let offset = u32::from(port.wrapping_sub(base)) % (u32::from(count) + 1);
        let offset = u16::try_from(offset).map_err(|_| Cause::Operand)?;
        range.ports = Some((first.wrapping_add(offset), first.wrapping_add(offset)));
    }
    context.translate(NatType::Dnat, range)
}

pub(super) fn snat(it: &Snat, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let flags = flag(it.random, NatFlags::RANDOM)
        | flag(it.random_fully, NatFlags::FULLY_RANDOM)
        | flag(it.persistent, NatFlags::PERSISTENT);
    context.translate(NatType::Snat, range(it.addresses, it.ports, flags))
}

/// Translates the source to an address of the output interface.
pub(super) fn masquerade(it: &Masquerade, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let flags = flag(it.random, NatFlags::RANDOM) | flag(it.random_fully, NatFlags::FULLY_RANDOM);
    let destination = context.packet().destination();
    let source = context.interface_addr(context.output(), destination)?;
    context.translate(NatType::Snat, only(source, it.ports, flags))
}

/// Translates the destination to an address of the input interface, or to the loopback
/// address.
pub(super) fn redirect(it: &Redirect, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let destination = context.packet().destination();
    let is_v6 = destination.is_ipv6();
    let destination = match context.hook() {
        Hook::Output if is_v6 => Ipv6Addr::LOCALHOST.into(),
        Hook::Output => Ipv4Addr::LOCALHOST.into(),
        _ => context.interface_addr(context.input(), destination)?,
    };
    let flags = flag(it.random, NatFlags::RANDOM);
    context.translate(NatType::Dnat, only(destination, it.ports, flags))
}

/// Maps the network of the source in `POSTROUTING` and `INPUT`, otherwise that of the
/// destination.
pub(super) fn netmap(it: &Netmap, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let to = it.to.as_ref().ok_or(Cause::Operand)?;
    let (addr, mask) = to.parts();
    let packet = context.packet();
    let (kind, current) = match context.hook() {
        Hook::Postrouting | Hook::Input => (NatType::Snat, packet.source()),
        _ => (NatType::Dnat, packet.destination()),
    };
    let mapped: IpAddr = match (addr, mask, current) {
        (IpAddr::V4(addr), IpAddr::V4(mask), IpAddr::V4(current)) => {
            let mask = mask.to_bits();
            Ipv4Addr::from_bits(addr.to_bits() & mask | current.to_bits() & !mask).into()
        }
        (IpAddr::V6(addr), IpAddr::V6(mask), IpAddr::V6(current)) => {
            let mask = mask.to_bits();
            Ipv6Addr::from_bits(addr.to_bits() & mask | current.to_bits() & !mask).into()
        }
        _ => return Err(Cause::Operand),
    };
    context.translate(kind, only(mapped, None, NatFlags::empty()))
}
