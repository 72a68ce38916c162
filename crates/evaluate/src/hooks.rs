//! The path of a packet through the hooks.
//!
//! ```text
//! received ─► ingress ─► prerouting ─► route ─┬─► input ─► delivered
//!                                             └─► forward ─┐
//! sent by a process ─► route ─► output ────────────────────┴─► postrouting ─► egress ─► sent
//! ```
//!
//! A packet of a process to an address of the host itself passes `output` and `postrouting`,
//! and then is received through the interface `lo`.
//!
//! At each hook the kernel calls functions in order of their priorities: base chains, connection
//! tracking, address translation, and those of other modules such as IPVS. [`steps`] makes that
//! list, and [`pass`] walks it. For example, prerouting of a node in mode nftables:
//!
//! ```text
//! -200  connection tracking    assigns the packet to a connection
//! -150  chains of type filter  see the address of the Service (`mangle`)
//! -100  destination            the chains of type nat decide, then the packet is translated
//!    0  chains of type filter  see the endpoint (`filter`)
//! ```
//!
//! So the priority of a chain decides which addresses it sees, and why a firewall of others may
//! or may not match the traffic of a Service.
//!
//! What must stay true: a packet that a process sends to itself keeps its connection when it is
//! received, as in the kernel, where the buffer carries it. That is why `track` does nothing for
//! a packet that is tracked already, and translations are decided once for both passes.

use std::net::IpAddr;
use std::sync::Arc;

use vipline_nftables::expr::{CtState, CtStatus, Direction, RejectType};
use vipline_nftables::{ChainType, Family, Hook};

use super::cause::Cause;
use super::chains;
use super::context::Context;
use super::environment::{Discard, Route, RouteQuery};
use super::error::Error;
use super::function::{HookFunction, HookVerdict};
use super::index::Installed;
use super::interface::Interface;
use super::loss::Loss;
use super::nat;
use super::outcome::Disposition;
use super::packet::connection::{Connection, Entry, Part, Tracked, Tracking};
use super::trace::Event;
use super::walk::{Place, Walk};

// linux/netfilter_ipv4.h: enum nf_ip_hook_priorities, of connection tracking and its translations
const NF_IP_PRI_CONNTRACK: i32 = -200;
const NF_IP_PRI_NAT_DST: i32 = -100;
const NF_IP_PRI_NAT_SRC: i32 = 100;

// linux/in.h
const IPPROTO_TCP: u8 = 6;

/// The name of the loopback interface.
const LOOPBACK: &str = "lo";

/// Sends the packet through all hooks on its path.
pub(super) fn travel(walk: &mut Walk<'_>) -> Result<Disposition, Error> {
    match walk.packet.input.clone() {
        Some(input) => receive(walk, &input),
        None => send(walk),
    }
}

fn receive(walk: &mut Walk<'_>, input: &Interface) -> Result<Disposition, Error> {
    if let Some(loss) = walk.environment.receive_loss(input) {
        return Ok(lost(walk, loss));
    }
    // `rp_filter` loses packets later, with the route (`route_loss`).
    for hook in [Hook::Ingress, Hook::Prerouting] {
        if let Some(end) = pass(walk, hook, Some(input), None)? {
            return Ok(end);
        }
    }
    let route = route(walk, Some(input))?;
    let query = RouteQuery {
        destination: walk.packet.destination(),
        source: walk.packet.source(),
        mark: walk.packet.mark,
        input: Some(input),
    };
    let loss = match route {
        Route::Local | Route::Interface(_) => {
            let is_local = route == Route::Local;
            walk.environment.route_loss(&query, is_local)
        }
        Route::None | Route::Discard(..) => None,
    };
    if let Some(loss) = loss {
        return Ok(lost(walk, loss));
    }
    match route {
        Route::None => Ok(Disposition::Unroutable),
        Route::Discard(kind, _) => Ok(discarded(walk, kind)),
        Route::Local => {
            let end = pass(walk, Hook::Input, Some(input), None)?;
            confirm(walk, end.is_none());
            Ok(end.unwrap_or(Disposition::Delivered))
        }
        Route::Interface(output) => {
            // `ip_forward` looks at the TTL before the hook, so a rule that drops the packet does
            // not hide that it has expired.
            if !walk.packet.decrement_ttl() {
                return Ok(Disposition::Expired);
            }
            if let Some(end) = pass(walk, Hook::Forward, Some(input), Some(&output))? {
                return Ok(end);
            }
            leave(walk, Some(input), output)
        }
    }
}

