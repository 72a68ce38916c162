//! Match `ipvs`: `xt_ipvs.c`.

use vipline_iptables::matches::{CtDirection, Ipvs, IpvsMethod, Match};
use vipline_nftables::expr;

use super::{Tested, asked, holds};
use crate::Context;

// linux/ip_vs.h: forwarding methods
const IP_VS_CONN_F_MASQ: u32 = 0;
const IP_VS_CONN_F_TUNNEL: u32 = 2;
const IP_VS_CONN_F_DROUTE: u32 = 3;

/// Compares the IPVS connection of the packet. `one` is the whole match, for questions.
///
/// The environment is asked about a packet that no function of IPVS has handled: the caller
/// may evaluate without IPVS.
pub(super) fn evaluate(it: &Ipvs, one: &Match<'_>, context: &Context<'_, '_>) -> Tested {
    let Some(connection) = context.ipvs() else {
        return match context.has_functions() {
            true => Ok(it.property.is_some_and(|it| it.is_negated())),
            false => asked(one, context),
        };
    };
    if let Some(property) = it.property {
        return Ok(!property.is_negated());
    }
    let is_direction = it.direction.is_none_or(|wanted| match wanted {
        CtDirection::Original => context.direction() == Some(expr::Direction::Original),
        CtDirection::Reply => context.direction() == Some(expr::Direction::Reply),
    });
    Ok(is_direction
        && holds(it.protocol.as_ref(), |it| it.0 == connection.protocol)
        && holds(it.address.as_ref(), |it| it.contains(&connection.address))
        && holds(it.port.as_ref(), |it| *it == connection.port)
        && holds(it.control_port.as_ref(), |it| {
            connection.control_port == Some(*it)
        })
        && holds(it.method.as_ref(), |it| {
            connection.method
                == match it {
                    IpvsMethod::Gate => IP_VS_CONN_F_DROUTE,
                    IpvsMethod::Ipip => IP_VS_CONN_F_TUNNEL,
                    IpvsMethod::Masq => IP_VS_CONN_F_MASQ,
                }
        }))
}
