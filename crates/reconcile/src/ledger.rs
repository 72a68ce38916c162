//! Who wants which objects, and what follows for the whole.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::mem;

use crate::index::Index;
use crate::slots::Slots;
use crate::{Edit, Keyed};

/// The objects that each owner wants; the sum of them is the desired state.
///
/// Several owners may want the same key.
/// Then the least owner has it, by the order of `O`, whoever came first, and
/// the next one gets it when the winner lets go.
#[derive(Clone, Debug)]
pub struct Ledger<O, T> {
    fragments: Slots<Fragment<O>>,
    owners: Index,
    slots: Slots<Slot<O, T>>,
    keys: Index,
    /// How often something was replaced.
    round: u64,
}

/// What an owner wants.
#[derive(Clone, Debug)]
struct Fragment<O> {
    owner: O,
    /// Invariant: lists exactly the slots whose [`Claims`] name the owner, and
    /// there is one.
    places: Vec<usize>,
}

/// A key that is claimed.
#[derive(Clone, Debug)]
struct Slot<O, T> {
    claims: Claims<O, T>,
    /// The round in which it was claimed last.
    round: u64,
}

/// Who claims a key. Almost all keys are claimed once, so that is cheap.
#[derive(Clone, Debug)]
enum Claims<O, T> {
    One(O, T),
    /// Invariant: at least two.
    Many(BTreeMap<O, T>),
}

impl<O, T> Default for Ledger<O, T> {
    fn default() -> Self {
        Self {
            fragments: Slots::default(),
            owners: Index::default(),
            slots: Slots::default(),
            keys: Index::default(),
            round: 0,
        }
    }
}

impl<O: Clone + Hash + Ord, T: Keyed> Ledger<O, T> {
    /// Returns a ledger in which nobody wants anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the desired state: the object that holds each key.
    ///
    /// Equal histories give an equal order.
    pub fn objects(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| slot.claims.holder())
    }

    /// Returns the number of keys in the desired state.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Tells whether nobody wants anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the object that holds a key.
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        let place = self.find(self.keys.hash(key), key)?;
        Some(self.slots[place].claims.holder())
    }

    /// Tells whether an owner wants anything.
    pub fn owns(&self, owner: &O) -> bool {
        self.find_owner(self.owners.hash(owner), owner).is_some()
    }

    /// Returns the owner that holds a key.
    pub fn holder(&self, key: &T::Key) -> Option<&O> {
        let place = self.find(self.keys.hash(key), key)?;
        match &self.slots[place].claims {
            Claims::One(owner, _) => Some(owner),
            Claims::Many(claims) => claims.keys().next(),
        }
    }

    /// Replaces all that an owner wants and returns the edits that follow.
    ///
    /// Of objects with equal keys the first counts.
    /// An owner that wants nothing is forgotten.
    pub fn replace(&mut self, owner: O, objects: Vec<T>) -> Vec<Edit<T>> {
        self.round += 1;
        let mut edits = Vec::with_capacity(objects.len());
        let mut places = Vec::with_capacity(objects.len());
        for object in objects {
            if let Some((place, edit)) = self.claim(&owner, object) {
                places.push(place);
                edits.extend(edit);
            }
        }
        for place in self.enter(&owner, places) {
            if self.slots[place].round != self.round {
                edits.extend(self.release(&owner, place));
            }
        }
        edits
    }

    /// Notes which places an owner claims and returns those it claimed before.
    fn enter(&mut self, owner: &O, places: Vec<usize>) -> Vec<usize> {
        let hash = self.owners.hash(owner);
        match self.find_owner(hash, owner) {
            Some(at) if places.is_empty() => {
                self.owners.remove(hash, at);
                self.fragments.take(at).places
            }
            Some(at) => mem::replace(&mut self.fragments[at].places, places),
            None if places.is_empty() => places,
            None => {
                let owner = owner.clone();
                let at = self.fragments.put(Fragment { owner, places });
                self.owners.insert(hash, at);
                Vec::new()
            }
        }
    }

    /// Enters the owner's claim to a key, unless this round has seen one.
    fn claim(&mut self, owner: &O, object: T) -> Option<(usize, Option<Edit<T>>)> {
        let key = object.key();
        let hash = self.keys.hash(&key);
        let round = self.round;
        let Some(place) = self.find(hash, &key) else {
            let claims = Claims::One(owner.clone(), object.clone());
            let place = self.slots.put(Slot { claims, round });
            self.keys.insert(hash, place);
            return Some((place, Some(Edit::Add(object))));
        };
        let slot = &mut self.slots[place];
        if slot.round == round {
            return None;
        }
        slot.round = round;
        let before = slot.claims.holder().clone();
        // Sharing an equal object keeps one copy for all who want the same.
        let object = if before.same(&object) {
            before.clone()
        } else {
            object
        };
        slot.claims.insert(owner, object);
        let after = slot.claims.holder().clone();
        Some((place, Edit::between(Some(before), Some(after))))
    }

    /// Strikes out the owner's claim to the key at a place.
    fn release(&mut self, owner: &O, place: usize) -> Option<Edit<T>> {
        let claims = &mut self.slots[place].claims;
        let before = claims.holder().clone();
        if claims.remove(owner) {
            return Edit::between(Some(before), Some(claims.holder().clone()));
        }
        self.keys.remove(self.keys.hash(&before.key()), place);
        self.slots.take(place);
        Some(Edit::Remove(before))
    }

    fn find(&self, hash: u64, key: &T::Key) -> Option<usize> {
        let has_key = |place: usize| self.slots[place].claims.holder().key() == *key;
        self.keys.find(hash, has_key)
    }

    fn find_owner(&self, hash: u64, owner: &O) -> Option<usize> {
        self.owners
            .find(hash, |at| self.fragments[at].owner == *owner)
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
