//! A hash index of slab positions.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// Maps hashes of keys to positions in a list, without storing the keys.
///
/// An entry takes 9 bytes: hashes and positions have 32 bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    hasher: RandomState,
    places: HashMap<u32, u32, BuildHasherDefault<Spread>>,
    /// Hashes and positions whose hash collides with an entry of `places`. Few: 10 of
    /// 300,000 entries, 100 of 1,000,000.
    collisions: Vec<(u32, u32)>,
}

impl Index {
    /// Returns the hash of a key, an argument of the other functions.
    pub(crate) fn hash(&self, key: &impl Hash) -> u32 {
        let [a, b, c, d, ..] = self.hasher.hash_one(key).to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    /// Returns the position with this hash for which `matches` returns `true`.
    pub(crate) fn find(&self, hash: u32, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let first = self.places.get(&hash).map(|&place| wide(place));
        first
            .filter(|&place| matches(place))
            .or_else(|| self.find_collision(hash, matches))
    }

    fn find_collision(&self, hash: u32, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let collisions = self.collisions.iter();
        let mut places = collisions
            .filter(|(other, _)| *other == hash)
            .map(|&(_, place)| wide(place));
        places.find(|&place| matches(place))
    }

    /// Adds a position, which must not be present.
    pub(crate) fn insert(&mut self, hash: u32, place: usize) {
        let place = narrow(place);
        match self.places.entry(hash) {
            Entry::Vacant(vacant) => drop(vacant.insert(place)),
            Entry::Occupied(_) => self.collisions.push((hash, place)),
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
    pub(crate) fn remove(&mut self, hash: u32, place: usize) {
        let place = narrow(place);
        match self.places.entry(hash) {
            Entry::Occupied(entry) if *entry.get() == place => drop(entry.remove()),
            _ => self.collisions.retain(|&(_, other)| other != place),
        }
    }
}

/// Returns a position with 32 bits.
pub(crate) fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("memory has no room for 2^32 objects")
}

/// Returns a position that was [narrowed](narrow).
pub(crate) fn wide(place: u32) -> usize {
    place as usize
}

/// A hasher of numbers that API users cannot choose: hashes and positions in a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u32(&mut self, hash: u32) {
        // The table takes bits from both ends of the result.
        let hash = u64::from(hash);
        self.0 = (hash << 32 | hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_with_equal_hashes_are_distinguished() {
        let keys = ["a", "b", "c"];
        let mut index = Index::default();
        for place in 0..keys.len() {
            index.insert(7, place);
        }
        assert_eq!(index.len(), 3);
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
    #[test]
    fn hashes_of_different_keys_differ_in_most_cases() {
        let index = Index::default();
        let hashes: HashSet<_> = (0..1000).map(|key| index.hash(&key)).collect();
        assert!(hashes.len() > 990, "{}", hashes.len());
    }

    /// The table of the standard library takes the bucket from the low bits, and 7 high bits
    /// for its first comparison.
    #[test]
    fn numbers_that_follow_each_other_spread_in_low_and_high_bits() {
        let hashes = (0..128).map(|number| {
            let mut spread = Spread::default();
            spread.write_u32(number);
            spread.finish()
        });
        let parts = hashes.map(|hash| (hash & 0x7f, hash >> 57));
        let (low, high): (HashSet<_>, HashSet<_>) = parts.unzip();
        assert!(low.len() > 60 && high.len() > 60, "{low:?} {high:?}");
    }

    #[test]
    fn each_byte_changes_the_hash() {
        let finish = |bytes: &[u8]| {
            let mut spread = Spread::default();
            spread.write(bytes);
            spread.finish()
        };
        assert_eq!(finish(&[1, 2]), 0x0102);
        assert_eq!(
            finish(&[1, 0, 0, 0, 0, 0, 0, 0, 3]),
            0x02,
            "the first byte has an effect"
        );
    }
}
