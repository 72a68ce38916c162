//! Evaluation of matches.

mod conntrack;

mod headers;

mod ipvs;

mod lists;

mod ports;

mod sockets;

mod time;

pub(super) use headers::traffic_class;
pub(super) use lists::entry;

use std::net::IpAddr;

use vipline_iptables::MaskedMatch;
use vipline_iptables::Negatable;
use vipline_iptables::matches::{AddrType, AddressTypes, IpRange, Match, Rpfilter, Statistic};
use vipline_nftables::{Value, expr};

use crate::{Cause, Context, Flow, Question, Route};

/// Result of a condition.
type Tested = Result<bool, Cause>;

/// Evaluates a match.
pub(super) fn evaluate(one: &Match<'_>, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
    let is_match = match one {
        Match::Comment(_) => true,
        Match::Tcp(it) => return ports::tcp(it, context),
        Match::Udp(it) => return ports::udp(it, context),
        Match::Sctp(it) => return ports::sctp(it, one, context),
        Match::Multiport(it) => return ports::multiport(it, context),
        Match::Icmp(it) => return ports::icmp(it, context),
        Match::Icmp6(it) => return ports::icmp6(it, context),
        Match::AddrType(it) => addr_type(it, context)?,
        Match::Conntrack(it) => conntrack::evaluate(it, one, context)?,
        Match::State(it) => conntrack::state(it, context)?,
        Match::Connmark(it) => conntrack::mark(it, context),
        Match::Connlabel(it) => conntrack::label(it, context)?,
        Match::Statistic(it) => statistic(it, context)?,
        Match::Recent(it) => return lists::recent(it, context),
        Match::Set(it) => lists::set(it, context)?,
        Match::IpRange(it) => ip_range(it, context),
        Match::Length(it) => headers::length(it, context)?,
        Match::Ttl(it) => headers::ttl(it.eq, it.lt, it.gt, context)?,
        Match::Hl(it) => headers::ttl(it.eq, it.lt, it.gt, context)?,
        Match::Dscp(it) => headers::dscp(it, context)?,
        Match::Tos(it) => headers::tos(it, context)?,
        Match::Ecn(it) => headers::ecn(it, context)?,
        Match::Mac(it) => headers::mac(it, context)?,
        Match::Pkttype(it) => headers::packet_type(it, context)?,
        Match::Devgroup(it) => sockets::groups(it, context)?,
        Match::Owner(it) => sockets::owner(it, one, context)?,
        Match::Mark(it) => is_masked(it.mark.map(MaskedMatch), context.packet().mark()),
        Match::Rpfilter(it) => rpfilter(it, context)?,
        Match::Ipvs(it) => ipvs::evaluate(it, one, context)?,
        Match::Time(it) => match context.packet().time() {
            Some(now) if !it.kernel_time_zone => time::evaluate(it, seconds(now)),
            _ => asked(one, context)?,
        },
        Match::Limit(_) | Match::Hashlimit(_) | Match::Connlimit(_) | Match::Quota(_) => {
            lists::limited(one, context)?
        }
        Match::Other(text) => return Err(Cause::unsupported(format_args!("{text}"))),
        one => asked(one, context)?,
    };
    Ok(Flow::next_if(is_match))
}

/// Returns whole seconds.
fn seconds(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX)
}

/// Tests a condition, if the rule has it.
fn holds<T>(condition: Option<&Negatable<T>>, test: impl FnOnce(&T) -> bool) -> bool {
    condition.is_none_or(|it| test(it.value()) != it.is_negated())
}

/// Tests a value under a mask.
fn is_masked(condition: Negatable<MaskedMatch>, value: u32) -> bool {
    holds(Some(&condition), |MaskedMatch(wanted)| {
        value & wanted.mask == wanted.value
    })
}

/// Asks the environment for the result of a match.
fn asked(one: &Match<'_>, context: &Context<'_, '_>) -> Tested {
    let text = one.to_string();
    context.ask(&Question::Match {
        text: &text,
        packet: context.packet(),
    })
}

