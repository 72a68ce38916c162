//! Where things are, by the hashes of their keys.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// Places in a list by the keys of what is there, without a copy of the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    hasher: RandomState,
    places: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    /// The places whose hash was taken already; there hardly ever are any.
    others: Vec<usize>,
}

impl Index {
    /// Returns the hash of a key, to be given to the other functions.
    pub(crate) fn hash(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the place with this hash that `is_it` says yes to.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let usual = self.places.get(&hash).copied();
        usual
            .filter(|&place| is_it(place))
            .or_else(|| self.others.iter().copied().find(|&place| is_it(place)))
    }

    /// Enters a place that is not there yet.
    pub(crate) fn insert(&mut self, hash: u64, place: usize) {
        match self.places.entry(hash) {
            Entry::Vacant(vacant) => drop(vacant.insert(place)),
            Entry::Occupied(_) => self.others.push(place),
        }
    }

    /// Makes room for so many places more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
    }

    /// Strikes all places out.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.others.clear();
    }

    /// Returns the number of places.
    pub(crate) fn len(&self) -> usize {
        self.places.len() + self.others.len()
    }

    /// Strikes a place out.
    pub(crate) fn remove(&mut self, hash: u64, place: usize) {
        match self.places.entry(hash) {
            Entry::Occupied(entry) if *entry.get() == place => drop(entry.remove()),
            _ => self.others.retain(|&other| other != place),
        }
    }
}

/// Takes a hash for the hash of itself.
#[derive(Clone, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let keys = ["a", "b", "c"];
        let mut index = Index::default();
        for place in 0..keys.len() {
            index.insert(7, place);
        }
        let find = |index: &Index, key| index.find(7, |place| keys[place] == key);
        assert_eq!(
            ["a", "b", "c"].map(|key| find(&index, key)),
            [Some(0), Some(1), Some(2)]
        );
        index.remove(7, 0);
        index.remove(7, 2);
        assert_eq!(
            ["a", "b", "c"].map(|key| find(&index, key)),
            [None, Some(1), None]
        );
        index.insert(7, 0);
        index.remove(7, 1);
        assert_eq!(
            ["a", "b", "c"].map(|key| find(&index, key)),
            [Some(0), None, None]
        );
    }
}
