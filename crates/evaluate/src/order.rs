//! Orders of base chains that a ruleset leaves open.
//!
//! Of base chains with equal hooks and priorities, the kernel runs first the one that was
//! registered last (`nf_hook_entries_grow`). A ruleset has the order of the chains of one
//! table. The order of several tables is unknown: a new chain may belong to an old table. So
//! a packet is evaluated in several orders of the tables, unless the kernel listed its hooks.

use std::sync::Arc;

use vipline_nftables::{Hook, Policy};

use super::cause::Cause;
use super::index::Installed;
use super::outcome::{Disposition, Outcome};
use super::probability::Probability;

/// The base chains of a hook in another order.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) hook: Hook,
    pub(super) chains: Vec<Arc<Installed>>,
    /// Names of the chains with equal priorities.
    names: Vec<String>,
}

impl Order {
    /// Returns the cause that the outcomes depend on the order.
    pub(super) fn unknown(&self) -> Cause {
        let (hook, names) = (self.hook, self.names.join(" and "));
        Cause::unknown(format_args!(
            "order of base chains {names}, which have equal priorities in hook {hook}"
        ))
    }
}

/// Returns other orders of the base chains of a hook, which are sorted by priority.
///
/// Of up to three tables with equal priorities these are all orders. Of more, each table is
/// the first and the last one, and each pair is in both orders.
///
/// `is_placed` is whether the place of a chain is known. A group of which all places are known
/// has no other order.
pub(super) fn others(
    hook: Hook,
    chains: &[Arc<Installed>],
    is_placed: impl Fn(&Installed) -> bool,
) -> Vec<Order> {
    let mut orders = Vec::new();
    for (at, first) in chains.iter().enumerate() {
        let is_equal = |it: &Arc<Installed>| key(it) == key(first);
        if chains.iter().take(at).any(is_equal) {
            continue;
        }
        let all = (0..).zip(chains);
        let all = all.filter(|(_, it)| is_equal(it) && has_effect(it));
        let (places, group): (Vec<usize>, Vec<&Arc<Installed>>) = all.unzip();
        if group.iter().all(|it| is_placed(it)) {
            continue;
        }
        let tables = group.chunk_by(|one, other| one.chain.table == other.chain.table);
        let tables: Vec<_> = tables.collect();
        // The first rotation is the given order.
        for group in rotations(&tables).into_iter().skip(1) {
            let group = group.concat();
            let mut order = chains.to_vec();
            for (place, chain) in places.iter().zip(&group) {
                if let Some(it) = order.get_mut(*place) {
                    *it = Arc::clone(chain);
                }
            }
            let name = |it: &&Arc<Installed>| format!("{} {}", it.chain.table, it.chain.name);
            orders.push(Order {
                hook,
                chains: order,
                names: group.iter().map(name).collect(),
            });
        }
    }
    orders
}

/// Returns what determines the order of a chain.
fn key(chain: &Installed) -> (i32, bool) {
    (chain.priority(), chain.is_nat())
}

/// Returns whether a base chain can change or drop a packet.
fn has_effect(installed: &Installed) -> bool {
    let chain = &installed.chain;
    let base = chain.base.as_ref();
    !chain.rules.is_empty() || base.is_some_and(|base| base.policy == Policy::Drop)
}

/// Returns all rotations of a group and of its reversal, the group itself first.
fn rotations<T: Copy>(group: &[T]) -> Vec<Vec<T>> {
    // The reversal of two is a rotation.
    let reversals = if group.len() > 2 { 2 } else { 1 };
    let mut group = group.to_vec();
    let mut orders = Vec::new();
    for _ in 0..reversals {
        for by in 0..group.len() {
            let mut order = group.clone();
            order.rotate_left(by);
            orders.push(order);
        }
        group.reverse();
    }
    orders
}

/// Returns whether two evaluations have the same outcomes, regardless of their traces.
pub(super) fn is_equal(one: &[Outcome], other: &[Outcome]) -> bool {
    let mut pairs = one.iter().zip(other);
    let is_pair_equal = |(one, other): (&Outcome, &Outcome)| {
        one.probability == other.probability && is_same_end(one, other)
    };
    if one.len() == other.len() && pairs.all(is_pair_equal) {
        return true;
    }
    let (Some(one), Some(other)) = (sums(one), sums(other)) else {
        return false;
    };
    let has = |(outcome, sum): &(&Outcome, Probability)| {
        let mut sums = other.iter();
        sums.any(|(it, its_sum)| its_sum == sum && is_same_end(it, outcome))
    };
    one.len() == other.len() && one.iter().all(has)
}

/// Adds the probabilities of outcomes with the same end. Returns `None` if a sum is too long.
fn sums(outcomes: &[Outcome]) -> Option<Vec<(&Outcome, Probability)>> {
    let mut sums: Vec<(&Outcome, Probability)> = Vec::new();
    for outcome in outcomes {
        match sums.iter_mut().find(|(it, _)| is_same_end(it, outcome)) {
            Some((_, sum)) => *sum = sum.either(&outcome.probability)?,
            None => sums.push((outcome, outcome.probability.clone())),
        }
    }
    Some(sums)
}

/// Returns whether two outcomes differ at most in probability and trace. All losses of a
/// packet by one kind of rule are the same.
fn is_same_end(one: &Outcome, other: &Outcome) -> bool {
    let is_lost = matches!(
        one.disposition,
        Disposition::Dropped | Disposition::Rejected(_)
    );
    let is_same_state = || {
        is_same_packet(one, other)
            && has_same(&one.updates, &other.updates)
            && has_same(&one.lists, &other.lists)
    };
    one.disposition == other.disposition && (is_lost || is_same_state())
}

/// Returns whether the packets and connections are equal. A random source port is equal to
/// each port: several programs masquerade, and not all with random ports.
fn is_same_packet(one: &Outcome, other: &Outcome) -> bool {
    let state = |it: &Outcome| (it.packet.clone(), it.connection.clone());
    let (mut one, mut other) = (state(one), state(other));
    if one.0.source_port().is_none() || other.0.source_port().is_none() {
        for (packet, connection) in [&mut one, &mut other] {
            packet.set_source_port(None);
            if let Some(connection) = connection {
                connection.reply.destination_port = None;
            }
        }
    }
    one == other
}

/// Returns whether two lists have the same items, regardless of their order.
fn has_same<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    one.len() == other.len() && one.iter().all(|it| other.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tables_have_all_orders() {
        let of = |len: usize| {
            let group: Vec<usize> = (0..len).collect();
            let mut orders = rotations(&group);
            assert_eq!(orders[0], group);
            let count = orders.len();
            orders.sort();
            orders.dedup();
            assert_eq!(orders.len(), count, "no order is repeated");
            count
        };
        assert_eq!([1, 2, 3, 4].map(of), [1, 2, 6, 8]);
    }
}
