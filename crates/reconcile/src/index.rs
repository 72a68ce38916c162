//! A hash index of slab positions.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// Maps hashes of keys to positions in a list, without storing the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    hasher: RandomState,
    places: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    /// Positions whose hash collides with an entry of `places`; almost always empty.
    collisions: Vec<usize>,
}

impl Index {
    /// Returns the hash of a key, an argument of the other functions.
    pub(crate) fn hash(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the position with this hash for which `matches` returns `true`.
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let first = self.places.get(&hash).copied();
        first.filter(|&place| matches(place)).or_else(|| {
            self.collisions
                .iter()
                .copied()
                .find(|&place| matches(place))
        })
    }

    /// Adds a position, which must not be present.
    pub(crate) fn insert(&mut self, hash: u64, place: usize) {
        match self.places.entry(hash) {
            Entry::Vacant(vacant) => drop(vacant.insert(place)),
            Entry::Occupied(_) => self.collisions.push(place),
        }
    }

    /// Reserves capacity for `more` positions.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
    }

    /// Removes all positions.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.collisions.clear();
    }

    /// Returns the number of positions.
    pub(crate) fn len(&self) -> usize {
        self.places.len() + self.collisions.len()
    }

    /// Removes a position.
    pub(crate) fn remove(&mut self, hash: u64, place: usize) {
        match self.places.entry(hash) {
            Entry::Occupied(entry) if *entry.get() == place => drop(entry.remove()),
            _ => self.collisions.retain(|&other| other != place),
        }
    }
}

/// A hasher whose result is its input, which is a hash already.
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
    fn keys_with_equal_hashes_are_distinguished() {
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
