//! Matches of connection tracking: `xt_conntrack.c`, `xt_connmark.c` and `xt_connlabel.c`.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_iptables::Negatable;
use vipline_iptables::Ports;
use vipline_iptables::matches::{
    Connection, Connlabel, Connmark, Conntrack, CtDirection, CtState, Match, State,
};
use vipline_nftables::expr;

use super::{Tested, asked, holds, is_masked};
use crate::{Cause, Context, Tuple};

/// `one` is the whole match, for questions.
pub(super) fn evaluate(it: &Conntrack, one: &Match<'_>, context: &Context<'_, '_>) -> Tested {
    if !holds(it.state.as_ref(), |wanted| is_state(*wanted, context)) {
        return Ok(false);
    }
    let Some(connection) = context.connection() else {
        // Only the state of an untracked packet is compared.
        return Ok(it.state.is_some());
    };
    let is_direction = it.direction.is_none_or(|wanted| match wanted {
        CtDirection::Original => context.direction() == Some(expr::Direction::Original),
        CtDirection::Reply => context.direction() == Some(expr::Direction::Reply),
    });
    let status = u32::from(it.status.map_or(0, |it| it.value().bits()));
    let is_status = holds(it.status.as_ref(), |_| {
        connection.status.bits() & status != 0
    });
    if !is_direction || !is_status {
        return Ok(false);
    }
    if let Some(wanted) = &it.connection
        && !is_connection(wanted, &connection.original, &connection.reply)?
    {
        return Ok(false);
    }
    match it.expire {
        Some(_) => asked(one, context),
        None => Ok(true),
    }
}

pub(super) fn state(State(wanted): &State, context: &Context<'_, '_>) -> Tested {
    Ok(holds(Some(wanted), |wanted| is_state(*wanted, context)))
}

/// Returns whether the packet has one of the states.
fn is_state(wanted: CtState, context: &Context<'_, '_>) -> bool {
    let state = match context.ct_state() {
        expr::CtState::NEW => CtState::NEW,
        expr::CtState::ESTABLISHED => CtState::ESTABLISHED,
        expr::CtState::RELATED => CtState::RELATED,
        expr::CtState::UNTRACKED => CtState::UNTRACKED,
        _ => CtState::INVALID,
    };
    let has = |status| {
        let connection = context.connection();
        connection.is_some_and(|it| it.status.contains(status))
    };
    let mut all = state;
    all.set(CtState::SNAT, has(expr::CtStatus::SNAT));
    all.set(CtState::DNAT, has(expr::CtStatus::DNAT));
    wanted.intersects(all)
}

fn is_connection(wanted: &Connection, original: &Tuple, reply: &Tuple) -> Tested {
    let is_protocol = holds(wanted.protocol.as_ref(), |it| it.0 == original.protocol);
    let addrs: [(Option<&Negatable<IpNet>>, IpAddr); 4] = [
        (wanted.original_source.as_ref(), original.source),
        (wanted.original_destination.as_ref(), original.destination),
        (wanted.reply_source.as_ref(), reply.source),
        (wanted.reply_destination.as_ref(), reply.destination),
    ];
    let is_addr =
        |(net, addr): (Option<&Negatable<IpNet>>, IpAddr)| holds(net, |net| net.contains(&addr));
    if !is_protocol || !addrs.into_iter().all(is_addr) {
        return Ok(false);
    }
    let ports: [(Option<&Negatable<Ports>>, Option<u16>); 4] = [
        (wanted.original_sport.as_ref(), original.source_port),
        (wanted.original_dport.as_ref(), original.destination_port),
        (wanted.reply_sport.as_ref(), reply.source_port),
        (wanted.reply_dport.as_ref(), reply.destination_port),
    ];
    for (wanted, port) in ports {
        if wanted.is_some() {
            let port = port.ok_or_else(|| Cause::unknown("port of the connection"))?;
            if !holds(wanted, |it| it.first <= port && port <= it.last) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A packet without a connection does not match.
pub(super) fn mark(it: &Connmark, context: &Context<'_, '_>) -> bool {
    let connection = context.connection();
    connection.is_some_and(|connection| {
        it.mark
            .is_none_or(|wanted| is_masked(wanted, connection.mark))
    })
}

pub(super) fn label(it: &Connlabel, context: &Context<'_, '_>) -> Tested {
    if it.set {
        return Err(Cause::unsupported("match connlabel with option --set"));
    }
    let Some(connection) = context.connection() else {
        return Ok(it.label.is_some_and(|it| it.is_negated()));
    };
    let unknown = || Cause::unknown("labels of the connection");
    let labels = u128::from_ne_bytes(connection.labels.ok_or_else(unknown)?);
    Ok(holds(it.label.as_ref(), |label| {
        labels >> label.get() & 1 != 0
    }))
}
