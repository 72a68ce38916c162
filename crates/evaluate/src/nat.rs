//! Network address translation.
//!
//! A rule decides the translation of a connection. Connection tracking translates packets.
//!
//! These are two functions, [`decide`] and [`translate`], because the rules run for the first
//! packet only. What they decide must be stored in the entry of the connection, and be enough to
//! translate all later packets and, inverted, all replies. As in the kernel, it is stored in the
//! tuple of the replies: what a reply looks like before its translation says what the first
//! packet looks like after it.
//!
//! ```text
//! original  192.0.2.9:4000 -> 192.0.2.1:53     never changes
//! reply     192.0.2.1:53   -> 192.0.2.9:4000   at first, the inverse of the original
//! dnat to 10.0.0.7:8053, and later masquerade to 10.0.0.1:
//! reply     10.0.0.7:8053  -> 192.0.2.9:4000   the packet leaves as its inverse
//! reply     10.0.0.7:8053  -> 10.0.0.1:4000    and now as 10.0.0.1:4000 -> 10.0.0.7:8053
//! ```
//!
//! So DNAT and SNAT compose without knowing of each other, and a packet with a known entry needs
//! no rules. `decide` is `nf_nat_setup_info`, [`choose`] is `get_unique_tuple`, and `translate` is
//! `nf_nat_packet` of `net/netfilter/nf_nat_core.c`. `hooks.rs` says when they run.
//!
//! What must stay true: no other connection is known, so "unique" is free. Where the kernel draws a
//! port at random, the port becomes unknown (`None`), and a rule that reads it afterwards is an
//! error. Enumerating 64,512 ports as outcomes would be beyond `MAX_OUTCOMES`, and rules hardly
//! ever look at them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_nftables::Verdict;
use vipline_nftables::expr::{Direction, NatFlags};

use super::cause::{Cause, MAX_OUTCOMES};
use super::interface::Interface;
use super::packet::connection::{Part, Tuple};
use super::trace::Event;
use super::walk::{Flow, Walk};

/// The addresses and ports from which the kernel chooses those of a translation.
///
/// Exhaustive: a rule states addresses, ports and flags.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NatRange {
    /// First and last address. `None`: the address remains.
    pub addrs: Option<(IpAddr, IpAddr)>,
    /// First and last port. `None`: the port remains if possible.
    pub ports: Option<(u16, u16)>,
    /// Flags.
    pub flags: NatFlags,
}

impl NatRange {
    /// Returns whether the port is drawn although the present one would do
    /// (`NF_NAT_RANGE_PROTO_RANDOM_ALL`).
    /// Both flags mean the same here: they differ at most in how the kernel draws.
    fn is_random(&self) -> bool {
        self.flags
            .intersects(NatFlags::RANDOM | NatFlags::FULLY_RANDOM)
    }
}

/// Decides the translation of the packet's connection.
pub(super) fn decide(walk: &mut Walk<'_>, part: Part, range: NatRange) -> Result<Flow, Cause> {
    // A translation ends the base chain, also one that changes nothing.
    let accept = Flow::Verdict(Verdict::Accept);
    // `hooks::translate` runs no rules without an entry, but a rule of xtables may come here from a
    // chain of another type.
    let Some(entry) = walk.tracked.entry() else {
        return Ok(accept);
    };
    // Not the original tuple: a translation of the other part may have come before, and would be
    // lost. The inverse of the reply contains it.
    let current = entry.connection.reply.inverted();
    let chosen = choose(walk, part, range, current)?;
    if let Some(entry) = walk.tracked.entry_mut() {
        let connection = &mut entry.connection;
        // Two bits with similar names. `status` (SNAT, DNAT): packets are changed, which
        // `ct status dnat` matches. `done`: no rule is asked again, also if nothing changed.
        if chosen != current {
            connection.reply = chosen.inverted();
            connection.status |= part.status();
        }
        connection.status |= part.done();
    }
    Ok(accept)
}

/// Returns the tuple after the translation: `current` with another address and port in one part.
fn choose(
    walk: &mut Walk<'_>,
    part: Part,
    range: NatRange,
    current: Tuple,
) -> Result<Tuple, Cause> {
    // A source that the range permits is kept, and then SNAT changes nothing.
    // For a destination the kernel does not do this: DNAT to a range chooses an address even if the
    // present one is in it.
    let keeps_source = part == Part::Source && !range.is_random();
    if keeps_source && is_in(range, current.source, current.source_port) {
        return Ok(current);
    }
    let mut chosen = current;
    let (addr, port) = match part {
        Part::Source => (&mut chosen.source, &mut chosen.source_port),
        Part::Destination => (&mut chosen.destination, &mut chosen.destination_port),
    };
    if let Some(addrs) = range.addrs {
        *addr = choose_addr(walk, addrs, range.flags, *addr)?;
    }
    if walk.packet.has_ports() {
        *port = choose_port(part, &range, *port);
    } else if range.ports.is_some() || range.is_random() && part == Part::Source {
        // The kernel translates the identifiers of ICMP messages as if they were ports. That is not
        // evaluated, so it must not look as if the identifier were kept. (`random` alone draws
        // nothing for a destination, see `choose_port`.)
        return Err(Cause::unsupported("a port for a protocol without ports"));
    }
    Ok(chosen)
}

