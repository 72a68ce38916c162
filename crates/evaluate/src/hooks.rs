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
//! The problem: what a rule sees depends on what ran before it. A chain at `forward` sees the
//! destination after DNAT, because `prerouting` came first, and the route is that of the new
//! destination. Within one hook, a chain with priority -150 sees it before DNAT, one with -50
//! after. So this file has no rules, only the order of the kernel: which hooks a packet passes
//! ([`receive`] and [`send`]), and at a hook the base chains, connection tracking, translations
//! and functions of other modules by priority ([`steps`]).
//!
//! For example, a packet from `192.0.2.9:4000` to the Service `192.0.2.1:53`, with the rule
//! `udp dport 53 dnat to 10.0.0.7:8053`:
//!
//! ```text
//! prerouting  -200  connection tracking: a new entry, its reply is 192.0.2.1:53 -> 192.0.2.9:4000
//!             -100  translation: the rule changes the reply to 10.0.0.7:8053 -> 192.0.2.9:4000,
//!                   and the packet to the inverse of it: 192.0.2.9:4000 -> 10.0.0.7:8053
//! route             of 10.0.0.7, through eth1
//! forward        0  chains of type filter see 10.0.0.7:8053 and a TTL that is one less
//! postrouting  100  translation of the source: no rule, so the address is kept
//!                   at the end, the entry is confirmed: others can see it
//! ```
//!
//! Each step returns `None` if the packet goes on and its end otherwise, and each caller returns
//! an end at once: nothing may run after a drop.
//!
//! What must stay true: the tests `nftables` and `iptables` send random packets through
//! namespaces and compare the counter of every rule, so a chain that runs too early, twice or not
//! at all fails there. Losses and routes that discard have unit tests.

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

// linux/netfilter_ipv4.h: enum nf_ip_hook_priorities, of connection tracking and its translations.
// enum nf_ip6_hook_priorities has the same numbers. The position of a translation among the other
// chains is this one, whatever priorities its own chains have.
const NF_IP_PRI_CONNTRACK: i32 = -200;
const NF_IP_PRI_NAT_DST: i32 = -100;
const NF_IP_PRI_NAT_SRC: i32 = 100;

// linux/in.h
const IPPROTO_TCP: u8 = 6;

/// The name of the loopback interface. The kernel creates it in each network namespace, and its
/// index there is 1.
const LOOPBACK: &str = "lo";

/// Sends the packet through all hooks on its path.
pub(super) fn travel(walk: &mut Walk<'_>) -> Result<Disposition, Error> {
    // A packet that no interface received is one of a process of the host.
    match walk.packet.input.clone() {
        Some(input) => receive(walk, &input),
        None => send(walk),
    }
}

