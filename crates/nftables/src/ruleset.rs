//! Rulesets, and their assembly from dumps.

use std::collections::BTreeMap;
use std::fmt;

use vipline_netlink::DecodeError;

use crate::element::{self, Raw};
use crate::expr::{AnonymousSet, Expr, SetRef};
use crate::wire::{self, Kind};
use crate::{Chain, Element, Family, Name, Object, Rule, Set, SetFlags, Table, TableId};

/// All objects of some tables: the result of a dump.
///
/// Displays like `nft list ruleset`, sorted by name and key. `nft -f` loads the
/// text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ruleset {
    pub(crate) tables: BTreeMap<TableId, TableContent>,
}

/// The objects of a table.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TableContent {
    pub(crate) table: Option<Table>,
    pub(crate) sets: BTreeMap<Name, (Option<Set>, Vec<Element>)>,
    pub(crate) chains: BTreeMap<Name, Chain>,
}

impl Ruleset {
    /// Creates an empty ruleset.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the objects: each table, then its sets with their elements, then its
    /// chains.
    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.tables.values().flat_map(|content| {
            let table = content.table.iter().cloned().map(Object::from);
            let sets = content.sets.values().flat_map(|(set, elements)| {
                let set = set.iter().cloned().map(Object::from);
                set.chain(elements.iter().cloned().map(Object::from))
            });
            table
                .chain(sets)
                .chain(content.chains.values().cloned().map(Object::from))
        })
    }

    /// Consumes the ruleset. Same order as [`Ruleset::objects`].
    pub fn into_objects(self) -> impl Iterator<Item = Object> {
        self.tables.into_values().flat_map(|content| {
            let table = content.table.into_iter().map(Object::from);
            let sets = content.sets.into_values().flat_map(|(set, elements)| {
                let set = set.into_iter().map(Object::from);
                set.chain(elements.into_iter().map(Object::from))
            });
            table
                .chain(sets)
                .chain(content.chains.into_values().map(Object::from))
        })
    }

    /// Consumes the ruleset and returns the elements of all sets.
    pub(crate) fn into_elements(self) -> impl Iterator<Item = Element> {
        let sets = self.tables.into_values().map(|content| content.sets);
        sets.flat_map(BTreeMap::into_values)
            .flat_map(|(_, elements)| elements)
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
                Object::Chain(chain) => {
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

/// Assembles a [`Ruleset`] from dump replies.
///
/// Push the replies to [`Query::Table`](wire::Query::Table), then those to
/// [`Query::Chains`](wire::Query::Chains), `Rules` and `Sets`, then for each
/// of [`Assembler::sets`] those to [`Query::Elements`](wire::Query::Elements).
/// Objects of other tables are ignored.
#[derive(Debug, Default)]
pub struct Assembler {
    tables: Vec<TableId>,
    ruleset: Ruleset,
    rules: Vec<(TableId, Name, Rule)>,
    sets: Vec<Set>,
    /// Elements with the index of their set in `sets`.
    elements: Vec<(usize, Raw)>,
    /// Set of the previous elements: usually also that of the next.
    last: usize,
}

impl Assembler {
    /// Creates an assembler for these tables.
    pub fn new(tables: &[TableId]) -> Self {
        Self {
            tables: tables.to_vec(),
            ..Self::default()
        }
    }

    /// Creates an assembler for the elements of one set.
    pub(crate) fn for_set(set: &Set) -> Self {
        Self {
            sets: vec![set.clone()],
            ..Self::default()
        }
    }

    /// Returns the sets received so far, including anonymous sets.
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// Processes a message: its type, and its payload after the netlink header.
    ///
    /// Other messages are ignored.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is malformed.
    pub fn push(&mut self, message_type: u16, payload: &[u8]) -> Result<(), DecodeError> {
        let (family, attrs) = wire::split_header(payload)?;
        let is = |kind: Kind| kind.message_type() == message_type;
        let Some(family) = family else {
            return Ok(());
        };
        if is(Kind::NewTable) {
            let table = wire::table(family, attrs)?;
            if self.is_wanted(&table.id) {
                self.ruleset.extend([table.into()]);
            }
        } else if is(Kind::NewChain) {
            let chain = wire::chain(family, attrs)?;
            if self.is_wanted(&chain.table) {
                self.ruleset.extend([chain.into()]);
            }
        } else if is(Kind::NewRule) {
            let (table, chain, rule) = wire::rule(attrs)?;
            let table = TableId::new(family, table);
            if self.is_wanted(&table) {
                self.rules.push((table, chain, rule));
            }
        } else if is(Kind::NewSet) {
            let set = wire::set(family, attrs)?;
            if self.is_wanted(&set.table) {
                self.sets.push(set);
            }
        } else if is(Kind::NewSetElem) {
            self.take_elements(family, payload)?;
        }
        Ok(())
    }

    fn is_wanted(&self, table: &TableId) -> bool {
        self.tables.contains(table)
    }

    fn take_elements(&mut self, family: Family, payload: &[u8]) -> Result<(), DecodeError> {
        let (table, name) = element::list_names(payload)?;
        let is_here = |set: &Set| {
            set.table.family == family
                && set.name.as_str() == name
                && set.table.name.as_str() == table
        };
        if !self.sets.get(self.last).is_some_and(is_here) {
            let Some(place) = self.sets.iter().position(is_here) else {
                return Ok(());
            };
            self.last = place;
        }
        let (place, elements) = (self.last, &mut self.elements);
        element::decode_list(payload, |raw| elements.push((place, raw)))
    }

    /// Returns the assembled ruleset.
    ///
    /// Anonymous sets become part of their rules.
    pub fn finish(self) -> Ruleset {
        let mut ruleset = self.ruleset;
        let mut lists: Vec<Vec<Raw>> = self.sets.iter().map(|_| Vec::new()).collect();
        for (place, raw) in self.elements {
            if let Some(list) = lists.get_mut(place) {
                list.push(raw);
            }
        }
        let mut anonymous = BTreeMap::new();
        for (set, raw) in self.sets.into_iter().zip(lists) {
            let elements = element::join_intervals(&set, raw);
            if set.flags.contains(SetFlags::ANONYMOUS) {
                let key = (set.table.clone(), set.name.clone());
                let set_ref = SetRef::Anonymous(AnonymousSet { set, elements }.into());
                anonymous.insert(key, set_ref);
                continue;
            }
            let content = ruleset.tables.entry(set.table.clone()).or_default();
            let name = set.name.clone();
            content.sets.insert(name, (Some(set), elements));
        }
        let mut rules: BTreeMap<(TableId, Name), Vec<Rule>> = BTreeMap::new();
        for (table, chain, mut rule) in self.rules {
            for expr in &mut rule.exprs {
                if let Expr::Lookup(lookup) = expr {
                    let key = (table.clone(), lookup.set.name().clone());
                    if let Some(set_ref) = anonymous.get(&key) {
                        lookup.set = set_ref.clone();
                    }
                }
            }
            rules.entry((table, chain)).or_default().push(rule);
        }
        for ((table, chain), rules) in rules {
            let content = ruleset.tables.get_mut(&table);
            if let Some(chain) = content.and_then(|content| content.chains.get_mut(&chain)) {
                chain.rules = rules.into();
            }
        }
        ruleset
    }
}
