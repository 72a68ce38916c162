//! Rulesets and their generations.

use std::collections::BTreeMap;
use std::fmt;

use crate::expr::SetRef;
use crate::{
    Chain, Element, Flowtable, Name, Object, Rule, RuleHandle, Set, StatefulObject, Table, TableId,
};

/// All objects of some tables: the result of a dump.
///
/// Displays like `nft list ruleset`, sorted by name and key. `nft -f` loads the text.
/// A dump has elements of dynamic sets only if [`DumpOptions`](crate::DumpOptions) select them.
/// Equal if the objects are equal, regardless of the generation and of rule handles.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    pub(crate) tables: BTreeMap<TableId, TableContent>,
    pub(crate) generation: Generation,
    /// Handles of the rules of each chain.
    pub(crate) handles: BTreeMap<(TableId, Name), Vec<RuleHandle>>,
    /// Anonymous sets by the names that the kernel gave them.
    pub(crate) anonymous: BTreeMap<(TableId, Name), SetRef>,
}

impl Eq for Ruleset {}

impl PartialEq for Ruleset {
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables
    }
}

/// The objects of a table.
#[derive(Clone, Debug, Default, Eq)]
pub(crate) struct TableContent {
    pub(crate) table: Option<Table>,
    /// Stateful objects by type and name.
    pub(crate) stateful: BTreeMap<(u32, Name), StatefulObject>,
    pub(crate) flowtables: BTreeMap<Name, Flowtable>,
    pub(crate) sets: BTreeMap<Name, (Option<Set>, Vec<Element>)>,
    pub(crate) chains: BTreeMap<Name, Chain>,
    /// Names of the base chains, in the order in which they were added.
    pub(crate) base_chains: Vec<Name>,
}

impl PartialEq for TableContent {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
            && self.stateful == other.stateful
            && self.flowtables == other.flowtables
            && self.sets == other.sets
            && self.ordered_chains() == other.ordered_chains()
    }
}

impl TableContent {
    /// Returns the chains by name. Base chains with the same hook and priority take their
    /// places in the order in which they were added.
    pub(crate) fn ordered_chains(&self) -> Vec<&Chain> {
        let mut chains: Vec<&Chain> = self.chains.values().collect();
        let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (at, chain) in chains.iter().enumerate() {
            if let Some(base) = &chain.base {
                places
                    .entry((base.hook, base.priority))
                    .or_default()
                    .push(at);
            }
        }
        for places in places.into_values().filter(|places| places.len() > 1) {
            let mut group: Vec<&Chain> = places
                .iter()
                .filter_map(|at| chains.get(*at).copied())
                .collect();
            group.sort_by_key(|chain| self.base_chains.iter().position(|name| *name == chain.name));
            for (at, chain) in places.into_iter().zip(group) {
                if let Some(place) = chains.get_mut(at) {
                    *place = chain;
                }
            }
        }
        chains
    }

    fn into_chains(mut self) -> impl Iterator<Item = Chain> {
        let chains = self.ordered_chains();
        let names: Vec<Name> = chains.into_iter().map(|chain| chain.name.clone()).collect();
        names
            .into_iter()
            .filter_map(move |name| self.chains.remove(&name))
    }
}