fn receive(walk: &mut Walk<'_>, input: &Interface) -> Result<Disposition, Error> {
    // Before the first hook: an interface that is down hands no packet to any chain.
    if let Some(loss) = walk.environment.receive_loss(input) {
        return Ok(lost(walk, loss));
    }
    for hook in [Hook::Ingress, Hook::Prerouting] {
        if let Some(end) = pass(walk, hook, Some(input), None)? {
            return Ok(end);
        }
    }
    // After `prerouting`, so the route is that of the translated destination and of the mark that
    // a rule set.
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
        // The packet ends here anyway, and the missing route is the better reason: an operator who
        // reads "not forwarded" would set a sysctl, and the packet would still be lost.
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
            // After the last chain: the entry of a packet that a rule drops is discarded with it.
            confirm(walk, end.is_none());
            Ok(end.unwrap_or(Disposition::Delivered))
        }
        Route::Interface(output) => {
            // Before hook `forward`, as `ip_forward` of the kernel does it: its rules see the lower
            // TTL, and never a packet that has expired. A delivered packet may have a TTL of 1.
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
    // Before any rule: a process gets the error of a missing route although a rule at `output`
    // would have translated the destination to one that has a route.
    let mut output = match find_output(walk)? {
        Ok(output) => output,
        Err(end) => return Ok(end),
    };
    if let Some(end) = pass(walk, Hook::Output, None, Some(&output))? {
        return Ok(end);
    }
    // After the whole hook, although the kernel looks the route up within it: its chains get the
    // interface that was found before the hook until the end, so none of them sees a difference.
    if walk.is_rerouted {
        output = match find_output(walk)? {
            Ok(output) => output,
            // TCP ignores the error of the second lookup, and repeats the packet until its timeout:
            // the process gets no error, so this is a drop. A datagram fails at once.
            Err(Disposition::Rejected(_)) if walk.packet.protocol() == IPPROTO_TCP => {
                return Ok(Disposition::Dropped);
            }
            Err(end) => return Ok(end),
        };
    }
    if output.name != LOOPBACK {
        return leave(walk, None, output);
    }
    // Not `leave`: the packet comes back. Chains at hook `egress` of `lo` are not evaluated.
    if let Some(end) = pass(walk, Hook::Postrouting, None, Some(&output))? {
        return Ok(end);
    }
    // Here the entry is confirmed, as on the way out through any other interface: a rule at
    // `prerouting` or `input` that drops the packet does not discard it any more.
    confirm(walk, true);
    // The packet keeps its entry of connection tracking, so `track` leaves it alone, and the
    // translations that are decided are not decided again by `prerouting` and `input`.
    walk.packet.input = Some(output.clone());
    receive(walk, &output)
}

/// Returns the output interface of a packet of a process, or the end of its path.
///
/// The inner error is an end that the kernel decides, the outer one is an evaluation that fails.
fn find_output(walk: &mut Walk<'_>) -> Result<Result<Interface, Disposition>, Error> {
    Ok(match route(walk, None)? {
        Route::None => Err(Disposition::Unroutable),
        // A blackhole is silent for received packets only. A process gets error `EINVAL`, and the
        // nearest end is that of an unreachable host: it also tells the sender.
        Route::Discard(Discard::Blackhole, _) => Err(discarded(walk, Discard::Unreachable)),
        Route::Discard(kind, _) => Err(discarded(walk, kind)),
        // Also an address of eth0: a packet to the host itself goes through `lo`.
        Route::Local => Ok(Interface::new(LOOPBACK).with_index(1)),
        Route::Interface(interface) => Ok(interface),
    })
}

/// Returns the end of the path of a packet that its route discards.
///
/// The codes are those of `ip_error` and `ip6_pkt_discard`, which differ between the families:
/// ICMP has "host unreachable" (1) and "filtered" (13), ICMPv6 "no route" (0) and "administratively
/// prohibited" (1).
fn discarded(walk: &Walk<'_>, kind: Discard) -> Disposition {
    let is_v4 = walk.packet.family() == Family::Ip;
    match kind {
        Discard::Unreachable => Disposition::Rejected(RejectType::Icmp(u8::from(is_v4))),
        Discard::Prohibit => Disposition::Rejected(RejectType::Icmp(if is_v4 { 13 } else { 1 })),
        Discard::Blackhole => Disposition::Dropped,
        // The lookup goes on in the next routing table. The environment says that none has a
        // route, otherwise it would have returned that one.
        Discard::Throw => Disposition::Unroutable,
    }
}

/// Ends the path of a packet that the host loses.
///
/// The reason is only in the trace: for the sender, a link that is down is a drop like others.
fn lost(walk: &mut Walk<'_>, loss: Loss) -> Disposition {
    walk.trace.events.push(Event::Lost(loss));
    Disposition::Dropped
}