/// Asks the environment for the type of each address.
///
/// With `--limit-iface-in` or `--limit-iface-out`, only addresses of the interface are
/// local.
fn addr_type(it: &AddrType, context: &Context<'_, '_>) -> Tested {
    let interface = match (it.limit_in, it.limit_out) {
        (true, _) => context.input(),
        (false, true) => context.output(),
        (false, false) => None,
    };
    let packet = context.packet();
    let sides = [
        (&it.source, packet.source()),
        (&it.destination, packet.destination()),
    ];
    for (condition, addr) in sides {
        let Some(condition) = condition else { continue };
        let kind = context.addr_type(addr, interface)?;
        let is_one = match addr {
            IpAddr::V4(_) => condition.value().contains(bit(kind)),
            IpAddr::V6(_) => is_v6_type(*condition.value(), addr, kind),
        };
        if is_one == condition.is_negated() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the type as a bit: `1 << RTN_*`.
fn bit(kind: expr::AddrType) -> AddressTypes {
    let Value::Integer(number) = Value::from(kind) else {
        return AddressTypes::empty();
    };
    let bit = u32::try_from(number)
        .ok()
        .and_then(|it| 1_u16.checked_shl(it));
    AddressTypes::from_bits_retain(bit.unwrap_or(0))
}

/// Returns whether an IPv6 address is of all wanted scopes, and of one of the wanted types
/// of routes.
fn is_v6_type(wanted: AddressTypes, addr: IpAddr, kind: expr::AddrType) -> bool {
    let routes = AddressTypes::LOCAL | AddressTypes::ANYCAST | AddressTypes::UNREACHABLE;
    let scopes = [
        (AddressTypes::MULTICAST, addr.is_multicast()),
        (
            AddressTypes::UNICAST,
            !addr.is_multicast() && !addr.is_unspecified(),
        ),
        (AddressTypes::UNSPEC, addr.is_unspecified()),
    ];
    scopes
        .iter()
        .all(|(scope, is_of)| *is_of || !wanted.contains(*scope))
        && (!wanted.intersects(routes) || wanted.intersects(routes & bit(kind)))
}

fn ip_range(it: &IpRange, context: &Context<'_, '_>) -> bool {
    let packet = context.packet();
    let sides = [
        (it.source.as_ref(), packet.source()),
        (it.destination.as_ref(), packet.destination()),
    ];
    sides
        .into_iter()
        .all(|(span, addr)| holds(span, |span| span.first <= addr && addr <= span.last))
}

/// Chooses whether the packet belongs to the sample.
fn statistic(it: &Statistic, context: &mut Context<'_, '_>) -> Tested {
    let (weights, is_negated) = match it {
        Statistic::Random(probability) => {
            let parts = u128::from(probability.value().parts());
            ([parts, (1 << 31) - parts], probability.is_negated())
        }
        Statistic::Nth { every, .. } => {
            let others = every.value().saturating_sub(1);
            ([1, others.into()], every.is_negated())
        }
    };
    Ok((context.choose(&weights)? == 0) != is_negated)
}

/// Tests the route back to the source.
fn rpfilter(it: &Rpfilter, context: &Context<'_, '_>) -> Tested {
    let is_loopback = context.input().is_some_and(|input| input.name == "lo");
    if is_loopback {
        return Ok(!it.invert);
    }
    let packet = context.packet();
    let (source, destination) = (packet.source(), packet.destination());
    if destination.is_multicast() {
        return Err(Cause::unsupported("match rpfilter of a multicast packet"));
    }
    let mark = if it.validmark { packet.mark() } else { 0 };
    let is_valid = match context.route(destination, source, mark)? {
        Route::Interface(interface) => {
            it.loose
                || context
                    .input()
                    .is_some_and(|input| input.name == interface.name)
        }
        Route::Local => it.accept_local,
        _ => false,
    };
    Ok(is_valid != it.invert)
}
