//! Splitting of edits into transactions.
//!
//! A transaction is atomic, so one would be simplest. But it holds a lock that every other
//! writer of nf_tables waits for, and the kernel needs memory for all of it at once: a first
//! load of 10,000 Services has tens of thousands of elements. So a large change is several
//! transactions, in an order in which the rules are consistent after each of them. For a new
//! Service that is:
//!
//! 1. the chain of its endpoints, to which nothing leads yet,
//! 2. all elements of `10.96.0.10 . tcp . 80` together, from which on packets reach it.
//!
//! And backwards for one that goes. [`Stage`] is this order, and units keep together what
//! belongs to one address: if the element of the dispatch were committed without that of the
//! source ranges, the address would be open to everyone until the next transaction.

use std::collections::HashMap;

use vipline_nftables::{Object, Transaction};
use vipline_reconcile::Edit;

use super::subject::Subject;
use super::{Planner, names};
use proxy_engine::Planner as _;

/// Maximum number of plain elements in a transaction, unless a larger unit is
/// indivisible.
///
/// A transaction blocks other writers of nf_tables: 4,096 elements take 5 to 15 ms.
/// Larger transactions do not speed up a load.
const BATCH: usize = 4_096;

/// Number of plain elements that cost the kernel as much as a set or chain of session
/// affinity.
const OF_AFFINITY: usize = 16;

/// Stage of an edit in the order of commits.
///
/// After each stage the rules are consistent: no rule refers to an object that does not
/// exist yet or anymore.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Stage {
    /// Tables, sets, chains, and elements about the node and the cluster.
    Frame,
    /// Sets and chains of session affinity, which are not referenced yet. Sets come first,
    /// because chains refer to them. Their number depends on the timeouts in use.
    OfAffinity,
    /// Endpoints that are not referenced yet, and elements that several Services share.
    Endpoints,
    /// All elements of one address or node port of a Service at a time.
    Services,
    /// Endpoints that are no longer referenced, and shared elements without Services.
    FormerEndpoints,
    /// Unreferenced chains, and sets that only these chains use, in separate
    /// transactions. Kernels before 6.2 do not see within a transaction that a chain
    /// became unreferenced.
    FormerChains,
    /// Properties of the table, in separate transactions. A dormant table is woken after
    /// all its objects exist, and the kernel adds no chains while it wakes a table.
    Table,
}

impl Stage {
    /// Returns whether edits of this stage need separate transactions after the others.
    fn is_late(self) -> bool {
        self >= Self::FormerChains
    }
}

impl Subject<'_> {
    fn stage(self, edit: &Edit<Object>) -> Stage {
        match (self, edit) {
            (Self::Node, _) => Stage::Frame,
            (Self::Endpoint | Self::Shared, Edit::Remove(_)) => Stage::FormerEndpoints,
            (Self::Endpoint | Self::Shared, _) => Stage::Endpoints,
            (Self::Frontend(_), _) => Stage::Services,
        }
    }
}

/// An edit with its position in the order.
#[derive(Clone, Copy, Debug)]
struct Placed<'a> {
    stage: Stage,
    /// Number of the address or node port of the edit.
    unit: u32,
    edit: &'a Edit<Object>,
}

/// The addresses and node ports of edits, numbered in order of appearance.
#[derive(Debug, Default)]
struct Units<'a> {
    numbers: HashMap<&'a [u8], u32>,
    /// The last one, because consecutive edits are usually about the same one.
    last: (&'a [u8], u32),
}

impl<'a> Units<'a> {
    fn place(&mut self, edit: &'a Edit<Object>) -> Placed<'a> {
        let (stage, unit) = match edit.object() {
            Object::Element(element) => {
                let subject = Subject::of(element);
                let unit = match subject {
                    Subject::Frontend(key) => self.number(key),
                    Subject::Endpoint | Subject::Shared | Subject::Node => 0,
                };
                (subject.stage(edit), unit)
            }
            _ => (stage(edit), 0),
        };
        Placed { stage, unit, edit }
    }

    fn number(&mut self, key: &'a [u8]) -> u32 {
        if self.last.0 != key {
            let next = u32::try_from(self.numbers.len()).expect("edits fit in memory");
            self.last = (key, *self.numbers.entry(key).or_insert(next));
        }
        self.last.1
    }
}

/// Returns the transactions in which a kernel of this mode commits edits, in commit
/// order.
///
/// A large change has several transactions. The rules are consistent after each one.
pub fn transactions(edits: &[Edit<Object>]) -> impl Iterator<Item = Transaction> {
    batches(edits, BATCH).map(Transaction::from_edits)
}

/// Returns the edits of each transaction, in commit order.
pub(crate) fn parts_of(edits: &[Edit<Object>]) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    batches(edits, BATCH)
}