fn send(walk: &mut Walk<'_>) -> Result<Disposition, Error> {
    let mut output = match find_output(walk)? {
        Ok(output) => output,
        Err(end) => return Ok(end),
    };
    if let Some(end) = pass(walk, Hook::Output, None, Some(&output))? {
        return Ok(end);
    }
    // The route was looked up for the address of the Service, which no interface may have.
    if walk.is_rerouted {
        // TCP ignores the error of the second lookup, and repeats the packet.
        output = match find_output(walk)? {
            Ok(output) => output,
            Err(Disposition::Rejected(_)) if walk.packet.protocol() == IPPROTO_TCP => {
                return Ok(Disposition::Dropped);
            }
            Err(end) => return Ok(end),
        };
    }
    // `leave` has hook egress, and a packet that the host sends to itself does not end there.
    if output.name != LOOPBACK {
        return leave(walk, None, output);
    }
    if let Some(end) = pass(walk, Hook::Postrouting, None, Some(&output))? {
        return Ok(end);
    }
    // The buffer carries the entry, so what receives the packet sees a confirmed one.
    confirm(walk, true);
    walk.packet.input = Some(output.clone());
    receive(walk, &output)
}

/// Returns the output interface of a packet of a process, or the end of its path.
fn find_output(walk: &mut Walk<'_>) -> Result<Result<Interface, Disposition>, Error> {
    Ok(match route(walk, None)? {
        Route::None => Err(Disposition::Unroutable),
        // The process gets error `EINVAL`.
        Route::Discard(Discard::Blackhole, _) => Err(discarded(walk, Discard::Unreachable)),
        Route::Discard(kind, _) => Err(discarded(walk, kind)),
        Route::Local => Ok(Interface::new(LOOPBACK).with_index(1)),
        Route::Interface(interface) => Ok(interface),
    })
}

/// Returns the end of the path of a packet that its route discards.
///
/// The codes are those of `ip_error` and `ip6_pkt_discard`.
fn discarded(walk: &Walk<'_>, kind: Discard) -> Disposition {
    let is_v4 = walk.packet.family() == Family::Ip;
    match kind {
        Discard::Unreachable => Disposition::Rejected(RejectType::Icmp(u8::from(is_v4))),
        Discard::Prohibit => Disposition::Rejected(RejectType::Icmp(if is_v4 { 13 } else { 1 })),
        Discard::Blackhole => Disposition::Dropped,
        Discard::Throw => Disposition::Unroutable,
    }
}

/// Ends the path of a packet that the host loses.
fn lost(walk: &mut Walk<'_>, loss: Loss) -> Disposition {
    walk.trace.events.push(Event::Lost(loss));
    Disposition::Dropped
}

/// Sends the packet through an interface.
fn leave(
    walk: &mut Walk<'_>,
    input: Option<&Interface>,
    output: Interface,
) -> Result<Disposition, Error> {
    let end = pass(walk, Hook::Postrouting, input, Some(&output))?;
    confirm(walk, end.is_none());
    if let Some(end) = end {
        return Ok(end);
    }
    if let Some(loss) = walk.environment.send_loss(&output) {
        return Ok(lost(walk, loss));
    }
    let end = pass(walk, Hook::Egress, None, Some(&output))?;
    Ok(end.unwrap_or(Disposition::Sent(output)))
}

