//! Edits gathered until the next commit, merged per key.
//!
//! Between two commits a Service may change many times, but the kernel sees only the sum. An edit
//! says what the kernel has and what it shall have, so two edits of a key are one: from the
//! "before" of the first to the "after" of the second.
//!
//! ```text
//! Add(A)          then Change(A, B)   is   Add(B)
//! Change(A, B)    then Remove(B)      is   Remove(A)
//! Remove(A)       then Add(B)         is   Change(A, B)
//! Add(A)          then Remove(A)      is   nothing
//! ```
//!
//! This needs edits that follow each other: the second one starts from what the first one leads
//! to. The ledger makes such edits, because it compares with its own last state.

use crate::index::Index;
use crate::{Edit, Keyed};

/// Edits of the next commit, at most one per key.
///
/// A later edit of a key is merged into the earlier one. Edits without an
/// overall effect cancel each other, such as an addition followed by a removal.
/// Edits keep the order in which their keys were first edited, so equal histories
/// result in equal commits.
#[derive(Clone, Debug)]
pub struct Pending<T> {
    /// In the order of the first edits. `None` where edits cancelled each other: a list with
    /// holes keeps the positions in `keys` valid. [`take`](Pending::take) drops the holes.
    edits: Vec<Option<Edit<T>>>,
    /// Invariant: contains exactly the positions with an edit.
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
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of edits, without those that cancelled each other.
    pub fn len(&self) -> usize {
        // Not the length of `edits`, which has holes.
        self.keys.len()
    }

    /// Adds an edit, merging it into a pending edit of the same key.
    pub fn push(&mut self, edit: Edit<T>) {
        let hash = self.keys.hash(&edit.key());
        let Some(place) = self.find(hash, &edit.key()) else {
            self.keys.insert(hash, self.edits.len());
            self.edits.push(Some(edit));
            return;
        };
        // What the kernel has; what the earlier edit would have made of it does not matter anymore.
        let before = self.edits[place]
            .take()
            .and_then(|earlier| earlier.into_old_and_new().0);
        let after = edit.into_old_and_new().1;
        match Edit::between(before, after) {
            Some(merged) => self.edits[place] = Some(merged),
            // The `take` above left a hole. A later edit of the key gets a new place at the end.
            None => self.keys.remove(hash, place),
        }
    }

    fn find<'a>(&'a self, hash: u32, key: &T::Key<'a>) -> Option<usize> {
        let edit = |place: usize| self.edits[place].as_ref();
        let has_key = |place| edit(place).is_some_and(|edit| edit.key() == *key);
        self.keys.find(hash, has_key)
    }

    /// Removes and returns all edits. The memory stays for the next ones.
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