/// Splits edits into transactions of at most `size` plain elements, in commit order.
///
/// The edits of one address or node port are never split, and keep their order. A Service
/// is split only if it does not fit. Edits that replace the table of another program, or
/// repair drift in other objects than elements, stay in one transaction of any size.
fn batches(edits: &[Edit<Object>], size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut units = Units::default();
    // A Service typically has two units, its cluster IP and a port, and a few endpoints.
    units.numbers.reserve(edits.len() / 3);
    // One list for each stage, in order.
    let mut stages: [Vec<Placed<'_>>; 7] = Default::default();
    // Most edits of a large change are of this stage, and the others are added to it.
    stages[Stage::Services as usize].reserve(edits.len());
    for edit in edits {
        let placed = units.place(edit);
        stages[placed.stage as usize].push(placed);
    }
    let [
        mut frame,
        mut of_affinity,
        endpoints,
        mut services,
        former,
        mut chains,
        table,
    ] = stages;
    // The kernel lists sets and chains in order of creation. Sorted by name, the listing of a
    // table does not depend on the order of the edits, so that people can compare two nodes.
    frame.sort_by_key(|placed| name(placed.edit));
    of_affinity.sort_by_key(|placed| {
        let is_chain = matches!(placed.edit.object(), Object::Chain(_));
        (is_chain, name(placed.edit))
    });
    // Brings edits of one address together that other edits separate. The sort is stable, so their
    // order stays.
    services.sort_by_key(|placed| placed.unit);
    chains.sort_by_key(|placed| name(placed.edit));
    // It has room for all edits.
    let mut order = services;
    order.splice(..0, [frame, of_affinity, endpoints].concat());
    order.extend(former);
    let after = [chains, table].concat();
    let mut all = order.iter().chain(&after);
    let divisible = all.all(|placed| is_divisible(placed.stage, placed.edit));
    // Something else than a plain addition or removal: a set is exchanged, or a table is taken
    // over. The parts of that are not consistent by themselves.
    let size = if divisible { size } else { usize::MAX };
    // Separately, so that even a small change has two transactions if it removes chains.
    parts(order, size).chain(parts(after, size))
}

/// Splits placed edits into parts of at most `size`.
fn parts(order: Vec<Placed<'_>>, size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = order.get(start..).filter(|rest| !rest.is_empty())?;
        let part = rest.get(..length(rest, size))?;
        start += part.len();
        Some(part.iter().map(|placed| placed.edit).collect())
    })
}

/// Returns the number of edits in the first part: whole Services if any fit, otherwise
/// whole units, otherwise the first unit regardless of its size.
fn length(order: &[Placed<'_>], size: usize) -> usize {
    let (mut sum, mut units_end, mut services_end) = (0, None, None);
    for (at, former) in (1..).zip(order) {
        sum += former.cost();
        let next = order.get(at);
        if next.is_some_and(|next| former.is_bound_to(next)) {
            continue;
        }
        // Ends before the unit that would be too much. If it is the first one, it goes as a whole:
        // better a long transaction than an address with half of its rules.
        if sum > size {
            return services_end.or(units_end).unwrap_or(at);
        }
        units_end = Some(at);
        if next.is_some_and(Placed::begins_service) {
            services_end = units_end;
        }
    }
    order.len()
}

impl Placed<'_> {
    /// Returns whether the next edit must be in the same transaction.
    fn is_bound_to(&self, next: &Self) -> bool {
        // In the other stages nothing leads to the objects yet, or anymore, so any of them may come
        // later.
        let is_whole = matches!(self.stage, Stage::Frame | Stage::Services);
        is_whole && (self.stage, self.unit) == (next.stage, next.unit)
    }

    /// Returns whether the edit is the first one of a Service, which is its cluster IP.
    fn begins_service(&self) -> bool {
        match self.edit.object() {
            Object::Element(element) => element.set().name.as_str() == names::ACTIVE_CLUSTER_IPS,
            _ => false,
        }
    }

    /// Returns the cost of the edit for the kernel, in plain elements.
    fn cost(&self) -> usize {
        let [add, remove] = match self.edit.object() {
            // To remove an interval, the kernel walks the intervals before it. With this cost a
            // transaction has about eight such removals.
            Object::Element(element) if element.key_end().is_some() => [4, 512],
            // To add a set or chain, the kernel walks all sets of the table several
            // times.
            Object::Set(_) | Object::Chain(_) if self.stage == Stage::OfAffinity => {
                [OF_AFFINITY, 1]
            }
            _ => [1, 1],
        };
        match self.edit {
            Edit::Add(_) => add,
            Edit::Remove(_) => remove,
            // An element is changed by its deletion and its addition.
            Edit::Change { .. } => add + remove,
        }
    }
}

/// Returns whether an edit may be in another transaction than the others.
pub(super) fn is_divisible(stage: Stage, edit: &Edit<Object>) -> bool {
    match edit {
        Edit::Add(_) => true,
        Edit::Change { new: object, .. } | Edit::Remove(object) => {
            matches!(object, Object::Element(_)) || stage.is_late()
        }
    }
}

/// Returns the name of a set or chain.
pub(super) fn name(edit: &Edit<Object>) -> Option<&str> {
    match edit.object() {
        Object::Set(set) => Some(set.name.as_str()),
        Object::Chain(chain) => Some(chain.name.as_str()),
        _ => None,
    }
}

/// Returns the stage of an edit.
pub(super) fn stage(edit: &Edit<Object>) -> Stage {
    let (object, gone) = (edit.object(), matches!(edit, Edit::Remove(_)));
    match object {
        Object::Element(element) => Subject::of(element).stage(edit),
        Object::Table(_) if matches!(edit, Edit::Change { .. }) => Stage::Table,
        _ if gone && Planner::is_removal_delayed(object) => Stage::FormerChains,
        // Of another layout or of drift, which is not divisible: the stage only gives the order.
        _ if gone => Stage::FormerEndpoints,
        Object::Set(set) if names::is_set_on_demand(&set.name) => Stage::OfAffinity,
        Object::Chain(chain) if names::is_chain_of_affinity(&chain.name) => Stage::OfAffinity,
        _ => Stage::Frame,
    }
}

#[cfg(test)]
mod tests;
