//! Matches of interface groups and of sending sockets.

use vipline_iptables::Negatable;
use vipline_iptables::matches::{Devgroup, Match, Owner};
use vipline_iptables::{MaskedMatch, Range};
use vipline_nftables::Hook;

use super::{Tested, asked, is_masked};
use crate::{Cause, Context, Interface};

pub(super) fn groups(it: &Devgroup, context: &Context<'_, '_>) -> Tested {
    let sides = [
        (it.source, context.input()),
        (it.destination, context.output()),
    ];
    for (wanted, interface) in sides {
        if let Some(wanted) = wanted
            && !is_group(wanted, interface)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_group(wanted: Negatable<MaskedMatch>, interface: Option<&Interface>) -> Tested {
    let Some(interface) = interface else {
        return Ok(false);
    };
    let unknown = || Cause::unknown(format_args!("group of interface {}", interface.name));
    Ok(is_masked(wanted, interface.group.ok_or_else(unknown)?))
}

/// Compares user and group of the socket. A forwarded packet has no socket: it matches only
/// if all conditions are negated.
pub(super) fn owner(it: &Owner, one: &Match<'_>, context: &Context<'_, '_>) -> Tested {
    let is_forwarded = context.hook() == Hook::Forward || context.packet().input().is_some();
    if is_forwarded {
        let is_negated = |it: Option<bool>| it.unwrap_or(true);
        let exists = it.socket_exists.map(|it| it.is_negated());
        let uid = it.uid.as_ref().map(Negatable::is_negated);
        let gid = it.gid.as_ref().map(Negatable::is_negated);
        return Ok(is_negated(exists) && is_negated(uid) && is_negated(gid));
    }
    let Some((user, group)) = context.packet().owner() else {
        return asked(one, context);
    };
    if it.suppl_groups && it.gid.is_some() {
        return asked(one, context);
    }
    let is_in = |condition: Option<&Negatable<Range<u32>>>, id: u32| {
        super::holds(condition, |range| range.first <= id && id <= range.last)
    };
    let exists = it.socket_exists.is_none_or(|it| !it.is_negated());
    Ok(exists && is_in(it.uid.as_ref(), user) && is_in(it.gid.as_ref(), group))
}
