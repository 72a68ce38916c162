//! A map of objects by their keys.

use std::hash::Hash;

use crate::Keyed;
use crate::index::Index;
use crate::slab::Slab;

/// A map of objects, which contain their keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyedMap<T> {
    objects: Slab<T>,
    keys: Index,
}

impl<T> Default for KeyedMap<T> {
    fn default() -> Self {
        Self {
            objects: Slab::default(),
            keys: Index::default(),
        }
    }
}

impl<T: Keyed> KeyedMap<T> {
    /// Inserts an object, whose key must not be present.
    pub(crate) fn insert(&mut self, object: T) {
        let hash = self.keys.hash(&object.key());
        let place = self.objects.insert(object);
        self.keys.insert(hash, place);
    }

    /// Returns the object with the key of `object`.
    pub(crate) fn get(&self, object: &T) -> Option<&T> {
        let key = object.key();
        let place = self.find(self.keys.hash(&key), &key)?;
        Some(&self.objects[place])
    }

    /// Returns the object for which `matches` returns `true`, with a key that
    /// hashes like `key`.
    pub(crate) fn get_by(&self, key: &impl Hash, matches: impl Fn(&T) -> bool) -> Option<&T> {
        let matches = |place: usize| matches(&self.objects[place]);
        let place = self.keys.find(self.keys.hash(key), matches)?;
        Some(&self.objects[place])
    }

    /// Removes and returns the object that [`get_by`](Self::get_by) returns.
    pub(crate) fn remove_by(&mut self, key: &impl Hash, matches: impl Fn(&T) -> bool) -> Option<T> {
        let hash = self.keys.hash(key);
        let place = self
            .keys
            .find(hash, |place| matches(&self.objects[place]))?;
        self.keys.remove(hash, place);
        Some(self.objects.remove(place))
    }

    /// Removes and returns the object with the key of `object`.
    pub(crate) fn remove(&mut self, object: &T) -> Option<T> {
        let hash = self.keys.hash(&object.key());
        let place = self.find(hash, &object.key())?;
        self.keys.remove(hash, place);
        Some(self.objects.remove(place))
    }

    /// Returns whether the map is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.len() == 0
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the objects, whose keys the caller must not change.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.iter_mut()
    }

    /// Returns the objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.objects.iter()
    }

    /// Returns the objects, in the order of insertion if none was ever removed.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = T> {
        self.objects.into_iter()
    }

    fn find<'a>(&'a self, hash: u32, key: &T::Key<'a>) -> Option<usize> {
        self.keys
            .find(hash, |place| self.objects[place].key() == *key)
    }
}

/// Collects the first object of each key.
impl<T: Keyed> FromIterator<T> for KeyedMap<T> {
    fn from_iter<I: IntoIterator<Item = T>>(objects: I) -> Self {
        let mut map = Self::default();
        for object in objects {
            let hash = map.keys.hash(&object.key());
            if map.find(hash, &object.key()).is_none() {
                let place = map.objects.insert(object);
                map.keys.insert(hash, place);
            }
        }
        map
    }
}
