//! The ruleset in the form that the evaluator needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::cause::Cause;
use super::extension::Extensions;
use super::function::HookFunction;
use super::order::{self, Order};
use crate::{
    Chain, ChainType, Element, Family, Generation, Hook, HookEntry, Name, RuleHandle, Ruleset, Set,
    StatefulObject, TableFlags, TableId,
};

/// A chain with the handles of its rules.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) chain: Chain,
    pub(super) handles: Vec<RuleHandle>,
    /// Sets of the table, for the text of rules.
    pub(super) sets: Arc<BTreeMap<Name, Set>>,
    /// Anonymous chains by rule and name.
    anonymous: HashMap<(usize, Name), Arc<Self>>,
}

/// A set with its elements.
#[derive(Debug)]
pub(super) struct IndexedSet {
    pub(super) set: Set,
    elements: Vec<Element>,
    /// Elements of a set without intervals, by key.
    by_key: HashMap<Vec<u8>, usize>,
    /// Elements of a set with intervals of one field, by first key.
    by_start: BTreeMap<Vec<u8>, usize>,
    catch_all: Option<usize>,
    /// Whether all elements are known.
    is_complete: bool,
}

/// A table.
#[derive(Debug, Default)]
pub(super) struct IndexedTable {
    chains: BTreeMap<Name, Arc<Installed>>,
    sets: BTreeMap<Name, IndexedSet>,
    objects: BTreeMap<(u32, Name), StatefulObject>,
}

/// Places of base chains in the order in which the kernel runs them.
type Places = HashMap<(Hook, Family, TableId, Name), usize>;

/// Returns the place of a base chain, if it is known.
fn place(places: &Places, hook: Hook, family: Family, installed: &Installed) -> Option<usize> {
    let (table, name) = (&installed.chain.table, &installed.chain.name);
    let key = (hook, family, table.clone(), name.clone());
    places.get(&key).copied()
}

/// A ruleset.
#[derive(Debug, Default)]
pub(super) struct Index {
    tables: BTreeMap<TableId, IndexedTable>,
    /// Base chains by hook and family of the packet, in order.
    bases: BTreeMap<(Hook, Family), Vec<Arc<Installed>>>,
    /// Known order of base chains.
    places: Places,
    extensions: Option<Arc<dyn Extensions>>,
    functions: Vec<Arc<dyn HookFunction>>,
}

impl Installed {
    fn new(chain: &Chain, handles: Vec<RuleHandle>, sets: &Arc<BTreeMap<Name, Set>>) -> Self {
        let mut anonymous = HashMap::new();
        for (at, rule) in chain.rules.iter().enumerate() {
            for inner in &rule.chains {
                let key = (at, inner.name.clone());
                let inner = Self::new(inner, Vec::new(), sets);
                anonymous.insert(key, Arc::new(inner));
            }
        }
        Self {
            chain: chain.clone(),
            handles,
            sets: Arc::clone(sets),
            anonymous,
        }
    }

    /// Returns the priority of a base chain.
    pub(super) fn priority(&self) -> i32 {
        self.chain.base.as_ref().map_or(0, |base| base.priority)
    }

    /// Returns whether this is a base chain of type `nat`.
    pub(super) fn is_nat(&self) -> bool {
        let base = self.chain.base.as_ref();
        base.is_some_and(|base| base.kind == ChainType::Nat)
    }
}

impl IndexedSet {
    pub(super) fn new(set: Set, elements: Vec<Element>, is_complete: bool) -> Self {
        let (mut by_key, mut by_start) = (HashMap::new(), BTreeMap::new());
        let mut catch_all = None;
        for (at, element) in elements.iter().enumerate() {
            let key = element.key_bytes().to_vec();
            match () {
                () if element.is_catch_all() => catch_all = Some(at),
                () if !set.has_intervals() => drop(by_key.entry(key).or_insert(at)),
                () if !set.is_concatenated() => drop(by_start.entry(key).or_insert(at)),
                () => {}
            }
        }
        Self {
            set,
            elements,
            by_key,
            by_start,
            catch_all,
            is_complete,
        }
    }

    /// Returns all elements.
    pub(super) fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// Returns whether all elements are known.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the element that matches a key, except the catch-all element.
    pub(super) fn find(&self, key: &[u8]) -> Option<&Element> {
        if !self.set.has_intervals() {
            return self.elements.get(*self.by_key.get(key)?);
        }
        if self.set.is_concatenated() {
            return self.elements.iter().find(|it| contains(it, key));
        }
        let (_, at) = self.by_start.range(..=key.to_vec()).next_back()?;
        let element = self.elements.get(*at)?;
        contains(element, key).then_some(element)
    }

    /// Returns the element that matches all other keys.
    pub(super) fn catch_all(&self) -> Option<&Element> {
        self.elements.get(self.catch_all?)
    }
}

/// Returns whether the key is one of the element's keys.
///
/// The kernel compares each field of a concatenation separately.
pub(super) fn contains(element: &Element, key: &[u8]) -> bool {
    if element.is_catch_all() {
        return false;
    }
    let first = element.key_bytes();
    let Some(last) = element.key_end() else {
        return first == key;
    };
    let mut at = 0;
    let fields = &element.set().key;
    fields.iter().all(|field| {
        let len = usize::from(field.bytes);
        let part = |bytes: &[u8]| bytes.get(at..at + len).map(<[u8]>::to_vec);
        let (first, last, value) = (part(first), part(last), part(key));
        at += len.next_multiple_of(4);
        first <= value && value <= last && value.is_some()
    })
}

