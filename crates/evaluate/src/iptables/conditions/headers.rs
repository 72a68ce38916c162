//! Matches of IP and Ethernet headers.

use vipline_iptables::Negatable;
use vipline_iptables::Protocol;
use vipline_iptables::matches::{Dscp, Ecn, Length, Mac, PacketType, Pkttype, Tos};
use vipline_nftables::expr::PayloadBase;

use super::{Tested, holds};
use crate::{Cause, Context};

/// Length of an IPv6 header, which match `length` does not count.
const V6_HEADER: u32 = 40;
/// Offset of the flags in a TCP header, and flags of ECN.
const TCP_FLAGS: u32 = 13;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;
/// Mask of ECN in the type of service.
const ECN: u8 = 3;

fn is_v6(context: &Context<'_, '_>) -> bool {
    context.packet().source().is_ipv6()
}

fn network(context: &Context<'_, '_>, at: u32, len: u32) -> Result<vipline_nftables::Bytes, Cause> {
    let bytes = context.packet().read(PayloadBase::Network, at, len)?;
    bytes.ok_or(Cause::Operand)
}

pub(super) fn length(it: &Length, context: &Context<'_, '_>) -> Tested {
    let len = context.packet().total_len();
    let len = len.ok_or_else(|| Cause::unknown("length of the packet"))?;
    let len = match is_v6(context) {
        true => len.saturating_sub(V6_HEADER),
        false => len,
    };
    Ok(holds(it.length.as_ref(), |range| {
        u32::from(range.first) <= len && len <= u32::from(range.last)
    }))
}

/// Compares the TTL or hop limit.
pub(super) fn ttl(
    eq: Option<Negatable<u8>>,
    lt: Option<u8>,
    gt: Option<u8>,
    context: &Context<'_, '_>,
) -> Tested {
    let at = if is_v6(context) { 7 } else { 8 };
    let ttl = network(context, at, 1)?.first().copied().unwrap_or(0);
    Ok(holds(eq.as_ref(), |it| *it == ttl)
        && lt.is_none_or(|it| ttl < it)
        && gt.is_none_or(|it| ttl > it))
}

/// Returns the type of service or traffic class.
pub(in crate::iptables) fn traffic_class(context: &Context<'_, '_>) -> Result<u8, Cause> {
    match is_v6(context) {
        true => {
            let bytes = network(context, 0, 2)?;
            let [first, second] = *bytes.first_chunk().ok_or(Cause::Operand)?;
            Ok(first << 4 | second >> 4)
        }
        false => network(context, 1, 1)?
            .first()
            .copied()
            .ok_or(Cause::Operand),
    }
}

pub(super) fn dscp(it: &Dscp, context: &Context<'_, '_>) -> Tested {
    let point = traffic_class(context)? >> 2;
    Ok(holds(it.dscp.as_ref(), |wanted| wanted.get() == point))
}

pub(super) fn tos(it: &Tos, context: &Context<'_, '_>) -> Tested {
    let class = traffic_class(context)?;
    Ok(holds(it.tos.as_ref(), |wanted| {
        class & wanted.mask == wanted.value
    }))
}

pub(super) fn ecn(it: &Ecn, context: &Context<'_, '_>) -> Tested {
    if it.ip_ect.is_some() {
        let bits = traffic_class(context)? & ECN;
        if !holds(it.ip_ect.as_ref(), |wanted| *wanted == bits) {
            return Ok(false);
        }
    }
    if it.tcp_ece.is_none() && it.tcp_cwr.is_none() {
        return Ok(true);
    }
    let packet = context.packet();
    if packet.protocol() != Protocol::TCP.0 {
        return Ok(false);
    }
    let flags = packet.read(PayloadBase::Transport, TCP_FLAGS, 1)?;
    let Some(flags) = flags.and_then(|bytes| bytes.first().copied()) else {
        return Ok(false);
    };
    Ok(holds(it.tcp_ece.as_ref(), |()| flags & ECE != 0)
        && holds(it.tcp_cwr.as_ref(), |()| flags & CWR != 0))
}

/// A packet without an Ethernet header does not match.
pub(super) fn mac(it: &Mac, context: &Context<'_, '_>) -> Tested {
    let source = context.packet().read(PayloadBase::Link, 6, 6)?;
    let Some(source) = source else {
        return Ok(false);
    };
    Ok(holds(it.source.as_ref(), |wanted| wanted.0 == *source))
}

pub(super) fn packet_type(it: &Pkttype, context: &Context<'_, '_>) -> Tested {
    let kind = context.packet().packet_type();
    let kind = kind.ok_or_else(|| Cause::unknown("destination of the frame"))?;
    Ok(holds(it.ty.as_ref(), |wanted| {
        kind == match wanted {
            PacketType::Unicast => 0,
            PacketType::Broadcast => 1,
            PacketType::Multicast => 2,
        }
    }))
}
