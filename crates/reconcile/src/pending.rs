//! Edits gathered until the next commit, merged per key.

use std::collections::HashMap;

use crate::{Edit, Keyed};

/// Edits that wait for a commit, at most one per key.
///
/// A later edit of a key is merged into the earlier one: what was added and
/// removed again is no edit at all.
/// The order of the first edit of each key is kept, so equal histories give
/// equal commits.
#[derive(Clone, Debug)]
pub struct Pending<T: Keyed> {
    edits: Vec<Option<Edit<T>>>,
    places: HashMap<T::Key, usize>,
}

impl<T: Keyed> Default for Pending<T> {
    fn default() -> Self {
        Self {
            edits: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<T: Keyed> Pending<T> {
    /// Returns nothing pending.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of keys with an edit.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Merges an edit into those that wait.
    pub fn push(&mut self, edit: Edit<T>) {
        let key = edit.key();
        let Some(&place) = self.places.get(&key) else {
            self.places.insert(key, self.edits.len());
            self.edits.push(Some(edit));
            return;
        };
        let before = self.edits[place]
            .take()
            .and_then(|earlier| earlier.into_sides().0);
        let after = edit.into_sides().1;
        match Edit::between(before, after) {
            Some(merged) => self.edits[place] = Some(merged),
            None => {
                self.places.remove(&key);
            }
        }
    }

    /// Takes all edits out.
    pub fn take(&mut self) -> Vec<Edit<T>> {
        self.places.clear();
        self.edits.drain(..).flatten().collect()
    }
}

impl<T: Keyed> Extend<Edit<T>> for Pending<T> {
    fn extend<I: IntoIterator<Item = Edit<T>>>(&mut self, edits: I) {
        for edit in edits {
            self.push(edit);
        }
    }
}
