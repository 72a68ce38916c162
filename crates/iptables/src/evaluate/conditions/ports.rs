//! Matches of transport headers.
//!
//! Later fragments do not match. A packet that ends in its header is dropped.

use vipline_nftables::Bytes;
use vipline_nftables::Verdict;
use vipline_nftables::evaluate::{Cause, Context, Flow};
use vipline_nftables::expr::PayloadBase;

use super::{asked, holds};
use crate::matches::{Icmp, Icmp6, IcmpType, Match, Multiport, MultiportKind, Sctp, Tcp, Udp};
use crate::negatable::Negatable;
use crate::number::Ports;
use crate::protocol::Protocol;

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

/// Reads source and destination port.
fn ports(context: &Context<'_, '_>) -> Result<Read<(u16, u16)>, Cause> {
    Ok(match read(context, 0, 4)? {
        Read::End(flow) => Read::End(flow),
        Read::Value(bytes) => {
            let [a, b, c, d] = *bytes.first_chunk().ok_or(Cause::Operand)?;
            Read::Value((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
        }
    })
}

fn is_in(ports: Ports, port: u16) -> bool {
    ports.first <= port && port <= ports.last
}

fn are_ports(
    (sport, dport): (Option<&Negatable<Ports>>, Option<&Negatable<Ports>>),
    (source, destination): (u16, u16),
) -> bool {
    holds(sport, |it| is_in(*it, source)) && holds(dport, |it| is_in(*it, destination))
}

pub(super) fn tcp(it: &Tcp, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    if it.sport.is_some() || it.dport.is_some() {
        match ports(context)? {
            Read::End(flow) => return Ok(flow),
            Read::Value(ports) => {
                if !are_ports((it.sport.as_ref(), it.dport.as_ref()), ports) {
                    return Ok(Flow::Break);
                }
            }
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
    Ok(match ports(context)? {
        Read::End(flow) => flow,
        Read::Value(ports) => {
            Flow::next_if(are_ports((it.sport.as_ref(), it.dport.as_ref()), ports))
        }
    })
}

pub(super) fn sctp(it: &Sctp, one: &Match<'_>, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    let found = match ports(context)? {
        Read::End(flow) => return Ok(flow),
        Read::Value(ports) => ports,
    };
    if !are_ports((it.sport.as_ref(), it.dport.as_ref()), found) {
        return Ok(Flow::Break);
    }
    Ok(match it.chunks {
        Some(_) => Flow::next_if(asked(one, context)?),
        None => Flow::Next,
    })
}

pub(super) fn multiport(it: &Multiport, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    let (source, destination) = match ports(context)? {
        Read::End(flow) => return Ok(flow),
        Read::Value(ports) => ports,
    };
    let is_listed = |port| it.ports.value().iter().any(|ports| is_in(*ports, port));
    let is_one = match it.kind {
        MultiportKind::Source => is_listed(source),
        MultiportKind::Destination => is_listed(destination),
        MultiportKind::Either => is_listed(source) || is_listed(destination),
    };
    Ok(Flow::next_if(is_one != it.ports.is_negated()))
}

pub(super) fn icmp(Icmp(wanted): &Icmp, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    let is_any = wanted.value().ty == Icmp::ANY.ty;
    is_message(wanted, is_any, Protocol::ICMP, context)
}

pub(super) fn icmp6(Icmp6(wanted): &Icmp6, context: &Context<'_, '_>) -> Result<Flow, Cause> {
    is_message(wanted, false, Protocol::ICMP6, context)
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
