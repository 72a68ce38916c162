//! Schedulers: `net/netfilter/ipvs/ip_vs_*.c`.

use vipline_ipvs::{Connections, Scheduler, VirtualServer};

use super::balancer::{Packet, Real};
use super::hash;

/// A real server with its position in the table of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Available<'b> {
    pub(super) index: usize,
    pub(super) real: &'b Real,
    /// Whether the real server has a weight and is not overloaded.
    pub(super) is_available: bool,
}

/// Result of a scheduler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Selection {
    /// No real server is available.
    None,
    /// Indices of real servers, with the weight of their share.
    Shares(Vec<(usize, u64)>),
    /// The state that decides is unknown.
    Possible,
}

impl From<Option<usize>> for Selection {
    fn from(selected: Option<usize>) -> Self {
        selected.map_or(Self::None, |index| Self::Shares(vec![(index, 1)]))
    }
}

impl Available<'_> {
    pub(super) fn weight(&self) -> u64 {
        self.real.server.weight.into()
    }
}

/// Returns whether the scheduler uses a table with all real servers.
pub(super) fn is_hash(scheduler: &Scheduler) -> bool {
    let hashes = [
        Scheduler::SourceHash,
        Scheduler::DestinationHash,
        Scheduler::Maglev,
    ];
    hashes.contains(scheduler)
}

/// Selects real servers for a new connection.
///
/// `reals` are the available real servers, or all for a scheduler with a table.
pub(super) fn schedule(
    server: &VirtualServer,
    reals: &[Available<'_>],
    packet: &Packet,
    is_ordered: bool,
) -> Selection {
    if !reals.iter().any(|real| real.is_available) {
        return Selection::None;
    }
    let shares = |weight: fn(&Available<'_>) -> u64| {
        Selection::Shares(reals.iter().map(|it| (it.index, weight(it))).collect())
    };
    match server.scheduler {
        Scheduler::RoundRobin => shares(|_| 1),
        Scheduler::WeightedRoundRobin => shares(|it| it.weight()),
        Scheduler::Failover => {
            let highest = reals.iter().map(Available::weight).max();
            let mut all = reals.iter().filter(|it| Some(it.weight()) == highest);
            match (all.next(), all.next(), is_ordered) {
                (_, Some(_), false) => Selection::Possible,
                (first, ..) => first.map(|it| it.index).into(),
            }
        }
        Scheduler::SourceHash if is_ordered => hash::source(server.flags, reals, packet).into(),
        Scheduler::DestinationHash if is_ordered => hash::destination(reals, packet).into(),
        Scheduler::Maglev if is_ordered => hash::maglev(server.flags, reals, packet),
        _ => by_connections(server, reals, is_ordered),
    }
}

/// Selects real servers by their numbers of connections.
fn by_connections(server: &VirtualServer, reals: &[Available<'_>], is_ordered: bool) -> Selection {
    let counted = reals.iter().map(|it| Some((*it, it.real.connections?)));
    let Some(counted) = counted.collect::<Option<Vec<_>>>().filter(|_| is_ordered) else {
        return Selection::Possible;
    };
    let weighted = |load: fn(&Connections) -> u64| {
        // A real server replaces the previous one only if it is less loaded.
        let is_less = |one: &Counted<'_>, other: &Counted<'_>| {
            load(&one.1) * other.0.weight() < load(&other.1) * one.0.weight()
        };
        first_by(&counted, is_less)
    };
    match server.scheduler {
        Scheduler::LeastConnections => {
            first_by(&counted, |one, other| overhead(&one.1) < overhead(&other.1))
        }
        Scheduler::WeightedLeastConnections => weighted(overhead),
        Scheduler::ShortestDelay => weighted(delay),
        Scheduler::NeverQueue => {
            let idle = counted.iter().find(|(_, count)| count.active == 0);
            match idle {
                Some((real, _)) => Some(real.index).into(),
                None => weighted(delay),
            }
        }
        Scheduler::Overflow => {
            let has_room = |(real, count): &&Counted<'_>| u64::from(count.active) < real.weight();
            let free: Vec<Counted<'_>> = counted.iter().filter(has_room).copied().collect();
            first_by(&free, |one, other| one.0.weight() > other.0.weight())
        }
        Scheduler::PowerOfTwo => Selection::Shares(two_choices(&counted)),
        _ => Selection::Possible,
    }
}

/// A real server with its connection counts.
type Counted<'b> = (Available<'b>, Connections);

/// Returns the first real server to which no other is preferred.
fn first_by(
    counted: &[Counted<'_>],
    is_preferred: impl Fn(&Counted<'_>, &Counted<'_>) -> bool,
) -> Selection {
    let mut best: Option<&Counted<'_>> = None;
    for one in counted {
        if best.is_none_or(|best| is_preferred(one, best)) {
            best = Some(one);
        }
    }
    best.map(|(real, _)| real.index).into()
}

/// `ip_vs_dest_conn_overhead`: an active connection costs as much as 256 inactive ones.
fn overhead(count: &Connections) -> u64 {
    (u64::from(count.active) << 8) + u64::from(count.inactive)
}

/// Number of active connections with the new one.
fn delay(count: &Connections) -> u64 {
    u64::from(count.active) + 1
}

/// Returns the shares of the less loaded of two random real servers.
///
/// A random number from 0 to the sum of all weights selects each of the two. So the first
/// real server has one chance more than its weight.
fn two_choices(counted: &[Counted<'_>]) -> Vec<(usize, u64)> {
    let chance = |at: usize, real: &Available<'_>| real.weight() + u64::from(at == 0);
    let mut shares: Vec<(usize, u64)> = counted.iter().map(|(it, _)| (it.index, 0)).collect();
    for (first, (one, one_count)) in counted.iter().enumerate() {
        for (second, (other, other_count)) in counted.iter().enumerate() {
            let is_second =
                other.weight() * overhead(one_count) > one.weight() * overhead(other_count);
            let selected = if is_second { second } else { first };
            if let Some((_, share)) = shares.get_mut(selected) {
                *share += chance(first, one) * chance(second, other);
            }
        }
    }
    shares.retain(|(_, share)| *share > 0);
    shares
}