/// Sends the packet through an interface, which is not `lo`.
fn leave(
    walk: &mut Walk<'_>,
    input: Option<&Interface>,
    output: Interface,
) -> Result<Disposition, Error> {
    let end = pass(walk, Hook::Postrouting, input, Some(&output))?;
    // Before the link and hook `egress`: a packet that is lost there leaves an entry behind, which
    // later packets find.
    confirm(walk, end.is_none());
    if let Some(end) = end {
        return Ok(end);
    }
    if let Some(loss) = walk.environment.send_loss(&output) {
        return Ok(lost(walk, loss));
    }
    // A device knows only where the packet leaves: chains at `egress` have no input interface.
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

/// Looks up a route, which need not be that of the destination in the packet: IPVS sends a packet
/// to a real server or tunnel without changing the address that rules see.
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
///
/// Connection tracking and translations are steps of their own and not chains, because they run
/// also if the ruleset has no chain for them.
enum Step {
    Chain(Arc<Installed>),
    Conntrack,
    Nat(Part),
    /// A function with its priority. One function has several places at a hook: IPVS translates
    /// replies at 98 and schedules requests at 99 of `input`, and the priority says which it is.
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
        // That of an earlier hook, which nobody reads: each rule sets its own before it looks up a
        // set.
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
    // A route of the host's own (`None` as input), also for a received packet: IPVS looks it up
    // like one of a process, and the packet gets no loss of forwarding or of the reverse path.
    let output = match route_to(walk, next, None)? {
        // A real server on this host: the packet goes on to it at the current hook.
        Route::Local => return Ok(None),
        Route::None => return Ok(Some(Disposition::Unroutable)),
        Route::Discard(kind, _) => return Ok(Some(discarded(walk, kind))),
        Route::Interface(output) => output,
    };
    // The hook has an input only for received packets: those pass IPVS instead of `forward`, and
    // lose their hop here. A packet of a process keeps its TTL.
    let is_received = walk.place.input.is_some();
    if is_received && !walk.packet.decrement_ttl() {
        return Ok(Some(Disposition::Expired));
    }
    // From here on the end is returned, so `send` does not route again.
    if let Some(end) = pass(walk, Hook::Output, None, Some(&output))? {
        return Ok(Some(end));
    }
    leave(walk, None, output).map(Some)
}

/// Returns what the hook calls, in order.
///
/// Chains of type `nat` are no steps: [`translate`] calls them. Their priority orders them among
/// each other, but not among filters: a chain of type `nat` with priority 50 at `prerouting` runs
/// at -100, before a filter with priority 0.
///
/// The sort is stable and chains are collected first, so a base chain with the priority of
/// connection tracking or of a translation precedes it. The kernel would run first what was
/// registered last, which a ruleset does not say; the crate lists this as a difference.
fn steps(walk: &Walk<'_>) -> Vec<Step> {
    let hook = walk.place.hook;
    let mut steps: Vec<(i32, Step)> = walk
        .base_chains()
        .iter()
        .filter(|chain| !chain.is_nat() && sees(walk, chain))
        .map(|chain| (chain.priority(), Step::Chain(Arc::clone(chain))))
        .collect();
    match hook {
        // The two hooks at which a packet enters, from outside and from a process. The destination
        // is translated here, before the route is looked up (or looked up again, see `send`).
        Hook::Prerouting | Hook::Output => {
            steps.push((NF_IP_PRI_CONNTRACK, Step::Conntrack));
            steps.push((NF_IP_PRI_NAT_DST, Step::Nat(Part::Destination)));
        }
        // The two at which it ends. The source is translated last, so all other rules see the
        // client and not the address that masquerades it.
        Hook::Input | Hook::Postrouting => steps.push((NF_IP_PRI_NAT_SRC, Step::Nat(Part::Source))),
        // Forwarded packets are tracked before, and those at a device later or not at all. A hook
        // that is added here would track a packet at a place where the kernel does not.
        _ => {}
    }
    for function in walk.index.functions() {
        for (_, priority) in function.places().iter().filter(|(at, _)| *at == hook) {
            steps.push((*priority, Step::Function(Arc::clone(function), *priority)));
        }
    }
    steps.sort_by_key(|(priority, _)| *priority);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// Returns whether a base chain sees packets of the interface at the hook.
///
/// Chains at a device name their devices, and a trailing `*` stands for any rest of the name.
/// All other hooks see packets of all interfaces.
fn sees(walk: &Walk<'_>, chain: &Installed) -> bool {
    let interface = match walk.place.hook {
        Hook::Ingress => &walk.place.input,
        Hook::Egress => &walk.place.output,
        _ => return true,
    };
    // Never empty: `receive` passes the interface of `ingress`, and `leave` that of `egress`.
    let name = interface.as_ref().map_or("", |interface| &interface.name);
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

/// Evaluates a base chain. A chain of type `route` routes changed packets again, a chain of type
/// `filter` at the same hook does not: there a new mark does not change the route.
fn run(walk: &mut Walk<'_>, chain: &Arc<Installed>) -> Result<Option<Disposition>, Error> {
    let base = chain.chain.base.as_ref();
    let is_route = base.is_some_and(|base| base.kind == ChainType::Route);
    let routed = |walk: &Walk<'_>| {
        let packet = &walk.packet;
        (packet.source(), packet.destination(), packet.mark)
    };
    // What the chain changed, not what differs from the start: a change by a chain of type
    // `filter` before it stays without effect.
    let before = routed(walk);
    let end = chains::run(walk, chain)?;
    walk.is_rerouted |= is_route && routed(walk) != before;
    Ok(end)
}

/// Assigns the packet to a connection, as the packet says: an evaluation has no table of them.
fn track(walk: &mut Walk<'_>) {
    // `notrack` in a chain before -200 decided already, and a packet that comes back over `lo` has
    // its entry. Without this line, `notrack` had no effect.
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
///
/// This is `nf_nat_inet_fn` of `net/netfilter/nf_nat_core.c`. Rules see only the first packet of
/// a connection; all others, and replies, are translated as the entry says ([`nat::translate`]).
/// [`nat::decide`] is what a rule of these chains calls.
fn translate(walk: &mut Walk<'_>, part: Part) -> Result<Option<Disposition>, Error> {
    // Without an entry there is nothing to remember a translation in: packets that are untracked
    // or invalid pass as they are, and their rules of type `nat` do not run.
    let Some(entry) = walk.tracked.entry() else {
        return Ok(None);
    };
    let (state, status) = (entry.state, entry.connection.status);
    // An ICMP error carries the header of the packet that caused it, and the kernel translates that
    // one as well. Packets here have no such header, so this is an error instead of a wrong packet.
    let is_icmp = [1, 58].contains(&walk.packet.protocol()); // ICMP, ICMPv6
    if state == CtState::RELATED && is_icmp && status.intersects(CtStatus::SNAT | CtStatus::DNAT) {
        return Err(Cause::unsupported("the translation of an ICMP error").into());
    }
    let is_first = state == CtState::NEW || state == CtState::RELATED;
    let family: Family = walk.packet.family();
    // The kernel registers translation with the first chain of type `nat` of a family. Without
    // one, not even the bits "decided" are set, which callers see in the entry of the outcome.
    if is_first && !status.contains(part.done()) && walk.index.has_nat(family) {
        let chains = walk.base_chains();
        for chain in chains.iter().filter(|chain| chain.is_nat()) {
            if let Some(end) = chains::run(walk, chain)? {
                return Ok(Some(end));
            }
            // The first rule that translates wins, also one that keeps the address. A later chain
            // would translate the translated packet again.
            let entry = walk.tracked.entry();
            if entry.is_some_and(|entry| entry.connection.status.contains(part.done())) {
                break;
            }
        }
        // That no rule translates is a decision, too: it holds for the connection. Otherwise
        // a packet over `lo`, which passes two hooks for each part, would run the rules twice.
        if let Some(entry) = walk.tracked.entry_mut() {
            entry.connection.status |= part.done();
        }
    }
    let is_changed = nat::translate(walk, part);
    // Only at `output` is the route older than the translation. At `prerouting` it is looked up
    // later, and at `input` the packet has arrived.
    walk.is_rerouted |= is_changed && walk.place.hook == Hook::Output;
    Ok(None)
}
