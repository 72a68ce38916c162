//! Sets and entries as keyed objects.

use std::collections::BTreeMap;

use vipline_reconcile::Keyed;

use crate::{Entry, Member, Name, Set, Usage};

/// A set or an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// A set without its entries.
    Set(Box<Set>),
    /// An entry of a set.
    Entry(Box<Entry>),
}

/// The key of an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A set: its name.
    Set(&'a Name),
    /// An entry: its set and element.
    Entry(&'a Name, &'a Member),
}

impl Keyed for Object {
    type Key<'a> = Key<'a>;

    fn key(&self) -> Key<'_> {
        match self {
            Self::Set(set) => Key::Set(&set.name),
            Self::Entry(entry) => Key::Entry(&entry.set, &entry.member),
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(one), Self::Set(other)) => one.is_equivalent(other),
            (Self::Entry(one), Self::Entry(other)) => one.is_equivalent(other),
            _ => false,
        }
    }
}

impl From<Set> for Object {
    fn from(set: Set) -> Self {
        Self::Set(Box::new(set))
    }
}

impl From<Entry> for Object {
    fn from(entry: Entry) -> Self {
        Self::Entry(Box::new(entry))
    }
}

/// A dumped set with its entries.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SetDump {
    /// The set.
    pub set: Set,
    /// Resource usage.
    pub usage: Usage,
    /// The entries, in the order of the dump.
    pub entries: Vec<Entry>,
}

impl SetDump {
    /// Creates a dump without entries.
    pub fn new(set: Set) -> Self {
        Self {
            set,
            usage: Usage::default(),
            entries: Vec::new(),
        }
    }
}

/// Dumped sets by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sets {
    sets: BTreeMap<Name, SetDump>,
}

impl Sets {
    /// Returns the set with this name.
    pub fn get(&self, name: &str) -> Option<&SetDump> {
        self.sets.get(name)
    }

    /// Returns the sets in name order.
    pub fn iter(&self) -> impl Iterator<Item = &SetDump> {
        self.sets.values()
    }

    /// Inserts a set. Replaces a set with the same name.
    pub fn insert(&mut self, listed: SetDump) {
        self.sets.insert(listed.set.name.clone(), listed);
    }

    /// Returns the number of sets.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Returns whether there are no sets.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Converts to objects, each set before its entries.
    pub fn into_objects(self) -> impl Iterator<Item = Object> {
        self.sets.into_values().flat_map(|listed| {
            let entries = listed.entries.into_iter().map(Object::from);
            [Object::from(listed.set)].into_iter().chain(entries)
        })
    }
}

impl IntoIterator for Sets {
    type Item = SetDump;
    type IntoIter = std::collections::btree_map::IntoValues<Name, SetDump>;

    fn into_iter(self) -> Self::IntoIter {
        self.sets.into_values()
    }
}

impl Extend<SetDump> for Sets {
    fn extend<I: IntoIterator<Item = SetDump>>(&mut self, sets: I) {
        for listed in sets {
            self.insert(listed);
        }
    }
}
