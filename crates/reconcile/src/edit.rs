//! Edits of a keyed state, and the difference between two states.

use crate::Keyed;
use crate::index::Index;
use crate::keyed_map::KeyedMap;

/// A change of the object under one key.
///
/// Exhaustive: an edit adds, changes or removes the object under a key.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Edit<T> {
    /// Adds an object under an unused key.
    Add(T),
    /// Replaces an object by another one with the same key.
    Change {
        /// Object before the edit.
        old: T,
        /// Object after the edit.
        new: T,
    },
    /// Removes an object.
    Remove(T),
}

impl<T> Edit<T> {
    /// Returns the object after the edit, or the removed object.
    pub fn object(&self) -> &T {
        match self {
            Self::Add(object) | Self::Remove(object) | Self::Change { new: object, .. } => object,
        }
    }
}

impl<T: Keyed> Edit<T> {
    /// Returns the edit from `old` to `new`, or `None` if the two are equivalent.
    pub fn between(old: Option<T>, new: Option<T>) -> Option<Self> {
        match (old, new) {
            (None, None) => None,
            (None, Some(new)) => Some(Self::Add(new)),
            (Some(old), None) => Some(Self::Remove(old)),
            (Some(old), Some(new)) if old.is_equivalent(&new) => None,
            (Some(old), Some(new)) => Some(Self::Change { old, new }),
        }
    }

    /// Returns the key of the edited object.
    pub fn key(&self) -> T::Key<'_> {
        self.object().key()
    }

    /// Splits the edit into the objects before and after it.
    pub fn into_old_and_new(self) -> (Option<T>, Option<T>) {
        match self {
            Self::Add(new) => (None, Some(new)),
            Self::Change { old, new } => (Some(old), Some(new)),
            Self::Remove(old) => (Some(old), None),
        }
    }
}

/// Returns the edits from the `installed` to the `desired` state.
///
/// Additions and changes come first, in the order of `desired`; removals follow
/// in the order of `installed`.
///
/// A state is a map: if several objects of one state have the same key, the first one
/// counts, and the others are ignored. So every key has at most one edit.
///
/// ```
/// use vipline_reconcile::{Edit, Keyed, diff};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Route(&'static str, &'static str);
///
/// impl Keyed for Route {
///     type Key<'a> = &'a str;
///     fn key(&self) -> &str { self.0 }
///     fn is_equivalent(&self, other: &Self) -> bool { self == other }
/// }
///
/// let [old, new, ignored] = ["eth0", "eth1", "eth2"].map(|via| Route("10.0.0.0/8", via));
/// let installed = [old.clone(), ignored.clone()];
/// let edits = diff(installed, &[new.clone(), ignored]);
/// assert_eq!(edits, [Edit::Change { old, new }]);
/// ```
pub fn diff<'a, T: Keyed + 'a>(
    installed: impl IntoIterator<Item = T>,
    desired: impl IntoIterator<Item = &'a T>,
) -> Vec<Edit<T>> {
    let mut installed: KeyedMap<T> = installed.into_iter().collect();
    let desired = desired.into_iter();
    let (mut edits, mut seen) = (Vec::new(), Seen::default());
    if installed.is_empty() {
        edits.reserve(desired.size_hint().0);
    }
    for object in desired {
        if !seen.insert(object) {
            continue;
        }
        let old = match installed.is_empty() {
            true => None,
            false => installed.remove(object),
        };
        match old {
            Some(old) if old.is_equivalent(object) => {}
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

/// The objects of a state up to now, by key.
struct Seen<'a, T> {
    objects: Vec<&'a T>,
    keys: Index,
}

impl<T> Default for Seen<'_, T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            keys: Index::default(),
        }
    }
}

impl<'a, T: Keyed> Seen<'a, T> {
    /// Adds an object. Returns whether its key is new.
    fn insert(&mut self, object: &'a T) -> bool {
        let hash = self.keys.hash(&object.key());
        let is_same = |place: usize| self.objects[place].key() == object.key();
        let is_new = self.keys.find(hash, is_same).is_none();
        if is_new {
            self.keys.insert(hash, self.objects.len());
            self.objects.push(object);
        }
        is_new
    }
}
