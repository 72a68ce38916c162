//! Network address translation.
//!
//! A rule decides the translation of a connection. Connection tracking translates packets.

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
    fn is_random(&self) -> bool {
        self.flags
            .intersects(NatFlags::RANDOM | NatFlags::FULLY_RANDOM)
    }
}

/// Decides the translation of the packet's connection.
pub(super) fn decide(walk: &mut Walk<'_>, part: Part, range: NatRange) -> Result<Flow, Cause> {
    let accept = Flow::Verdict(Verdict::Accept);
    let Some(entry) = walk.tracked.entry() else {
        return Ok(accept);
    };
    let current = entry.connection.reply.inverted();
    let chosen = choose(walk, part, range, current)?;
    if let Some(entry) = walk.tracked.entry_mut() {
        let connection = &mut entry.connection;
        if chosen != current {
            connection.reply = chosen.inverted();
            connection.status |= part.status();
        }
        connection.status |= part.done();
    }
    Ok(accept)
}

/// Returns the tuple after the translation.
fn choose(
    walk: &mut Walk<'_>,
    part: Part,
    range: NatRange,
    current: Tuple,
) -> Result<Tuple, Cause> {
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
        return Err(Cause::unsupported("a port for a protocol without ports"));
    }
    Ok(chosen)
}

fn is_in(range: NatRange, addr: IpAddr, port: Option<u16>) -> bool {
    let is_addr = |(first, last)| first <= addr && addr <= last;
    let is_port = |(first, last)| port.is_some_and(|port| first <= port && port <= last);
    range.addrs.is_none_or(is_addr) && range.ports.is_none_or(is_port)
}

/// Returns the address. All addresses of a range are equally probable.
fn choose_addr(
    walk: &mut Walk<'_>,
    (first, last): (IpAddr, IpAddr),
    flags: NatFlags,
    current: IpAddr,
) -> Result<IpAddr, Cause> {
    let (low, high) = (number(first), number(last));
    if flags.contains(NatFlags::NETMAP) {
        let host = low ^ high;
        return Ok(addr(number(current) & host | low & !host, first));
    }
    let count = high.checked_sub(low).ok_or(Cause::Operand)?;
    let count = usize::try_from(count).map_or(usize::MAX, |count| count.saturating_add(1));
    if count > MAX_OUTCOMES {
        return Err(Cause::Outcomes);
    }
    let at = match count {
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

/// Returns the address with this number, of the same family as another.
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
        return current.filter(|_| !is_random || part == Part::Destination);
    };
    match current {
        _ if first == last => Some(first),
        Some(port) if (first..=last).contains(&port) && !is_random => Some(port),
        _ if part == Part::Destination && !is_random => Some(first),
        _ => None,
    }
}

/// Returns the address of an interface for packets to a destination.
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

/// Translates the packet as its connection says. Returns whether the destination changed.
pub(super) fn translate(walk: &mut Walk<'_>, part: Part) -> bool {
    let Some(entry) = walk.tracked.entry() else {
        return false;
    };
    let (status, opposite) = match entry.direction {
        Direction::Original => (part.status(), Direction::Reply),
        Direction::Reply => (part.other().status(), Direction::Original),
    };
    if !entry.connection.status.contains(status) {
        return false;
    }
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
    let (to, hook) = (Tuple::of(&walk.packet), walk.place.hook);
    if from != to {
        let event = Event::Translated { hook, from, to };
        walk.trace.events.push(event);
    }
    from.destination != to.destination
}
