//! Who wants which objects, and what follows for the whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use crate::{Edit, Keyed};

/// The objects that each owner wants; the sum of them is the desired state.
///
/// Several owners may want the same key.
/// Then the least owner has it, by the order of `O`, whoever came first, and
/// the next one gets it when the winner lets go.
#[derive(Clone, Debug)]
pub struct Ledger<O, T: Keyed> {
    /// Invariant: lists exactly the keys whose [`Claims`] name the owner.
    fragments: HashMap<O, Vec<T::Key>>,
    claims: HashMap<T::Key, Claims<O, T>>,
}

/// Who claims a key. Almost all keys are claimed once, so that is cheap.
#[derive(Clone, Debug)]
enum Claims<O, T> {
    One(O, T),
    /// Invariant: at least two.
    Many(BTreeMap<O, T>),
}

impl<O, T: Keyed> Default for Ledger<O, T> {
    fn default() -> Self {
        Self {
            fragments: HashMap::new(),
            claims: HashMap::new(),
        }
    }
}

impl<O: Clone + Hash + Ord, T: Keyed> Ledger<O, T> {
    /// Returns a ledger in which nobody wants anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the desired state: the object that holds each key, in no order.
    pub fn objects(&self) -> impl Iterator<Item = &T> {
        self.claims.values().map(Claims::holder)
    }

    /// Returns the number of keys in the desired state.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Tells whether nobody wants anything.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Returns the object that holds a key.
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        self.claims.get(key).map(Claims::holder)
    }

    /// Tells whether an owner wants anything.
    pub fn owns(&self, owner: &O) -> bool {
        self.fragments.contains_key(owner)
    }

    /// Returns the owner that holds a key.
    pub fn holder(&self, key: &T::Key) -> Option<&O> {
        match self.claims.get(key)? {
            Claims::One(owner, _) => Some(owner),
            Claims::Many(claims) => claims.keys().next(),
        }
    }

    /// Replaces all that an owner wants and returns the edits that follow.
    ///
    /// Of objects with equal keys the first counts.
    /// An owner that wants nothing is forgotten.
    pub fn replace(&mut self, owner: O, objects: Vec<T>) -> Vec<Edit<T>> {
        let former = self.fragments.remove(&owner).unwrap_or_default();
        let mut edits = Vec::with_capacity(objects.len());
        let mut keys = Vec::with_capacity(objects.len());
        let mut wanted = HashSet::with_capacity(objects.len());
        for object in objects {
            let key = object.key();
            if wanted.insert(key.clone()) {
                edits.extend(self.claim(&owner, key.clone(), object));
                keys.push(key);
            }
        }
        for key in former {
            if !wanted.contains(&key) {
                edits.extend(self.release(&owner, key));
            }
        }
        if !keys.is_empty() {
            self.fragments.insert(owner, keys);
        }
        edits
    }

    /// Enters the owner's claim to a key.
    fn claim(&mut self, owner: &O, key: T::Key, object: T) -> Option<Edit<T>> {
        let Some(claims) = self.claims.get_mut(&key) else {
            self.claims
                .insert(key, Claims::One(owner.clone(), object.clone()));
            return Some(Edit::Add(object));
        };
        let before = claims.holder().clone();
        // Sharing an equal object keeps one copy for all who want the same.
        let object = if before.same(&object) {
            before.clone()
        } else {
            object
        };
        claims.insert(owner, object);
        Edit::between(Some(before), Some(claims.holder().clone()))
    }

    /// Strikes out the owner's claim to a key.
    fn release(&mut self, owner: &O, key: T::Key) -> Option<Edit<T>> {
        let claims = self.claims.get_mut(&key)?;
        let before = claims.holder().clone();
        if claims.remove(owner) {
            return Edit::between(Some(before), Some(claims.holder().clone()));
        }
        self.claims.remove(&key);
        Some(Edit::Remove(before))
    }
}

impl<O: Clone + Ord, T> Claims<O, T> {
    fn holder(&self) -> &T {
        match self {
            Self::One(_, object) => object,
            Self::Many(claims) => claims.values().next().expect("many are at least two"),
        }
    }

    fn insert(&mut self, owner: &O, object: T)
    where
        T: Clone,
    {
        match self {
            Self::One(first, held) if first == owner => *held = object,
            Self::One(first, held) => {
                let both = [(first.clone(), held.clone()), (owner.clone(), object)];
                *self = Self::Many(BTreeMap::from(both));
            }
            Self::Many(claims) => {
                claims.insert(owner.clone(), object);
            }
        }
    }

    /// Removes an owner's claim; tells whether somebody else's is left.
    fn remove(&mut self, owner: &O) -> bool {
        let Self::Many(claims) = self else {
            return false;
        };
        claims.remove(owner);
        if claims.len() == 1 {
            let (owner, object) = claims.pop_first().expect("there is one");
            *self = Self::One(owner, object);
        }
        true
    }
}
