//! Objects to be found by their keys.

use std::hash::Hash;

use crate::Keyed;
use crate::index::Index;
use crate::slots::Slots;

/// Objects, at most one per key.
#[derive(Clone, Debug)]
pub(crate) struct Keep<T> {
    objects: Slots<T>,
    keys: Index,
}

impl<T> Default for Keep<T> {
    fn default() -> Self {
        Self {
            objects: Slots::default(),
            keys: Index::default(),
        }
    }
}

impl<T: Keyed> Keep<T> {
    /// Puts an object in whose key is not there yet.
    pub(crate) fn put(&mut self, object: T) {
        let hash = self.keys.hash(&object.key());
        let place = self.objects.put(object);
        self.keys.insert(hash, place);
    }

    /// Returns the object with the key of this one.
    pub(crate) fn get_like(&self, object: &T) -> Option<&T> {
        let key = object.key();
        let place = self.find(self.keys.hash(&key), &key)?;
        Some(&self.objects[place])
    }

    /// Returns the object with the key of another thing, which hashes and compares
    /// as the keys do.
    pub(crate) fn get_by(&self, key: &impl Hash, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let is_it = |place: usize| is_it(&self.objects[place]);
        let place = self.keys.find(self.keys.hash(key), is_it)?;
        Some(&self.objects[place])
    }

    /// Takes out what [`get_by`](Self::get_by) returns.
    pub(crate) fn take_by(&mut self, key: &impl Hash, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let hash = self.keys.hash(key);
        let place = self.keys.find(hash, |place| is_it(&self.objects[place]))?;
        self.keys.remove(hash, place);
        Some(self.objects.take(place))
    }

    /// Takes out the object with the key of this one.
    pub(crate) fn take_like(&mut self, object: &T) -> Option<T> {
        let hash = self.keys.hash(&object.key());
        let place = self.find(hash, &object.key())?;
        self.keys.remove(hash, place);
        Some(self.objects.take(place))
    }

    /// Tells whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.len() == 0
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the objects to be changed in all but their keys.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.iter_mut()
    }

    /// Returns the objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.objects.iter()
    }

    /// Returns the objects; what was only put in is in the order of that.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = T> {
        self.objects.into_iter()
    }

    fn find<'a>(&'a self, hash: u64, key: &T::Key<'a>) -> Option<usize> {
        self.keys
            .find(hash, |place| self.objects[place].key() == *key)
    }
}

impl<T: Keyed> FromIterator<T> for Keep<T> {
    fn from_iter<I: IntoIterator<Item = T>>(objects: I) -> Self {
        let mut keep = Self::default();
        for object in objects {
            keep.put(object);
        }
        keep
    }
}
