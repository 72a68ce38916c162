//! In which transactions edits are committed.

use std::collections::HashMap;

use vipline_nftables::{Object, Transaction};
use vipline_reconcile::Edit;

use super::subject::Subject;
use super::{Planner, names};
use crate::backend::Planner as _;

/// How many plain elements a transaction writes at most, if it can be helped.
///
/// Whoever else changes rules waits for a transaction: so many elements take
/// the kernel 5 to 15 ms. Larger transactions make a load no faster.
const BATCH: usize = 4_096;

/// How many plain elements take the kernel as long as a set or chain of a service port.
const OF_PORT: usize = 16;

/// When an edit is made, relative to others.
///
/// Whoever is halfway through this order has rules that make sense: nothing
/// leads to what is not there yet, or not there any more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Stage {
    /// Tables, sets and chains, and what the node and the cluster are.
    Frame,
    /// Sets and chains of one service port, which nothing leads to yet: sets first,
    /// which the chains name.
    OfPorts,
    /// Endpoints by themselves, which nothing leads to yet.
    Endpoints,
    /// All about one address or node port of a Service at a time.
    Services,
    /// Endpoints that nothing leads to any more.
    FormerEndpoints,
    /// Chains that nothing goes to any more and sets that only these use, in
    /// transactions of their own:
    /// kernels before 6.2 do not see within one that a chain became free.
    FormerChains,
    /// Properties of the table, likewise: a table that sleeps is woken when
    /// all is in it, and the kernel adds no chains while it wakes one.
    Table,
}

impl Stage {
    /// Tells whether edits are made after the others, on their own.
    fn is_late(self) -> bool {
        self >= Self::FormerChains
    }
}

impl Subject<'_> {
    fn stage(self, edit: &Edit<Object>) -> Stage {
        match (self, edit) {
            (Self::Node, _) => Stage::Frame,
            (Self::Endpoint, Edit::Remove(_)) => Stage::FormerEndpoints,
            (Self::Endpoint, _) => Stage::Endpoints,
            (Self::Frontend(_), _) => Stage::Services,
        }
    }
}

/// An edit, and its place in the order of all.
#[derive(Clone, Copy, Debug)]
struct Placed<'a> {
    stage: Stage,
    /// Which of the addresses and node ports it is about.
    unit: u32,
    edit: &'a Edit<Object>,
}

/// The addresses and node ports that edits are about, in the order they came.
#[derive(Debug, Default)]
struct Units<'a> {
    numbers: HashMap<&'a [u8], u32>,
    /// The last one, for most edits are about the same as those before.
    last: (&'a [u8], u32),
}

impl<'a> Units<'a> {
    fn place(&mut self, edit: &'a Edit<Object>) -> Placed<'a> {
        let (stage, unit) = match edit.object() {
            Object::Element(element) => {
                let subject = Subject::of(element);
                let unit = match subject {
                    Subject::Frontend(key) => self.number(key),
                    Subject::Endpoint | Subject::Node => 0,
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

/// Returns the transactions that make edits, to commit in turn.
pub fn transactions(edits: &[Edit<Object>]) -> impl Iterator<Item = Transaction> {
    batches(edits, BATCH).map(Transaction::from_edits)
}

/// Returns the edits of each transaction, to commit in turn.
pub(super) fn parts_of(edits: &[Edit<Object>]) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    batches(edits, BATCH)
}

/// Splits edits into transactions of some `size`, to commit in turn.
///
/// What is about one address or node port is never split, and comes in the
/// order of the edits; if it can be helped, no Service is split.
/// Edits that do away with what somebody else programmed, or with a drift of
/// ours other than in elements, stay in one transaction whatever its size.
fn batches(edits: &[Edit<Object>], size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut units = Units::default();
    // A cluster IP, its port, and a handful of endpoints are a Service.
    units.numbers.reserve(edits.len() / 4);
    let mut stages: [Vec<Placed<'_>>; 7] = Default::default();
    for edit in edits {
        let placed = units.place(edit);
        stages[placed.stage as usize].push(placed);
    }
    let [
        mut frame,
        mut of_ports,
        endpoints,
        mut services,
        former,
        mut chains,
        table,
    ] = stages;
    // Sets and chains are listed by the kernel as they came.
    frame.sort_by_key(|it| name(it.edit));
    of_ports.sort_by_key(|it| (matches!(it.edit.object(), Object::Chain(_)), name(it.edit)));
    services.sort_by_key(|it| it.unit);
    chains.sort_by_key(|it| name(it.edit));
    let order = [frame, of_ports, endpoints, services, former].concat();
    let after = [chains, table].concat();
    let divisible = order
        .iter()
        .chain(&after)
        .all(|it| is_divisible(it.stage, it.edit));
    let size = if divisible { size } else { usize::MAX };
    parts(order, size).chain(parts(after, size))
}

/// Returns edits up to some `size` at a time.
fn parts(order: Vec<Placed<'_>>, size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = order.get(start..).filter(|rest| !rest.is_empty())?;
        let part = rest.get(..length(rest, size))?;
        start += part.len();
        Some(part.iter().map(|it| it.edit).collect())
    })
}

/// Returns how many edits the first part has: whole Services if some fit, else
/// whole units, else the first unit whatever its size.
fn length(order: &[Placed<'_>], size: usize) -> usize {
    let (mut sum, mut units_end, mut services_end) = (0, None, None);
    for (at, former) in (1..).zip(order) {
        sum += former.cost();
        let next = order.get(at);
        if next.is_some_and(|next| former.is_bound_to(next)) {
            continue;
        }
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
    /// Tells whether the next edit must be in the same transaction.
    fn is_bound_to(&self, next: &Self) -> bool {
        let is_whole = matches!(self.stage, Stage::Frame | Stage::Services);
        is_whole && (self.stage, self.unit) == (next.stage, next.unit)
    }

    /// Tells whether a Service begins with the edit: its cluster IP comes first.
    fn begins_service(&self) -> bool {
        match self.edit.object() {
            Object::Element(element) => element.set().name.as_str() == names::ACTIVE_CLUSTER_IPS,
            _ => false,
        }
    }

    /// Returns how many plain elements take the kernel as long as the edit.
    fn cost(&self) -> usize {
        let [add, remove] = match self.edit.object() {
            // To remove one, the kernel goes through those before it.
            Object::Element(element) if element.key_end().is_some() => [4, 512],
            // To add one, the kernel goes through all sets of the table, several times.
            Object::Set(_) | Object::Chain(_) if self.stage == Stage::OfPorts => [OF_PORT, 1],
            _ => [1, 1],
        };
        match self.edit {
            Edit::Add(_) => add,
            Edit::Remove(_) => remove,
            Edit::Change { .. } => add + remove,
        }
    }
}

/// Tells whether an edit may be in another transaction than others.
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

/// Returns when an edit is made.
pub(super) fn stage(edit: &Edit<Object>) -> Stage {
    let (object, gone) = (edit.object(), matches!(edit, Edit::Remove(_)));
    match object {
        Object::Element(element) => Subject::of(element).stage(edit),
        Object::Table(_) if matches!(edit, Edit::Change { .. }) => Stage::Table,
        _ if gone && Planner::is_removal_delayed(object) => Stage::FormerChains,
        _ if gone => Stage::FormerEndpoints,
        Object::Set(set) if names::is_set_on_demand(&set.name) => Stage::OfPorts,
        Object::Chain(chain) if names::is_chain_of_port(&chain.name) => Stage::OfPorts,
        _ => Stage::Frame,
    }
}

#[cfg(test)]
mod tests;