/// Records that the packet left the host or reached a process: only then a new entry of
/// connection tracking becomes visible.
fn confirm(walk: &mut Walk<'_>, is_accepted: bool) {
    if let Some(entry) = walk.tracked.entry_mut().filter(|_| is_accepted) {
        entry.connection.status |= CtStatus::CONFIRMED;
    }
}

fn route(walk: &mut Walk<'_>, input: Option<&Interface>) -> Result<Route, Error> {
    let destination = walk.packet.destination();
    route_to(walk, destination, input)
}

fn route_to(
    walk: &mut Walk<'_>,
    destination: IpAddr,
    input: Option<&Interface>,
) -> Result<Route, Error> {
    let query = RouteQuery {
        destination,
        source: walk.packet.source(),
        mark: walk.packet.mark,
        input,
    };
    let unknown = || Cause::unknown(format_args!("route to {}", query.destination));
    let route = walk.environment.route(&query).ok_or_else(unknown)?;
    walk.trace.events.push(Event::Routed(route.clone()));
    Ok(route)
}

/// Something that a hook calls.
enum Step {
    Chain(Arc<Installed>),
    Conntrack,
    Nat(Part),
    /// A function with its priority.
    Function(Arc<dyn HookFunction>, i32),
}

/// Passes the packet through a hook. Returns `None` if it is accepted.
fn pass(
    walk: &mut Walk<'_>,
    hook: Hook,
    input: Option<&Interface>,
    output: Option<&Interface>,
) -> Result<Option<Disposition>, Error> {
    walk.place = Place {
        hook,
        input: input.cloned(),
        output: output.cloned(),
        table: walk.place.table.clone(),
    };
    for step in steps(walk) {
        let end = match step {
            Step::Chain(chain) => run(walk, &chain)?,
            Step::Nat(part) => translate(walk, part)?,
            Step::Function(function, priority) => {
                let verdict = function.call(priority, &mut Context::new(walk))?;
                follow(walk, verdict)?
            }
            Step::Conntrack => {
                track(walk);
                None
            }
        };
        if end.is_some() {
            return Ok(end);
        }
    }
    Ok(None)
}

/// Continues as a function decided. Returns `None` if the hook continues.
fn follow(walk: &mut Walk<'_>, verdict: HookVerdict) -> Result<Option<Disposition>, Error> {
    let next = match verdict {
        HookVerdict::Accept => return Ok(None),
        HookVerdict::End(end) => return Ok(Some(end)),
        HookVerdict::Send(next) => next,
    };
    let output = match route_to(walk, next, None)? {
        Route::Local => return Ok(None),
        Route::None => return Ok(Some(Disposition::Unroutable)),
        Route::Discard(kind, _) => return Ok(Some(discarded(walk, kind))),
        Route::Interface(output) => output,
    };
    let is_received = walk.place.input.is_some();
    if is_received && !walk.packet.decrement_ttl() {
        return Ok(Some(Disposition::Expired));
    }
    walk.is_rerouted = false;
    if let Some(end) = pass(walk, Hook::Output, None, Some(&output))? {
        return Ok(Some(end));
    }
    leave(walk, None, output).map(Some)
}

