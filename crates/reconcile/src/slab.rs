//! A slab: values with stable indexes.

use std::ops::{Index, IndexMut};

/// Values whose indexes do not change until they are removed.
#[derive(Clone, Debug)]
pub(crate) struct Slab<V> {
    slots: Vec<Option<V>>,
    /// Invariant: contains exactly the indexes of empty slots.
    vacant: Vec<usize>,
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<V> Slab<V> {
    /// Reserves capacity for `more` values.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.slots.reserve(more);
    }

    /// Inserts a value and returns its index.
    pub(crate) fn insert(&mut self, value: V) -> usize {
        match self.vacant.pop() {
            Some(place) => {
                self.slots[place] = Some(value);
                place
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() - 1
            }
        }
    }

    /// Removes and returns a value.
    pub(crate) fn remove(&mut self, place: usize) -> V {
        self.vacant.push(place);
        self.slots[place].take().expect(REMOVED)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Returns the values in the order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> + Clone {
        self.slots.iter().flatten()
    }

    /// Returns the values in the order of their indexes, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().flatten()
    }

    /// Returns the values in the order of their indexes.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = V> {
        self.slots.into_iter().flatten()
    }
}

const REMOVED: &str = "no index is used after the removal of its value";

impl<V> Index<usize> for Slab<V> {
    type Output = V;

    fn index(&self, place: usize) -> &V {
        self.slots[place].as_ref().expect(REMOVED)
    }
}

impl<V> IndexMut<usize> for Slab<V> {
    fn index_mut(&mut self, place: usize) -> &mut V {
        self.slots[place].as_mut().expect(REMOVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_removed_value_is_reused() {
        let mut slots = Slab::default();
        let places = ["a", "b", "c"].map(|value| slots.insert(value));
        assert_eq!(slots.remove(places[1]), "b");
        assert_eq!((slots.len(), slots.insert("d")), (3 - 1, places[1]));
        assert_eq!(slots.insert("e"), 3);
        slots[places[0]] = "f";
        assert_eq!(
            slots.iter().copied().collect::<Vec<_>>(),
            ["f", "d", "c", "e"]
        );
    }
}