impl Ruleset {
    /// Creates an empty ruleset.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the objects: each table, then its stateful objects and flowtables, then its
    /// sets with their elements, then its chains.
    ///
    /// Base chains with the same hook and priority keep the order in which they were added,
    /// which determines the order in which packets pass them.
    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.tables.values().flat_map(|content| {
            let table = content.table.iter().cloned().map(Object::from);
            let stateful = content.stateful.values().cloned().map(Object::from);
            let flowtables = content.flowtables.values().cloned().map(Object::from);
            let sets = content.sets.values().flat_map(|(set, elements)| {
                let set = set.iter().cloned().map(Object::from);
                set.chain(elements.iter().cloned().map(Object::from))
            });
            table.chain(stateful).chain(flowtables).chain(sets).chain(
                content
                    .ordered_chains()
                    .into_iter()
                    .cloned()
                    .map(Object::from),
            )
        })
    }

    /// Consumes the ruleset. Same order as [`Ruleset::objects`].
    pub fn into_objects(self) -> impl Iterator<Item = Object> {
        self.tables.into_values().flat_map(|mut content| {
            let table = content.table.take().into_iter().map(Object::from);
            let stateful = std::mem::take(&mut content.stateful).into_values();
            let stateful = stateful.map(Object::from);
            let flowtables = std::mem::take(&mut content.flowtables).into_values();
            let flowtables = flowtables.map(Object::from);
            let sets = std::mem::take(&mut content.sets).into_values();
            let sets = sets.flat_map(|(set, elements)| {
                let set = set.into_iter().map(Object::from);
                set.chain(elements.into_iter().map(Object::from))
            });
            table
                .chain(stateful)
                .chain(flowtables)
                .chain(sets)
                .chain(content.into_chains().map(Object::from))
        })
    }

    /// Consumes the ruleset and returns the elements of all sets.
    pub(crate) fn into_elements(self) -> impl Iterator<Item = Element> {
        let sets = self.tables.into_values().map(|content| content.sets);
        sets.flat_map(BTreeMap::into_values)
            .flat_map(|(_, elements)| elements)
    }

    /// Returns the generation of the dump, for
    /// [`Client::commit_at`](crate::Client::commit_at). The default generation if the
    /// ruleset is not the result of a dump by [`Client`](crate::Client).
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Sets the generation, which makes the objects those of a dump.
    #[must_use]
    pub fn with_generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    /// Returns a set and its elements, in no particular order.
    pub fn set(&self, table: &TableId, name: &str) -> Option<(&Set, &[Element])> {
        let (set, elements) = self.tables.get(table)?.sets.get(name)?;
        Some((set.as_ref()?, elements))
    }

    /// Returns a chain.
    pub fn chain(&self, table: &TableId, name: &str) -> Option<&Chain> {
        self.tables.get(table)?.chains.get(name)
    }

    /// Returns the rules of a chain with their handles, in order.
    ///
    /// Only a dump has handles. Otherwise the iterator is empty.
    ///
    /// ```no_run
    /// use vipline_nftables::{Client, Family, Name, TableId};
    ///
    /// // Deletes every rule that accepts SSH.
    /// let (filter, input) = (TableId::new(Family::Inet, Name::new("filter")?), Name::new("input")?);
    /// let mut client = Client::open()?;
    /// let installed = client.dump(&filter)?;
    /// for (handle, rule) in installed.rules(&filter, &input) {
    ///     if rule.to_string() == "tcp dport 22 accept" {
    ///         client.delete_rule(&filter, &input, handle)?;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rules<'a>(
        &'a self,
        table: &TableId,
        chain: &Name,
    ) -> impl Iterator<Item = (RuleHandle, &'a Rule)> + use<'a> {
        let handles = self.handles.get(&(table.clone(), chain.clone()));
        let chain = self.chain(table, chain.as_str());
        let rules = chain.into_iter().flat_map(|chain| chain.rules.iter());
        handles.into_iter().flatten().copied().zip(rules)
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

/// Iterator over the objects of a ruleset, in the order of [`Ruleset::objects`].
pub struct Objects(Box<dyn Iterator<Item = Object>>);

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects")
    }
}

impl Iterator for Objects {
    type Item = Object;

    fn next(&mut self) -> Option<Object> {
        self.0.next()
    }
}

impl IntoIterator for Ruleset {
    type Item = Object;
    type IntoIter = Objects;

    fn into_iter(self) -> Objects {
        Objects(Box::new(self.into_objects()))
    }
}

impl Extend<Object> for Ruleset {
    /// Adds objects. An object replaces one with the same key, except for elements,
    /// which are appended.
    fn extend<T: IntoIterator<Item = Object>>(&mut self, objects: T) {
        for object in objects {
            let content = self.tables.entry(object.table().clone()).or_default();
            match object {
                Object::Table(table) => content.table = Some(*table),
                Object::Stateful(object) => {
                    let key = (object.state.kind(), object.name.clone());
                    content.stateful.insert(key, *object);
                }
                Object::Flowtable(flowtable) => {
                    content
                        .flowtables
                        .insert(flowtable.name.clone(), *flowtable);
                }
                Object::Chain(chain) => {
                    let key = (chain.table.clone(), chain.name.clone());
                    self.handles.remove(&key);
                    if chain.base.is_some() {
                        content.base_chains.push(chain.name.clone());
                    }
                    content.chains.insert(chain.name.clone(), *chain);
                }
                Object::Set(set) => {
                    let name = set.name.clone();
                    content.sets.entry(name).or_default().0 = Some(set);
                }
                Object::Element(element) => {
                    let name = element.set().name.clone();
                    content.sets.entry(name).or_default().1.push(element);
                }
            }
        }
    }
}

impl FromIterator<Object> for Ruleset {
    fn from_iter<T: IntoIterator<Item = Object>>(objects: T) -> Self {
        let mut ruleset = Self::new();
        ruleset.extend(objects);
        ruleset
    }
}

/// A ruleset generation ID. Every commit increments it.
///
/// Default: 0, which no ruleset has. A batch that requires generation 0 requires none.
///
/// Exhaustive: a generation is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Generation(pub u32);

impl Generation {
    /// Returns the generation after one more commit.
    ///
    /// The kernel skips 0.
    #[must_use]
    pub fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_after_the_highest_is_one() {
        assert_eq!(Generation(u32::MAX).next(), Generation(1));
        assert_eq!(Generation(u32::MAX - 1).next(), Generation(u32::MAX));
        assert_eq!(Generation(1).next(), Generation(2));
    }
}