/// Returns what the hook calls, in order.
///
/// Chains of type `nat` are called by connection tracking, whatever their priority is.
fn steps(walk: &Walk<'_>) -> Vec<Step> {
    let hook = walk.place.hook;
    let chains = walk.base_chains();
    let chains = chains.iter().filter(|it| !it.is_nat() && sees(walk, it));
    let mut steps: Vec<(i32, Step)> = chains
        .map(|it| (it.priority(), Step::Chain(it.clone())))
        .collect();
    match hook {
        Hook::Prerouting | Hook::Output => {
            steps.push((NF_IP_PRI_CONNTRACK, Step::Conntrack));
            steps.push((NF_IP_PRI_NAT_DST, Step::Nat(Part::Destination)));
        }
        Hook::Input | Hook::Postrouting => steps.push((NF_IP_PRI_NAT_SRC, Step::Nat(Part::Source))),
        // Forwarded packets are tracked before, and those at a device later or not at all.
        _ => {}
    }
    for function in walk.index.functions() {
        for (_, priority) in function.places().iter().filter(|(at, _)| *at == hook) {
            steps.push((*priority, Step::Function(Arc::clone(function), *priority)));
        }
    }
    // Stable: chains of equal priorities keep the order of the index, which is the one in which
    // the kernel calls them if it is known (`Order`).
    steps.sort_by_key(|(priority, _)| *priority);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// Returns whether a base chain sees packets of the interface at the hook.
fn sees(walk: &Walk<'_>, chain: &Installed) -> bool {
    let interface = match walk.place.hook {
        Hook::Ingress => &walk.place.input,
        Hook::Egress => &walk.place.output,
        _ => return true,
    };
    let name = interface.as_ref().map_or("", |it| &it.name);
    let base = chain.chain.base.as_ref();
    base.is_some_and(|base| {
        base.devices
            .iter()
            .any(|device| match device.as_str().strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == device.as_str(),
            })
    })
}

/// Evaluates a base chain. A chain of type `route` routes changed packets again.
fn run(walk: &mut Walk<'_>, chain: &Arc<Installed>) -> Result<Option<Disposition>, Error> {
    let base = chain.chain.base.as_ref();
    let is_route = base.is_some_and(|base| base.kind == ChainType::Route);
    let routed = |walk: &Walk<'_>| {
        let packet = &walk.packet;
        (packet.source(), packet.destination(), packet.mark)
    };
    let before = routed(walk);
    let end = chains::run(walk, chain)?;
    walk.is_rerouted |= is_route && routed(walk) != before;
    Ok(end)
}

/// Assigns the packet to a connection.
fn track(walk: &mut Walk<'_>) {
    if walk.tracked != Tracked::Unseen {
        return;
    }
    walk.tracked = match walk.packet.tracking.clone() {
        Tracking::Invalid => Tracked::Invalid,
        Tracking::Untracked => Tracked::Untracked,
        Tracking::New => Tracked::Entry(Entry {
            connection: Connection::new(&walk.packet),
            state: CtState::NEW,
            direction: Direction::Original,
        }),
        Tracking::Known {
            connection,
            state,
            direction,
        } => Tracked::Entry(Entry {
            connection: *connection,
            state,
            direction,
        }),
    };
}

/// Evaluates the chains of type `nat` if the translation of the connection is undecided,
/// and translates the packet.
fn translate(walk: &mut Walk<'_>, part: Part) -> Result<Option<Disposition>, Error> {
    let Some(entry) = walk.tracked.entry() else {
        return Ok(None);
    };
    let (state, status) = (entry.state, entry.connection.status);
    let is_icmp = [1, 58].contains(&walk.packet.protocol());
    if state == CtState::RELATED && is_icmp && status.intersects(CtStatus::SNAT | CtStatus::DNAT) {
        return Err(Cause::unsupported("the translation of an ICMP error").into());
    }
    // The kernel consults the rules only for the first packet of a connection, and only if there is
    // any chain of type nat: without one, the function is not even registered.
    let is_first = state == CtState::NEW || state == CtState::RELATED;
    let family: Family = walk.packet.family();
    if is_first && !status.contains(part.done()) && walk.index.has_nat(family) {
        let chains = walk.base_chains();
        for chain in chains.iter().filter(|it| it.is_nat()) {
            if let Some(end) = chains::run(walk, chain)? {
                return Ok(Some(end));
            }
            let entry = walk.tracked.entry();
            if entry.is_some_and(|it| it.connection.status.contains(part.done())) {
                break;
            }
        }
        // No rule matched. The kernel decides then that nothing is translated (a null binding), and
        // a rule that is added later does not concern this connection: that is why stale flows exist.
        if let Some(entry) = walk.tracked.entry_mut() {
            entry.connection.status |= part.done();
        }
    }
    let is_changed = nat::translate(walk, part);
    walk.is_rerouted |= is_changed && walk.place.hook == Hook::Output;
    Ok(None)
}
