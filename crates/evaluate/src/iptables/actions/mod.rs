//! Evaluation of targets.

mod nat;

mod packets;

use std::time::Duration;

use vipline_iptables::Family;
use vipline_iptables::targets::{
    Connmark, ConnmarkAction, Mark, Nfqueue, Reject, Set, Shift, Target,
};
use vipline_nftables::Verdict;
use vipline_nftables::expr::{DynsetOp, QueueTarget, RejectType};

use super::conditions;
use crate::{Cause, Context, Disposition, Flow, ListUpdate};

/// Evaluates a target.
pub(super) fn evaluate(target: &Target<'_>, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    match target {
        Target::Accept => return Ok(Flow::Verdict(Verdict::Accept)),
        Target::Drop => return Ok(Flow::Verdict(Verdict::Drop)),
        Target::Return => return Ok(Flow::Verdict(Verdict::Return)),
        Target::Dnat(it) => return nat::dnat(it, context),
        Target::Snat(it) => return nat::snat(it, context),
        Target::Masquerade(it) => return nat::masquerade(it, context),
        Target::Redirect(it) => return nat::redirect(it, context),
        Target::Netmap(it) => return nat::netmap(it, context),
        Target::Reject(it) => {
            let reply = reply(it.for_family(family(context)))?;
            return Ok(Flow::End(Disposition::Rejected(reply)));
        }
        Target::Nfqueue(it) => return queue(it),
        Target::Mark(Mark(it)) => {
            let mark = context.packet().mark() & !it.mask ^ it.value;
            context.set_mark(mark);
        }
        Target::Connmark(it) => connmark(it, context)?,
        Target::Notrack => context.untrack(),
        Target::Ct(it) if it.notrack => context.untrack(),
        Target::Ct(it) if it.zone.is_none() && it.helper.is_none() => {}
        Target::Classify(it) => packets::classify(it, context)?,
        Target::Dscp(it) => packets::dscp(it, context)?,
        Target::Tos(it) => packets::tos(it, context)?,
        Target::Ttl(it) => packets::ttl((it.set, it.dec, it.inc), context)?,
        Target::Hl(it) => packets::ttl((it.set, it.dec, it.inc), context)?,
        // Options that are unknown remain unknown.
        Target::Tcpmss(_) | Target::Tcpoptstrip(_) if context.packet().total_len().is_none() => {}
        Target::Set(it) => set(it, context)?,
        Target::Audit(_)
        | Target::Checksum(_)
        | Target::Connsecmark(_)
        | Target::Idletimer(_)
        | Target::Led(_)
        | Target::Log(_)
        | Target::Nflog(_)
        | Target::Rateest(_)
        | Target::Secmark(_)
        | Target::Tee(_)
        | Target::Trace => {}
        target => return Err(Cause::unsupported(format_args!("{target}"))),
    }
    Ok(Flow::Next)
}

/// Returns the family of the packet.
pub(super) fn family(context: &Context<'_, '_>) -> Family {
    context.packet().family().ip().unwrap_or(Family::V4)
}

/// Returns the reply to a rejected packet.
fn reply(reject: Reject) -> Result<RejectType, Cause> {
    Ok(match reject {
        Reject::TcpReset => RejectType::TcpReset,
        // Codes of ICMP "destination unreachable".
        Reject::NetUnreachable => RejectType::Icmp(0),
        Reject::HostUnreachable => RejectType::Icmp(1),
        Reject::ProtocolUnreachable => RejectType::Icmp(2),
        Reject::PortUnreachable => RejectType::Icmp(3),
        Reject::NetProhibited => RejectType::Icmp(9),
        Reject::HostProhibited => RejectType::Icmp(10),
        Reject::AdminProhibited => RejectType::Icmp(13),
        // Codes of ICMPv6 "destination unreachable".
        Reject::Icmp6NoRoute => RejectType::Icmp(0),
        Reject::Icmp6AdminProhibited => RejectType::Icmp(1),
        Reject::Icmp6AddressUnreachable => RejectType::Icmp(3),
        Reject::Icmp6PortUnreachable => RejectType::Icmp(4),
        Reject::Icmp6PolicyFail => RejectType::Icmp(5),
        Reject::Icmp6RejectRoute => RejectType::Icmp(6),
        Reject::Default => return Err(Cause::Operand),
    })
}

fn queue(it: &Nfqueue) -> Result<Flow, Cause> {
    let (first, total) = match it.balance {
        Some(range) => {
            let count = range.last.checked_sub(range.first);
            let total = count.and_then(|count| count.checked_add(1));
            (range.first, total.ok_or(Cause::Operand)?)
        }
        None => (it.queue.unwrap_or(0), 1),
    };
    let target = QueueTarget::Numbers { first, total };
    Ok(Flow::End(Disposition::Queued(target)))
}

/// Changes or copies the connection mark, as `connmark_tg_shift` of `xt_connmark.c`.
fn connmark(it: &Connmark, context: &mut Context<'_, '_>) -> Result<(), Cause> {
    let Some(connection) = context.connection() else {
        return Ok(());
    };
    let (old, packet) = (connection.mark, context.packet().mark());
    let shifted = |mark: u32| match it.shift {
        None => Some(mark),
        Some(Shift::Left(bits)) => mark.checked_shl(bits.into()),
        Some(Shift::Right(bits)) => mark.checked_shr(bits.into()),
    };
    match it.action.ok_or(Cause::Operand)? {
        ConnmarkAction::Set(wanted) => {
            let mark = shifted(old & !wanted.mask ^ wanted.value);
            context.set_connection_mark(mark.ok_or(Cause::Operand)?);
        }
        ConnmarkAction::Save(masks) => {
            let saved = shifted(packet & masks.packet).ok_or(Cause::Operand)?;
            context.set_connection_mark(old & !masks.connection ^ saved);
        }
        ConnmarkAction::Restore(masks) => {
            let restored = shifted(old & masks.connection).ok_or(Cause::Operand)?;
            context.set_mark(packet & !masks.packet ^ restored);
        }
    }
    Ok(())
}

/// Adds and deletes entries of IP sets.
fn set(it: &Set<'_>, context: &mut Context<'_, '_>) -> Result<(), Cause> {
    if it.map.is_some() {
        return Err(Cause::unsupported("-j SET --map-set"));
    }
    let add = if it.exist {
        DynsetOp::Update
    } else {
        DynsetOp::Add
    };
    let timeout = it.timeout.map(|it| Duration::from_secs(it.into()));
    for (reference, op) in [(&it.add, add), (&it.del, DynsetOp::Delete)] {
        if let Some(reference) = reference {
            let entry = conditions::entry(reference.directions, context);
            context.update_list(ListUpdate::Set {
                name: reference.name.to_string(),
                op,
                entry,
                timeout: timeout.filter(|_| op != DynsetOp::Delete),
            });
        }
    }
    Ok(())
}
