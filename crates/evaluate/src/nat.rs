//! Network address translation.
//!
//! A rule decides the translation of a connection. Connection tracking translates packets.
//!
//! That is the key to this file, and to `nf_nat_core.c`: a rule `dnat to 10.1.0.1:8080` changes
//! no packet. It changes the tuple of the replies that the connection expects, and each packet,
//! the first one included, is then made to fit it. For example:
//!
//! ```text
//! original   10.8.0.7:40000  -> 10.96.0.10:80
//! reply      10.96.0.10:80   -> 10.8.0.7:40000      before the rule
//! reply      10.1.0.1:8080   -> 10.8.0.7:40000      after `decide`; the status gets DST_NAT
//! ```
//!
//! `translate` inverts that reply, `10.8.0.7:40000 -> 10.1.0.1:8080`, and takes from it the half
//! that the hook translates: the destination in prerouting and output, the source in input and
//! postrouting. A packet of the reply takes its half from the original tuple, with both roles
//! exchanged.
//!
//! What must stay true: a translation is decided once for each direction of a connection
//! (`Part::done`), even if it changes nothing. Otherwise a later chain of type `nat` would decide
//! it again. And the kernel chooses what is not in the rule, such as a port when the wanted one
//! is in use, so a result may be a port that nobody knows: `None`.

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
    // Without a connection, such as after `notrack`, the kernel accepts without a translation.
    let Some(entry) = walk.tracked.entry() else {
        return Ok(accept);
    };
    // What the other part has decided so far: the source is chosen after the destination.
    let current = entry.connection.reply.inverted();
    let chosen = choose(walk, part, range, current)?;
    if let Some(entry) = walk.tracked.entry_mut() {
        let connection = &mut entry.connection;
        // A status without a change would make every packet of the connection look translated.
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
    // `get_unique_tuple` of the kernel keeps a source that fits the rule, so that a client's port
    // stays the same. A destination is chosen anew, or a range would not spread connections.
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
    // The kernel translates the number of an echo request or the key of GRE in the place of a port.
    // No mode of a proxy does that, so it is an error here, and not a wrong answer.
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
        // The bits in which first and last address differ are those of the host, which stays.
        let host = low ^ high;
        return Ok(addr(number(current) & host | low & !host, first));
    }
    let count = high.checked_sub(low).ok_or(Cause::Operand)?;
    let count = usize::try_from(count).map_or(usize::MAX, |count| count.saturating_add(1));
    // Each address is an outcome of its own, with the rest of the path evaluated for it. An IPv6
    // network would have 2^64.
    if count > MAX_OUTCOMES {
        return Err(Cause::Outcomes);
    }
    // The kernel takes a hash of the source, and of the destination unless the rule says
    // `persistent`. So each address is equally probable for a client of whom nothing is known.
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
    // A packet of the reply has its source translated where one of the original direction has its
    // destination translated, and the other way round.
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
    // A translation to what the packet already has is none for the reader of a trace.
    if from != to {
        let event = Event::Translated { hook, from, to };
        walk.trace.events.push(event);
    }
    // Only a new destination needs another route: see `hooks::translate`.
    from.destination != to.destination
}