impl Index {
    pub(super) fn new(ruleset: &Ruleset) -> Self {
        let mut index = Self::default();
        let is_dump = ruleset.generation() != Generation::default();
        for (id, content) in &ruleset.tables {
            let mut table = IndexedTable {
                objects: content.stateful.clone(),
                ..IndexedTable::default()
            };
            let flags = content.table.as_ref().map(|table| table.flags);
            let is_dormant = flags.is_some_and(|flags| flags.contains(TableFlags::DORMANT));
            let mut sets = BTreeMap::new();
            for (name, (set, elements)) in &content.sets {
                let Some(set) = set else {
                    continue;
                };
                sets.insert(name.clone(), set.clone());
                let is_complete = !(is_dump && set.is_dynamic() && elements.is_empty());
                let indexed = IndexedSet::new(set.clone(), elements.clone(), is_complete);
                table.sets.insert(name.clone(), indexed);
            }
            let sets = Arc::new(sets);
            for (name, chain) in &content.chains {
                let handles = ruleset.rules(id, name).map(|(handle, _)| handle).collect();
                let installed = Arc::new(Installed::new(chain, handles, &sets));
                table.chains.insert(name.clone(), installed);
            }
            // The kernel runs first the chain that was added last.
            let ordered = content.ordered_chains().into_iter().rev();
            for chain in ordered.filter(|_| !is_dormant) {
                if let Some(installed) = table.chains.get(&chain.name) {
                    index.add_base(installed);
                }
            }
            index.tables.insert(id.clone(), table);
        }
        index
    }

    pub(super) fn set_extensions(&mut self, extensions: Arc<dyn Extensions>) {
        self.extensions = Some(extensions);
    }

    pub(super) fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        self.extensions.clone()
    }

    pub(super) fn add_function(&mut self, function: Arc<dyn HookFunction>) {
        self.functions.push(function);
    }

    pub(super) fn functions(&self) -> &[Arc<dyn HookFunction>] {
        &self.functions
    }

    /// Replaces the elements of a set.
    pub(super) fn set_elements(&mut self, set: &Set, elements: Vec<Element>) {
        let table = self.tables.entry(set.table.clone()).or_default();
        let indexed = IndexedSet::new(set.clone(), elements, true);
        table.sets.insert(set.name.clone(), indexed);
    }

    /// Returns the base chains of a hook that see packets of a family, by priority. Chains of
    /// equal priorities are ordered by table, and in a table as the kernel runs them.
    pub(super) fn base_chains(&self, hook: Hook, family: Family) -> &[Arc<Installed>] {
        self.bases.get(&(hook, family)).map_or(&[], |it| it)
    }

    /// Sorts base chains with equal priorities as the kernel runs them.
    pub(super) fn set_order(&mut self, entries: &[HookEntry]) {
        self.places.clear();
        for entry in entries {
            if let Some((table, name)) = &entry.chain {
                let key = (entry.hook, entry.family, table.clone(), name.clone());
                let place = self.places.len();
                self.places.entry(key).or_insert(place);
            }
        }
        for ((hook, family), chains) in &mut self.bases {
            chains.sort_by_key(|it| (it.priority(), place(&self.places, *hook, *family, it)));
        }
    }

    /// Returns other possible orders of base chains, one hook in each.
    pub(super) fn other_orders(&self, family: Family) -> Vec<Order> {
        let bases = self.bases.iter().filter(|((_, of), _)| *of == family);
        bases
            .flat_map(|((hook, family), chains)| {
                let is_placed = |it: &Installed| place(&self.places, *hook, *family, it).is_some();
                order::others(*hook, chains, is_placed)
            })
            .collect()
    }

    /// Returns whether the ruleset has a base chain of type `nat` for a family.
    pub(super) fn has_nat(&self, family: Family) -> bool {
        let mut bases = self.bases.iter().filter(|((_, of), _)| *of == family);
        bases.any(|(_, chains)| chains.iter().any(|it| it.is_nat()))
    }

    fn add_base(&mut self, installed: &Arc<Installed>) {
        let Some(base) = &installed.chain.base else {
            return;
        };
        let families: &[Family] = match installed.chain.table.family {
            Family::Inet | Family::Netdev => &[Family::Ip, Family::Ip6],
            Family::Ip => &[Family::Ip],
            Family::Ip6 => &[Family::Ip6],
            Family::Arp | Family::Bridge => &[],
        };
        for family in families {
            let chains = self.bases.entry((base.hook, *family)).or_default();
            chains.push(Arc::clone(installed));
            chains.sort_by_key(|it| it.priority());
        }
    }

    /// Returns the chain to which a verdict of a rule jumps.
    pub(super) fn chain(
        &self,
        from: &Installed,
        rule: usize,
        name: &Name,
    ) -> Result<Arc<Installed>, Cause> {
        if let Some(inner) = from.anonymous.get(&(rule, name.clone())) {
            return Ok(Arc::clone(inner));
        }
        let table = &from.chain.table;
        let chain = self.tables.get(table).and_then(|it| it.chains.get(name));
        chain
            .cloned()
            .ok_or_else(|| Cause::MissingChain(table.clone(), name.clone()))
    }

    /// Returns a named set.
    pub(super) fn set(&self, table: &TableId, name: &Name) -> Result<&IndexedSet, Cause> {
        let set = self.tables.get(table).and_then(|it| it.sets.get(name));
        set.ok_or_else(|| Cause::MissingSet(table.clone(), name.clone()))
    }

    /// Returns a stateful object.
    pub(super) fn object(
        &self,
        table: &TableId,
        kind: u32,
        name: &Name,
    ) -> Result<&StatefulObject, Cause> {
        let objects = self.tables.get(table).map(|it| &it.objects);
        objects
            .and_then(|objects| objects.get(&(kind, name.clone())))
            .ok_or_else(|| Cause::MissingObject(table.clone(), name.clone()))
    }
}
