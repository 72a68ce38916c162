//! Who wants which objects, and what follows for the whole.

use std::hash::Hash;
use std::mem;

use crate::claims::Claims;
use crate::index::Index;
use crate::slots::Slots;
use crate::{Edit, Keyed, Pending};

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
pub(crate) struct Fragment<O> {
    pub(crate) owner: O,
    /// Invariant: lists exactly the slots whose [`Claims`] name the owner, and
    /// there is one.
    pub(crate) places: Vec<usize>,
}

/// A key that is claimed.
#[derive(Clone, Debug)]
struct Slot<O, T> {
    claims: Claims<O, T>,
    /// The round in which it was claimed last.
    round: u64,
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

    /// Makes room for so many owners more, who want so many objects.
    pub fn reserve(&mut self, owners: usize, objects: usize) {
        self.fragments.reserve(owners);
        self.owners.reserve(owners);
        self.slots.reserve(objects);
        self.keys.reserve(objects);
    }

    /// Returns the desired state: the object that holds each key.
    ///
    /// Equal histories give an equal order.
    pub fn objects(&self) -> impl Iterator<Item = &T> + Clone {
        self.slots.iter().map(|slot| slot.claims.holder())
    }

    /// Returns the desired state with the owner of each object.
    pub fn holders(&self) -> impl Iterator<Item = (&O, &T)> {
        self.slots.iter().filter_map(|slot| {
            let owner = slot.claims.owners(&self.fragments).next()?;
            Some((owner, slot.claims.holder()))
        })
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
    pub fn get<'a>(&'a self, key: &T::Key<'a>) -> Option<&'a T> {
        let place = self.find(self.keys.hash(key), key)?;
        Some(self.slots[place].claims.holder())
    }

    /// Returns what an owner wants.
    pub fn wanted(&self, owner: &O) -> impl Iterator<Item = &T> {
        let at = self.find_owner(self.owners.hash(owner), owner);
        let fragment = at.map(|at| (at, &self.fragments[at]));
        fragment.into_iter().flat_map(move |(at, fragment)| {
            let of_owner = move |place: &usize| self.slots[*place].claims.of(at, &self.fragments);
            fragment.places.iter().filter_map(of_owner)
        })
    }

    /// Returns the keys that an owner wants.
    ///
    /// A key costs the same regardless of the number of its claimants.
    pub fn keys_of(&self, owner: &O) -> impl Iterator<Item = T::Key<'_>> {
        let at = self.find_owner(self.owners.hash(owner), owner);
        let places = at.map_or(&[][..], |at| &self.fragments[at].places);
        let keys = places.iter();
        keys.map(|&place| self.slots[place].claims.holder().key())
    }

    /// Tells whether an owner wants anything.
    pub fn owns(&self, owner: &O) -> bool {
        self.find_owner(self.owners.hash(owner), owner).is_some()
    }

    /// Returns all who want a key, the one that holds it first.
    pub fn claimants<'a>(&'a self, key: &T::Key<'a>) -> impl Iterator<Item = &'a O> {
        let place = self.find(self.keys.hash(key), key);
        let claims = place.map(|place| self.slots[place].claims.owners(&self.fragments));
        claims.into_iter().flatten()
    }

    /// Returns the number of owners that want a key.
    pub fn claim_count<'a>(&'a self, key: &T::Key<'a>) -> usize {
        let place = self.find(self.keys.hash(key), key);
        place.map_or(0, |place| self.slots[place].claims.len())
    }

    /// Replaces all that an owner wants.
    ///
    /// The edits that follow are added to those `pending`, if anybody wants them.
    /// Of objects with equal keys the first counts.
    /// An owner that wants nothing is forgotten.
    ///
    /// Tells whether anybody else wants a key that the owner wants or wanted.
    pub fn replace(
        &mut self,
        owner: O,
        objects: impl IntoIterator<Item = T>,
        mut pending: Option<&mut Pending<T>>,
    ) -> bool {
        let hash = self.owners.hash(&owner);
        let known = self.find_owner(hash, &owner);
        let mut objects = objects.into_iter().peekable();
        if known.is_none() && objects.peek().is_none() {
            return false;
        }
        self.round += 1;
        let mut is_shared = false;
        let mut places = Vec::with_capacity(objects.size_hint().1.unwrap_or_default());
        let owner = known.unwrap_or_else(|| self.enter(hash, owner));
        for object in objects {
            if let Some(place) = self.claim(owner, object, pending.as_deref_mut()) {
                is_shared |= self.slots[place].claims.is_shared();
                places.push(place);
            }
        }
        for place in mem::replace(&mut self.fragments[owner].places, places) {
            if self.slots[place].round != self.round {
                is_shared |= self.release(owner, place, pending.as_deref_mut());
            }
        }
        if self.fragments[owner].places.is_empty() {
            self.fragments.take(owner);
            self.owners.remove(hash, owner);
        }
        is_shared
    }

    /// Makes a fragment for an owner, and returns its place.
    fn enter(&mut self, hash: u64, owner: O) -> usize {
        let places = Vec::new();
        let place = self.fragments.put(Fragment { owner, places });
        self.owners.insert(hash, place);
        place
    }

    /// Enters the owner's claim to a key, unless this round has seen one.
    fn claim(
        &mut self,
        owner: usize,
        object: T,
        pending: Option<&mut Pending<T>>,
    ) -> Option<usize> {
        let hash = self.keys.hash(&object.key());
        let round = self.round;
        let Some(place) = self.find(hash, &object.key()) else {
            if let Some(pending) = pending {
                pending.push(Edit::Add(object.clone()));
            }
            let claims = Claims::One(owner, object);
            let place = self.slots.put(Slot { claims, round });
            self.keys.insert(hash, place);
            return Some(place);
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
        slot.claims.insert(owner, object, &self.fragments);
        passes(before, slot.claims.holder(), pending);
        Some(place)
    }

    /// Strikes out the owner's claim to the key at a place; tells whether
    /// somebody else's is left.
    fn release(&mut self, owner: usize, place: usize, pending: Option<&mut Pending<T>>) -> bool {
        let claims = &mut self.slots[place].claims;
        let before = claims.holder().clone();
        if claims.remove(owner, &self.fragments) {
            passes(before, claims.holder(), pending);
            return true;
        }
        self.keys.remove(self.keys.hash(&before.key()), place);
        self.slots.take(place);
        if let Some(pending) = pending {
            pending.push(Edit::Remove(before));
        }
        false
    }

    fn find<'a>(&'a self, hash: u64, key: &T::Key<'a>) -> Option<usize> {
        let has_key = |place: usize| self.slots[place].claims.holder().key() == *key;
        self.keys.find(hash, has_key)
    }

    fn find_owner(&self, hash: u64, owner: &O) -> Option<usize> {
        self.owners
            .find(hash, |at| self.fragments[at].owner == *owner)
    }
}

/// Notes that a key is held by one object and then by another.
fn passes<T: Keyed>(before: T, after: &T, pending: Option<&mut Pending<T>>) {
    if let Some(pending) = pending {
        pending.extend(Edit::between(Some(before), Some(after.clone())));
    }
}
