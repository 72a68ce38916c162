//! Matches of IP sets, lists of `recent`, and limits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use vipline_iptables::matches::{Match, Recent, RecentAction, Set};
use vipline_iptables::{Direction, SetDirections};
use vipline_nftables::expr::{DynsetOp, PayloadBase};

use super::Tested;
use crate::{
    Cause, Context, Flow, ListUpdate, Question, RecentLookup, SetEntry, SetField, SetLookup,
};

/// Offset of the source in an Ethernet header.
const MAC: (u32, u32) = (6, 6);

pub(super) fn set(it: &Set<'_>, context: &Context<'_, '_>) -> Tested {
    if it.packets.is_some() || it.bytes.is_some() {
        let text = format!("match set {} with a condition on counters", it.name.value());
        return Err(Cause::Unsupported(text));
    }
    let entry = entry(it.directions, context);
    let mut lookup = SetLookup::new(it.name.value(), &entry);
    lookup.return_nomatch = it.return_nomatch;
    let known = updated(it.name.value(), &entry, context)?;
    let is_member = match known {
        Some(is_member) => is_member,
        None => context.ask(&Question::Set(lookup))?,
    };
    Ok(is_member != it.name.is_negated())
}

/// Returns whether a rule added the entry of the packet before, or deleted it.
fn updated(set: &str, wanted: &SetEntry, context: &Context<'_, '_>) -> Result<Option<bool>, Cause> {
    for update in context.list_updates().iter().rev() {
        let ListUpdate::Set {
            name, op, entry, ..
        } = update
        else {
            continue;
        };
        if name != set {
            continue;
        }
        let question = Question::SameEntry {
            set,
            changed: entry,
            wanted,
        };
        if entry == wanted || context.ask(&question)? {
            return Ok(Some(*op != DynsetOp::Delete));
        }
    }
    Ok(None)
}

/// Returns the values of a packet for the dimensions of a set.
pub(in crate::iptables) fn entry(directions: SetDirections, context: &Context<'_, '_>) -> SetEntry {
    let packet = context.packet();
    let mac = packet.read(PayloadBase::Link, MAC.0, MAC.1).ok().flatten();
    let mac = mac.and_then(|bytes| bytes.first_chunk().copied());
    let field = |direction| {
        let is_source = direction == Direction::Source;
        let (addr, port, interface) = match direction {
            Direction::Source => (packet.source(), packet.source_port(), context.input()),
            Direction::Destination => (
                packet.destination(),
                packet.destination_port(),
                context.output(),
            ),
        };
        let port = match packet.protocol() {
            _ if packet.is_later_fragment() => None,
            // Type and code, for both directions.
            1 | 58 => packet.destination_port(),
            _ if packet.has_ports() => port,
            _ => Some(0),
        };
        SetField {
            is_source,
            addr,
            port,
            interface: interface.map(|it| it.name.clone()),
            mac,
        }
    };
    SetEntry {
        fields: directions.iter().map(field).collect(),
        protocol: packet.protocol(),
        mark: packet.mark(),
    }
}

/// Evaluates match `recent`, as `recent_mt` of `xt_recent.c`.
pub(super) fn recent(it: &Recent<'_>, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let action = it.action.ok_or(Cause::Operand)?;
    let packet = context.packet();
    let addr = match it.direction {
        Direction::Source => packet.source(),
        Direction::Destination => packet.destination(),
    };
    let addr = it.mask.map_or(addr, |mask| masked(addr, mask));
    let at = if addr.is_ipv4() { 8 } else { 7 };
    let ttl = packet.read(PayloadBase::Network, at, 1);
    // The list has the TTL before forwarding.
    let hops = u8::from(context.output().is_some() && packet.input().is_some());
    let before = |bytes: vipline_nftables::Bytes| Some(bytes.first()?.saturating_add(hops));
    let ttl = ttl.map(|bytes| bytes.and_then(before));
    let known_ttl = ttl.clone().ok().flatten();
    let mut lookup = RecentLookup::new(&it.name, addr);
    if it.rttl {
        lookup.ttl = ttl?;
    }
    let is_negated = action.is_negated();
    let update = |op| ListUpdate::Recent {
        name: it.name.to_string(),
        op,
        addr,
        ttl: known_ttl,
    };
    match action.value() {
        RecentAction::Set => {
            context.update_list(update(DynsetOp::Add));
            Ok(Flow::next_if(!is_negated))
        }
        RecentAction::Remove => {
            let is_found = is_listed(lookup, context)?;
            if is_found {
                context.update_list(update(DynsetOp::Delete));
            }
            Ok(Flow::next_if(is_found != is_negated))
        }
        RecentAction::Check | RecentAction::Update => {
            let wanted = lookup;
            lookup.age = it.seconds.map(|it| Duration::from_secs(it.into()));
            lookup.hits = it.hitcount;
            let is_found = is_listed(lookup, context)?;
            let is_match = is_found != is_negated;
            if *action.value() == RecentAction::Update && is_match {
                // A negated condition updates only an entry that exists.
                if is_found || is_listed(wanted, context)? {
                    context.update_list(update(DynsetOp::Add));
                }
            }
            Ok(Flow::next_if(is_match))
        }
    }
}

/// Asks for an entry, with the updates of the evaluation so far.
fn is_listed(mut lookup: RecentLookup<'_>, context: &Context<'_, '_>) -> Tested {
    let mut seen = 0_u32;
    for update in context.list_updates().iter().rev() {
        let ListUpdate::Recent { name, op, addr, .. } = update else {
            continue;
        };
        if name != lookup.name || *addr != lookup.addr {
            continue;
        }
        if *op == DynsetOp::Delete {
            return Ok(seen >= lookup.hits.unwrap_or(1).max(1));
        }
        seen += 1;
    }
    if seen >= lookup.hits.unwrap_or(1).max(1) {
        return Ok(true);
    }
    lookup.hits = lookup.hits.map(|hits| hits - seen);
    context.ask(&Question::Recent(lookup))
}

fn masked(addr: IpAddr, mask: IpAddr) -> IpAddr {
    match (addr, mask) {
        (IpAddr::V4(addr), IpAddr::V4(mask)) => {
            Ipv4Addr::from_bits(addr.to_bits() & mask.to_bits()).into()
        }
        (IpAddr::V6(addr), IpAddr::V6(mask)) => {
            Ipv6Addr::from_bits(addr.to_bits() & mask.to_bits()).into()
        }
        (addr, _) => addr,
    }
}

/// Evaluates a match that limits rates, numbers or amounts.
///
/// Each packet exceeds a limit of 0 connections, because its own connection counts, or of 0
/// bytes.
pub(super) fn limited(one: &Match<'_>, context: &Context<'_, '_>) -> Tested {
    let is_zero = match one {
        Match::Connlimit(it) => it.upto.as_ref().is_some_and(|it| *it.value() == 0),
        Match::Quota(it) => it.quota.as_ref().is_some_and(|it| *it.value() == 0),
        _ => false,
    };
    let is_over = is_zero || context.is_over(&one.to_string())?;
    let matches_above = match one {
        Match::Hashlimit(it) => it.upto.as_ref().is_some_and(|it| it.is_negated()),
        Match::Connlimit(it) => it.upto.as_ref().is_some_and(|it| it.is_negated()),
        Match::Quota(it) => it.quota.as_ref().is_some_and(|it| it.is_negated()),
        _ => false,
    };
    Ok(is_over == matches_above)
}
