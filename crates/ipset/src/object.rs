//! What the state of the kernel consists of, and the keys of it.

use std::collections::BTreeMap;

use vipline_reconcile::Keyed;

use crate::{Entry, Member, Name, Set, Usage};

/// A set, or an entry of one.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// A set, without its entries.
    Set(Box<Set>),
    /// An entry of a set.
    Entry(Box<Entry>),
}

/// What identifies an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A set, by its name.
    Set(&'a Name),
    /// An entry, by its set and what it is.
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

/// A set with all there is in it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SetDump {
    /// The set.
    pub set: Set,
    /// What it takes.
    pub usage: Usage,
    /// Its entries, in the order of the kernel.
    pub entries: Vec<Entry>,
}

impl SetDump {
    /// Returns a set without entries.
    pub fn new(set: Set) -> Self {
        Self {
            set,
            usage: Usage::default(),
            entries: Vec::new(),
        }
    }
}

/// Sets by their names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sets {
    sets: BTreeMap<Name, SetDump>,
}

impl Sets {
    /// Returns the set of this name.
    pub fn get(&self, name: &str) -> Option<&SetDump> {
        self.sets.get(name)
    }

    /// Returns the sets in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &SetDump> {
        self.sets.values()
    }

    /// Puts a set in, in the place of one of its name.
    pub fn insert(&mut self, listed: SetDump) {
        self.sets.insert(listed.set.name.clone(), listed);
    }

    /// Returns how many sets there are.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Tells whether there is no set.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Hands all sets and entries over, each set before its entries.
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
