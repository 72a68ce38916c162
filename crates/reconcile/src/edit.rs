//! One step from one state to another, and all the steps between two states.

use crate::Keyed;
use crate::keep::Keep;

/// One step from one state to another.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Edit<T> {
    /// The key was free and now holds this object.
    Add(T),
    /// The key held `old` and now holds `new`.
    Change {
        /// What is there before the edit.
        old: T,
        /// What is there after it.
        new: T,
    },
    /// The key held this object and now is free.
    Remove(T),
}

impl<T> Edit<T> {
    /// Returns the object after the edit, or the one that is removed.
    pub fn object(&self) -> &T {
        match self {
            Self::Add(object) | Self::Remove(object) | Self::Change { new: object, .. } => object,
        }
    }
}

impl<T: Keyed> Edit<T> {
    /// Returns the edit that leads from `old` to `new`, if there is a difference.
    pub fn between(old: Option<T>, new: Option<T>) -> Option<Self> {
        match (old, new) {
            (None, None) => None,
            (None, Some(new)) => Some(Self::Add(new)),
            (Some(old), None) => Some(Self::Remove(old)),
            (Some(old), Some(new)) if old.same(&new) => None,
            (Some(old), Some(new)) => Some(Self::Change { old, new }),
        }
    }

    /// Returns the key that the edit is about.
    pub fn key(&self) -> T::Key<'_> {
        self.object().key()
    }

    /// Splits the edit into what the key held before and what it holds after.
    pub fn into_sides(self) -> (Option<T>, Option<T>) {
        match self {
            Self::Add(new) => (None, Some(new)),
            Self::Change { old, new } => (Some(old), Some(new)),
            Self::Remove(old) => (Some(old), None),
        }
    }
}

/// Returns the edits that lead from the `installed` state to the `desired` one.
///
/// Both states hold a key at most once.
/// Adds and changes come in the order of `desired`, then removals in the order
/// of `installed`.
pub fn diff<'a, T: Keyed + 'a>(
    installed: impl IntoIterator<Item = T>,
    desired: impl IntoIterator<Item = &'a T>,
) -> Vec<Edit<T>> {
    let mut installed: Keep<T> = installed.into_iter().collect();
    let mut edits = Vec::new();
    for object in desired {
        let old = match installed.is_empty() {
            true => None,
            false => installed.take_like(object),
        };
        match old {
            Some(old) if old.same(object) => {}
            Some(old) => edits.push(Edit::Change {
                old,
                new: object.clone(),
            }),
            None => edits.push(Edit::Add(object.clone())),
        }
    }
    edits.extend(installed.into_iter().map(Edit::Remove));
    edits
}