/// Returns whether the range permits an address and port. An unknown port is in no range: it was
/// drawn before, and the kernel may find it outside.
fn is_in(range: NatRange, addr: IpAddr, port: Option<u16>) -> bool {
    let is_addr = |(first, last)| first <= addr && addr <= last;
    let is_port = |(first, last)| port.is_some_and(|port| first <= port && port <= last);
    range.addrs.is_none_or(is_addr) && range.ports.is_none_or(is_port)
}

/// Returns the address. All addresses of a range are equally probable.
///
/// The kernel derives it from a hash of source and destination, which spreads many of them evenly.
/// The hash is not computed here, so one outcome for each address says what can happen.
fn choose_addr(
    walk: &mut Walk<'_>,
    (first, last): (IpAddr, IpAddr),
    flags: NatFlags,
    current: IpAddr,
) -> Result<IpAddr, Cause> {
    let (low, high) = (number(first), number(last));
    if flags.contains(NatFlags::NETMAP) {
        // The range is a network, and the host part of the present address stays: with 10.1.0.0 to
        // 10.1.0.255, 192.0.2.7 becomes 10.1.0.7. Both ends differ in the bits of the host part only.
        let host = low ^ high;
        return Ok(addr(number(current) & host | low & !host, first));
    }
    // A range that ends before it begins has no address, and a difference that wraps would have
    // nearly all.
    let count = high.checked_sub(low).ok_or(Cause::Operand)?;
    // A range of IPv6 may have more addresses than `usize` can count.
    let count = usize::try_from(count).map_or(usize::MAX, |count| count.saturating_add(1));
    if count > MAX_OUTCOMES {
        return Err(Cause::Outcomes);
    }
    let at = match count {
        // Not a choice, so that the usual translation to one address adds nothing to the choices.
        1 => 0,
        count => walk.choices.choose(vec![1; count]),
    };
    Ok(addr(low + at as u128, first))
}

fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u32::from(addr).into(),
        IpAddr::V6(addr) => addr.into(),
    }
}

/// Returns the address with this number, of the same family as another. The number lies between
/// two addresses of the family, so it fits.
fn addr(number: u128, family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from(number).into(),
    }
}

/// Returns the port. `None`: the kernel chooses at random.
///
/// Assumes that no other connection has the port.
fn choose_port(part: Part, range: &NatRange, current: Option<u16>) -> Option<u16> {
    let is_random = range.is_random();
    let Some((first, last)) = range.ports else {
        // The port of a destination is the service, and is kept also with `random`. That of a source
        // only tells connections apart.
        return current.filter(|_| !is_random || part == Part::Destination);
    };
    match current {
        // One port leaves nothing to draw, also with `random`.
        _ if first == last => Some(first),
        Some(port) if (first..=last).contains(&port) && !is_random => Some(port),
        // The search for a free port begins at the first one for destinations, and at a random one
        // for sources.
        _ if part == Part::Destination && !is_random => Some(first),
        _ => None,
    }
}

/// Returns the address of an interface for packets to a destination, for `masquerade` and
/// `redirect`.
///
/// # Errors
///
/// [`Cause::Unknown`] if the hook has no such interface, or if the environment does not know the
/// address.
pub(super) fn interface_addr(
    walk: &Walk<'_>,
    interface: Option<&Interface>,
    destination: IpAddr,
) -> Result<IpAddr, Cause> {
    let interface = interface.ok_or_else(|| Cause::unknown("interface of the packet"))?;
    let unknown = || Cause::unknown(format_args!("address of interface {}", interface.name));
    let addr = walk.environment.interface_addr(interface, destination);
    addr.ok_or_else(unknown)
}

/// Translates the packet as its connection says. Returns whether the destination changed, which
/// makes the route of a packet of a process void.
///
/// `part` is what the hook translates: the destination at `prerouting` and `output`, the source at
/// `input` and `postrouting`.
pub(super) fn translate(walk: &mut Walk<'_>, part: Part) -> bool {
    let Some(entry) = walk.tracked.entry() else {
        return false;
    };
    // The destination of a reply is the former source, so SNAT of the connection is what changes it:
    // a reply to a masqueraded client is translated at `prerouting`, before its route is looked up.
    let (status, opposite) = match entry.direction {
        Direction::Original => (part.status(), Direction::Reply),
        Direction::Reply => (part.other().status(), Direction::Original),
    };
    // Not all differences between packet and target are translations: IPVS changes the reply of an
    // entry, but not this bit, and translates its packets itself.
    if !entry.connection.status.contains(status) {
        return false;
    }
    // The packet shall look like the inverse of the other direction.
    let target = entry.connection.tuple(opposite).inverted();
    let from = Tuple::of(&walk.packet);
    match part {
        Part::Source => {
            walk.packet.set_source(target.source);
            if walk.packet.has_ports() {
                walk.packet.set_source_port(target.source_port);
            }
        }
        Part::Destination => {
            walk.packet.set_destination(target.destination);
            if walk.packet.has_ports() {
                walk.packet.set_destination_port(target.destination_port);
            }
        }
    }
    // A packet over `lo` comes here twice for each part, and the second time it is translated
    // already. The trace has one event for it.
    let (to, hook) = (Tuple::of(&walk.packet), walk.place.hook);
    if from != to {
        let event = Event::Translated { hook, from, to };
        walk.trace.events.push(event);
    }
    from.destination != to.destination
}
