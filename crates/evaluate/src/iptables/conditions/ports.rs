//! Matches of transport headers.
//!
//! Later fragments do not match. A packet that ends in its header is dropped.

use vipline_iptables::Negatable;
use vipline_iptables::Ports;
use vipline_iptables::Protocol;
use vipline_iptables::matches::{
    Icmp, Icmp6, IcmpType, Match, Multiport, MultiportKind, Sctp, Tcp, Udp,
};
use vipline_nftables::Bytes;
use vipline_nftables::Verdict;
use vipline_nftables::expr::PayloadBase;

use super::{asked, holds};
use crate::{Cause, Context, Flow};

/// Offsets of the ports in a header.
const SOURCE: u32 = 0;
const DESTINATION: u32 = 2;
/// Offset of the flags in a TCP header, and length of a header without options.
const FLAGS: u32 = 13;
const TCP_HEADER: u32 = 20;
/// Offset of header length in a TCP header.
const DATA_OFFSET: u32 = 12;

/// A test that ends with a result before all conditions are known.
enum Read<T> {
    Value(T),
    End(Flow),
}

/// Reads bytes of the transport header.
fn read(context: &Context<'_, '_>, offset: u32, len: u32) -> Result<Read<Bytes>, Cause> {
    let packet = context.packet();
    if packet.is_later_fragment() {
        return Ok(Read::End(Flow::Break));
    }
    Ok(match packet.read(PayloadBase::Transport, offset, len)? {
        Some(bytes) => Read::Value(bytes),
        None => Read::End(Flow::Verdict(Verdict::Drop)),
    })
}

/// Reads a port.
fn port(context: &Context<'_, '_>, offset: u32) -> Result<Read<u16>, Cause> {
    Ok(match read(context, offset, 2)? {
        Read::End(flow) => Read::End(flow),
        Read::Value(bytes) => {
            let bytes = bytes.first_chunk().ok_or(Cause::Operand)?;
            Read::Value(u16::from_be_bytes(*bytes))
        }
    })
}

fn is_in(ports: Ports, port: u16) -> bool {
    ports.first <= port && port <= ports.last
}

/// Compares the ports of a packet. Returns how the test ends, if the ports decide it.
///
/// Masquerading leaves the source port unknown, so it is read only if a rule compares it.
fn compare_ports(
    (sport, dport): (Option<&Negatable<Ports>>, Option<&Negatable<Ports>>),
    context: &Context<'_, '_>,
) -> Result<Option<Flow>, Cause> {
    let destination = match port(context, DESTINATION)? {
        Read::End(flow) => return Ok(Some(flow)),
        Read::Value(port) => port,
    };
    if !holds(dport, |it| is_in(*it, destination)) {
        return Ok(Some(Flow::Break));
    }
    if sport.is_none() {
        return Ok(None);
    }
    Ok(match port(context, SOURCE)? {
        Read::End(flow) => Some(flow),
        Read::Value(source) => (!holds(sport, |it| is_in(*it, source))).then_some(Flow::Break),
    })
}

pub(super) fn tcp(it: &Tcp, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    if it.sport.is_some() || it.dport.is_some() {
        let ports = (it.sport.as_ref(), it.dport.as_ref());
        if let Some(end) = compare_ports(ports, context)? {
            return Ok(end);
        }
    }
    if context.packet().is_later_fragment() {
        return Ok(Flow::Break);
    }
    if it.flags.is_some() {
        let flags = match read(context, FLAGS, 1)? {
            Read::End(flow) => return Ok(flow),
            Read::Value(bytes) => bytes.first().copied().ok_or(Cause::Operand)?,
        };
        let is_set = holds(it.flags.as_ref(), |wanted| {
            flags & wanted.mask.bits() == wanted.set.bits()
        });
        if !is_set {
            return Ok(Flow::Break);
        }
    }
    match &it.option {
        None => Ok(Flow::Next),
        Some(option) => has_option(context, *option.value(), option.is_negated()),
    }
}

/// Searches for an option of TCP.
fn has_option(context: &Context<'_, '_>, wanted: u8, is_negated: bool) -> Result<Flow, Cause> {
    let byte = |at| match read(context, at, 1)? {
        Read::End(flow) => Ok(Read::End(flow)),
        Read::Value(bytes) => Ok::<_, Cause>(Read::Value(bytes.first().copied().unwrap_or(0))),
    };
    let Read::Value(offset) = byte(DATA_OFFSET)? else {
        return Ok(Flow::Verdict(Verdict::Drop));
    };
    let (mut at, end) = (TCP_HEADER, u32::from(offset >> 4) * 4);
    while at < end {
        let Read::Value(kind) = byte(at)? else {
            return Ok(Flow::Verdict(Verdict::Drop));
        };
        if kind == wanted {
            return Ok(Flow::next_if(!is_negated));
        }
        at += match kind {
            0 | 1 => 1,
            _ if at + 1 >= end => 1,
            _ => match byte(at + 1)? {
                Read::Value(len) => u32::from(len).max(1),
                Read::End(flow) => return Ok(flow),
            },
        };
    }
    Ok(Flow::next_if(is_negated))
}

pub(super) fn udp(it: &Udp, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    let end = compare_ports((it.sport.as_ref(), it.dport.as_ref()), context)?;
    Ok(end.unwrap_or(Flow::Next))
}

pub(super) fn sctp(it: &Sctp, one: &Match<'_>, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    if let Some(end) = compare_ports((it.sport.as_ref(), it.dport.as_ref()), context)? {
        return Ok(end);
    }
    Ok(match it.chunks {
        Some(_) => Flow::next_if(asked(one, context)?),
        None => Flow::Next,
    })
}

pub(super) fn multiport(it: &Multiport, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    let offsets: &[u32] = match it.kind {
        MultiportKind::Source => &[SOURCE],
        MultiportKind::Destination => &[DESTINATION],
        MultiportKind::Either => &[SOURCE, DESTINATION],
    };
    let mut is_one = false;
    for offset in offsets {
        match port(context, *offset)? {
            Read::End(flow) => return Ok(flow),
            Read::Value(port) => is_one |= it.ports.value().iter().any(|it| is_in(*it, port)),
        }
    }
    Ok(Flow::next_if(is_one != it.ports.is_negated()))
}

pub(super) fn icmp(Icmp(wanted): &Icmp, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    let is_any = wanted.value().ty == Icmp::ANY.ty;
    is_message(wanted, is_any, Protocol::ICMP, context)
}

pub(super) fn icmp6(Icmp6(wanted): &Icmp6, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    is_message(wanted, false, Protocol::ICMPV6, context)
}

fn is_message(
    wanted: &Negatable<IcmpType>,
    is_any: bool,
    protocol: Protocol,
    context: &Context<'_, '_>,
) -> Result<Flow, Cause> {
    if context.packet().protocol() != protocol.0 {
        return Ok(Flow::Break);
    }
    let bytes = match read(context, 0, 2)? {
        Read::End(flow) => return Ok(flow),
        Read::Value(bytes) => bytes,
    };
    let [ty, code] = *bytes.first_chunk().ok_or(Cause::Operand)?;
    let is_one = |it: &IcmpType| it.ty == ty && it.code.is_none_or(|it| it == code);
    Ok(Flow::next_if(
        (is_any || is_one(wanted.value())) != wanted.is_negated(),
    ))
}
