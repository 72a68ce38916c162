//! The ruleset in the form that the evaluator needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use vipline_nftables::{
    Chain, ChainType, Element, Family, Generation, Hook, HookEntry, Name, Object, RuleHandle,
    Ruleset, Set, StatefulObject, TableFlags, TableId,
};

use super::cause::Cause;
use super::extension::Extensions;
use super::function::HookFunction;
use super::order::{self, Order};

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

/// The objects of a table.
#[derive(Debug, Default)]
struct Content {
    is_dormant: bool,
    objects: BTreeMap<(u32, Name), StatefulObject>,
    sets: BTreeMap<Name, (Option<Set>, Vec<Element>)>,
    /// Chains in the order of [`Ruleset::objects`].
    chains: Vec<Chain>,
}

impl Content {
    fn add(&mut self, object: Object) {
        match object {
            Object::Table(table) => self.is_dormant = table.flags.contains(TableFlags::DORMANT),
            Object::Stateful(object) => {
                let key = (object.state.kind(), object.name.clone());
                self.objects.insert(key, *object);
            }
            Object::Set(set) => {
                let name = set.name.clone();
                self.sets.entry(name).or_default().0 = Some(set);
            }
            Object::Element(element) => {
                let name = element.set().name.clone();
                self.sets.entry(name).or_default().1.push(element);
            }
            Object::Chain(chain) => self.chains.push(*chain),
            _ => {}
        }
    }
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
    fn new(chain: Chain, handles: Vec<RuleHandle>, sets: &Arc<BTreeMap<Name, Set>>) -> Self {
        let mut anonymous = HashMap::new();
        for (at, rule) in chain.rules.iter().enumerate() {
            for inner in &rule.chains {
                let key = (at, inner.name.clone());
                let inner = Self::new(inner.clone(), Vec::new(), sets);
                anonymous.insert(key, Arc::new(inner));
            }
        }
        Self {
            chain,
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
        let is_dump = ruleset.generation() != Generation::default();
        let mut contents: BTreeMap<TableId, Content> = BTreeMap::new();
        for object in ruleset.objects() {
            let id = object.table().clone();
            contents.entry(id).or_default().add(object);
        }
        let mut index = Self::default();
        for (id, content) in contents {
            let mut table = IndexedTable {
                objects: content.objects,
                ..IndexedTable::default()
            };
            let mut sets = BTreeMap::new();
            for (name, (set, elements)) in content.sets {
                // Elements without their set have no keys that a lookup could compare.
                let Some(set) = set else {
                    continue;
                };
                sets.insert(name.clone(), set.clone());
                let is_complete = !(is_dump && set.is_dynamic() && elements.is_empty());
                let indexed = IndexedSet::new(set, elements, is_complete);
                table.sets.insert(name, indexed);
            }
            let sets = Arc::new(sets);
            let installed = content.chains.into_iter().map(|chain| {
                let handles = ruleset.rules(&id, &chain.name).map(|(handle, _)| handle);
                let handles = handles.collect();
                Arc::new(Installed::new(chain, handles, &sets))
            });
            let installed: Vec<Arc<Installed>> = installed.collect();
            // The kernel runs first the chain that was added last.
            for chain in installed.iter().rev().filter(|_| !content.is_dormant) {
                index.add_base(chain);
            }
            let chains = installed.into_iter();
            let by_name = chains.map(|it| (it.chain.name.clone(), it));
            table.chains = by_name.collect();
            index.tables.insert(id, table);
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
