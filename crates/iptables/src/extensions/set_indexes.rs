//! Names and indices of IP sets: structures of the kernel contain the index of a set.

use std::collections::HashMap;

/// Index of no set: `IPSET_INVALID_ID` of `linux/netfilter/ipset/ip_set.h`.
pub(crate) const IPSET_INVALID_ID: u16 = 65535;

/// The names and indices of IP sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetIndexes {
    indexes: HashMap<Box<str>, u16>,
    names: HashMap<u16, Box<str>>,
}

impl SetIndexes {
    /// Adds a set.
    pub(crate) fn insert(&mut self, index: u16, name: &str) {
        self.indexes.insert(name.into(), index);
        self.names.insert(index, name.into());
    }

    /// Assigns an unused index to a set that has none. A set beyond the number of indices
    /// remains unknown.
    pub(crate) fn assign(&mut self, name: &str) {
        if self.indexes.contains_key(name) {
            return;
        }
        let unused = |index: &u16| !self.names.contains_key(index);
        if let Some(index) = (0..IPSET_INVALID_ID).find(unused) {
            self.insert(index, name);
        }
    }

    /// Returns the index of a set, if it exists.
    pub(crate) fn index(&self, name: &str) -> Option<u16> {
        self.indexes.get(name).copied()
    }

    /// Returns the name of an index, if its set exists.
    pub(crate) fn name(&self, index: u16) -> Option<&str> {
        self.names.get(&index).map(|name| &**name)
    }

    /// Returns indices and names, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        self.names.iter().map(|(index, name)| (*index, &**name))
    }
}
