//! Edits gathered until the next commit, merged per key.

use crate::index::Index;
use crate::{Edit, Keyed};

/// Edits that wait for a commit, at most one per key.
///
/// A later edit of a key is merged into the earlier one: what was added and
/// removed again is no edit at all.
/// The order of the first edit of each key is kept, so equal histories give
/// equal commits.
#[derive(Clone, Debug)]
pub struct Pending<T> {
    edits: Vec<Option<Edit<T>>>,
    /// Invariant: lists exactly the places with an edit.
    keys: Index,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            edits: Vec::new(),
            keys: Index::default(),
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
        self.len() == 0
    }

    /// Returns the number of keys with an edit.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Merges an edit into those that wait.
    pub fn push(&mut self, edit: Edit<T>) {
        let hash = self.keys.hash(&edit.key());
        let Some(place) = self.find(hash, &edit.key()) else {
            self.keys.insert(hash, self.edits.len());
            self.edits.push(Some(edit));
            return;
        };
        let before = self.edits[place]
            .take()
            .and_then(|earlier| earlier.into_sides().0);
        let after = edit.into_sides().1;
        match Edit::between(before, after) {
            Some(merged) => self.edits[place] = Some(merged),
            None => self.keys.remove(hash, place),
        }
    }

    fn find<'a>(&'a self, hash: u64, key: &T::Key<'a>) -> Option<usize> {
        let edit = |place: usize| self.edits[place].as_ref();
        let has_key = |place| edit(place).is_some_and(|edit| edit.key() == *key);
        self.keys.find(hash, has_key)
    }

    /// Takes all edits out.
    pub fn take(&mut self) -> Vec<Edit<T>> {
        self.keys.clear();
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
