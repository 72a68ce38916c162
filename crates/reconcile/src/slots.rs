//! Values at places that stay theirs.

use std::ops::{Index, IndexMut};

/// Values at places that stay theirs until they are taken.
#[derive(Clone, Debug)]
pub(crate) struct Slots<V> {
    slots: Vec<Option<V>>,
    /// Invariant: lists exactly the slots with nothing in them.
    vacant: Vec<usize>,
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<V> Slots<V> {
    /// Makes room for so many values more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.slots.reserve(more);
    }

    /// Puts a value in and returns where.
    pub(crate) fn put(&mut self, value: V) -> usize {
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

    /// Takes the value of a place out.
    pub(crate) fn take(&mut self, place: usize) -> V {
        self.vacant.push(place);
        self.slots[place].take().expect(TAKEN)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Returns the values, by their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> + Clone {
        self.slots.iter().flatten()
    }

    /// Returns the values to be changed, by their places.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().flatten()
    }

    /// Returns the values, by their places.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = V> {
        self.slots.into_iter().flatten()
    }
}

const TAKEN: &str = "a place is known until its value is taken";

impl<V> Index<usize> for Slots<V> {
    type Output = V;

    fn index(&self, place: usize) -> &V {
        self.slots[place].as_ref().expect(TAKEN)
    }
}

impl<V> IndexMut<usize> for Slots<V> {
    fn index_mut(&mut self, place: usize) -> &mut V {
        self.slots[place].as_mut().expect(TAKEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_again_once_its_value_is_taken() {
        let mut slots = Slots::default();
        let places = ["a", "b", "c"].map(|value| slots.put(value));
        assert_eq!(slots.take(places[1]), "b");
        assert_eq!((slots.len(), slots.put("d")), (3 - 1, places[1]));
        assert_eq!(slots.put("e"), 3);
        slots[places[0]] = "f";
        assert_eq!(
            slots.iter().copied().collect::<Vec<_>>(),
            ["f", "d", "c", "e"]
        );
    }
}
