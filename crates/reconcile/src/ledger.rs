//! The desired state as the sum of the objects that owners want.
//!
//! One Service of ten thousand changes, and its plan is a new list of objects. Which edits is
//! that? Some objects are the same as before, and some of those that are gone from the list are
//! still wanted by another Service. The sum of all lists would tell, but it costs as much as ten
//! thousand Services. The ledger keeps the sum, and for each owner which keys it claims, so that
//! [`replace`](Ledger::replace) looks only at the old and the new list of one owner.
//!
//! For example, two Services want the key `10.96.0.10:80`, `mail` with value M and `web` with W.
//! The least owner by name holds it:
//!
//! ```text
//!                                   edits                      claims to 10.96.0.10:80
//! replace("web",  [W, chain])       Add(W), Add(chain)         web: W
//! replace("mail", [M])              Change(W, M)               mail: M (holder), web: W
//! replace("web",  [W])              Remove(chain)              mail: M (holder), web: W
//! replace("mail", [])               Change(M, W)               web: W
//! ```
//!
//! Two tables lead to each other. A *fragment* is an owner with the places of its keys, and a
//! *slot* is a key with its [`Claims`], one for each owner. Both are lists with stable places, and
//! hash indexes lead to them. Keys are not stored: the objects have them.
//!
//! What must stay true:
//!
//! - An owner's fragment lists a slot if and only if the slot's claims have the owner.
//! - The result depends on what the owners want now, and not on the order in which they said so.
//!   After a restart the order is another one, and the kernel must stay as it is.

use std::hash::Hash;
use std::mem;

use crate::claims::Claims;
use crate::index::{Index, narrow, wide};
use crate::slab::Slab;
use crate::{Edit, Keyed, Pending};

/// The objects that each owner wants; their sum is the desired state.
///
/// Several owners may claim the same key.
/// The least owner, by the order of `O`, holds the key, regardless of the order of the
/// claims. After the holder releases the key, the next owner holds it.
#[derive(Clone, Debug)]
pub struct Ledger<O, T> {
    fragments: Slab<Fragment<O>>,
    owners: Index,
    slots: Slab<Slot<O, T>>,
    keys: Index,
    /// Number of calls to [`replace`](Self::replace) that changed or repeated claims.
    ///
    /// A slot whose round equals it was claimed in the current call. So the call needs no set of
    /// the new keys to find out which of the owner's former ones are to be released.
    round: u64,
    /// Reused buffer for the slots of an owner. Empty between two calls.
    places: Vec<u32>,
}

/// The objects of one owner.
#[derive(Clone, Debug)]
pub(crate) struct Fragment<O> {
    pub(crate) owner: O,
    /// Invariant: not empty; contains exactly the slots whose [`Claims`] include the
    /// owner.
    pub(crate) places: Box<[u32]>,
}

/// A claimed key.
#[derive(Clone, Debug)]
struct Slot<O, T> {
    claims: Claims<O, T>,
    /// Round of the last claim, by whichever owner.
    round: u64,
}

impl<O, T> Default for Ledger<O, T> {
    fn default() -> Self {
        Self {
            fragments: Slab::default(),
            owners: Index::default(),
            slots: Slab::default(),
            keys: Index::default(),
            round: 0,
            places: Vec::new(),
        }
    }
}

impl<O: Clone + Hash + Ord, T: Keyed> Ledger<O, T> {
    /// Creates an empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves capacity for additional owners and objects.
    pub fn reserve(&mut self, owners: usize, objects: usize) {
        self.fragments.reserve(owners);
        self.owners.reserve(owners);
        self.slots.reserve(objects);
        self.keys.reserve(objects);
    }

    /// Returns the desired state: the object of the holder of each key.
    ///
    /// The order is unspecified, but equal histories of the ledger result in equal
    /// orders.
    pub fn objects(&self) -> impl Iterator<Item = &T> + Clone {
        self.slots.iter().map(|slot| slot.claims.holder())
    }

    /// Returns the desired state with the owner of each object.
    pub fn objects_with_owners(&self) -> impl Iterator<Item = (&O, &T)> {
        self.slots.iter().filter_map(|slot| {
            let owner = slot.claims.owners(&self.fragments).next()?;
            Some((owner, slot.claims.holder()))
        })
    }

    /// Returns the number of keys in the desired state.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the desired state is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the object of the holder of a key.
    pub fn get<'a>(&'a self, key: &T::Key<'a>) -> Option<&'a T> {
        let place = self.find(self.keys.hash(key), key)?;
        Some(self.slots[place].claims.holder())
    }

    /// Returns the objects that an owner wants, also those under keys that others hold.
    pub fn objects_of(&self, owner: &O) -> impl Iterator<Item = &T> {
        let at = self.find_owner(self.owners.hash(owner), owner);
        let fragment = at.map(|at| (at, &self.fragments[at]));
        fragment.into_iter().flat_map(move |(at, fragment)| {
            let object = move |&place: &u32| {
                self.slots[wide(place)]
                    .claims
                    .object_of(at, &self.fragments)
            };
            fragment.places.iter().filter_map(object)
        })
    }

    /// Returns the keys that an owner claims.
    ///
    /// The cost per key does not depend on the number of its claimants.
    pub fn keys_of(&self, owner: &O) -> impl Iterator<Item = T::Key<'_>> {
        let at = self.find_owner(self.owners.hash(owner), owner);
        let places = at.map_or(&[][..], |at| &self.fragments[at].places);
        let keys = places.iter();
        keys.map(|&place| self.slots[wide(place)].claims.holder().key())
    }

    /// Returns whether an owner wants any object.
    pub fn contains_owner(&self, owner: &O) -> bool {
        self.find_owner(self.owners.hash(owner), owner).is_some()
    }

    /// Returns the owners that claim a key, starting with its holder. Many owners of a
    /// [common](Keyed::is_common) object have no order.
    pub fn claimants<'a>(&'a self, key: &T::Key<'a>) -> impl Iterator<Item = &'a O> {
        let place = self.find(self.keys.hash(key), key);
        let claims = place.map(|place| self.slots[place].claims.owners(&self.fragments));
        claims.into_iter().flatten()
    }

    /// Returns the number of owners that claim a key.
    pub fn claim_count<'a>(&'a self, key: &T::Key<'a>) -> usize {
        let place = self.find(self.keys.hash(key), key);
        place.map_or(0, |place| self.slots[place].claims.len())
    }

    /// Replaces all objects of an owner.
    ///
    /// The resulting edits of the desired state are added to `pending`. Pass `None` if nobody
    /// needs them, because the next commit compares the whole desired state with a dump.
    /// Only the first of several objects with equal keys counts.
    /// Without objects, the owner is removed.
    ///
    /// Returns whether another owner claims a key of the owner's former or new objects, except
    /// [common](Keyed::is_common) objects.
    pub fn replace(
        &mut self,
        owner: O,
        objects: impl IntoIterator<Item = T>,
        mut pending: Option<&mut Pending<T>>,
    ) -> bool {
        let hash = self.owners.hash(&owner);
        let existing = self.find_owner(hash, &owner);
        let mut objects = objects.into_iter().peekable();
        if existing.is_none() && objects.peek().is_none() {
            return false;
        }
        self.round += 1;
        let mut is_contested = false;
        let owner = existing.unwrap_or_else(|| self.insert_owner(hash, owner));
        // New claims first: a key that the owner keeps is compared with its former object, instead
        // of being removed and added.
        for object in objects {
            if let Some(place) = self.claim(owner, object, pending.as_deref_mut()) {
                is_contested |= self.slots[place].claims.is_contested();
                self.places.push(narrow(place));
            }
        }
        let places = self.places.drain(..).collect();
        for place in mem::replace(&mut self.fragments[owner].places, places) {
            let place = wide(place);
            // Not claimed again. No other owner can have claimed the slot in this round.
            if self.slots[place].round != self.round {
                is_contested |= self.release(owner, place, pending.as_deref_mut());
            }
        }
        if self.fragments[owner].places.is_empty() {
            // The next new owner gets the index. No claim has it anymore, because each place of
            // the fragment was released above.
            self.fragments.remove(owner);
            self.owners.remove(hash, owner);
        }
        is_contested
    }

    /// Adds an owner without claims, and returns the index of its fragment. The caller adds claims,
    /// or removes the fragment: an owner without any is not stored.
    fn insert_owner(&mut self, hash: u32, owner: O) -> usize {
        let places = Box::default();
        let place = self.fragments.insert(Fragment { owner, places });
        self.owners.insert(hash, place);
        place
    }

    /// Adds the owner's claim to a key, and returns the index of the slot.
    ///
    /// Returns `None` if the owner claimed the key in this round already.
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
            let place = self.slots.insert(Slot { claims, round });
            self.keys.insert(hash, place);
            return Some(place);
        };
        let slot = &mut self.slots[place];
        if slot.round == round {
            return None;
        }
        slot.round = round;
        // One of many owners of an object such as the element of a network in `service-networks`,
        // and the usual case there: nothing changes for the kernel, so nothing is compared.
        if slot.claims.share(owner, &object) {
            return Some(place);
        }
        let before = slot.claims.holder().clone();
        // Equivalent objects of several owners share memory.
        let object = if before.is_equivalent(&object) {
            before.clone()
        } else {
            object
        };
        slot.claims.insert(owner, object, &self.fragments);
        push_change(before, slot.claims.holder(), pending);
        Some(place)
    }

    /// Removes the owner's claim to the key of a slot.
    ///
    /// Returns whether claims of other owners remain, unless the object is common.
    fn release(&mut self, owner: usize, place: usize, pending: Option<&mut Pending<T>>) -> bool {
        let claims = &mut self.slots[place].claims;
        let before = claims.holder().clone();
        if claims.remove(owner, &self.fragments) {
            let is_common = before.is_common();
            push_change(before, claims.holder(), pending);
            return !is_common;
        }
        // That was the only claim. `before` has the key, which is not stored by itself.
        self.keys.remove(self.keys.hash(&before.key()), place);
        self.slots.remove(place);
        if let Some(pending) = pending {
            pending.push(Edit::Remove(before));
        }
        false
    }

    fn find<'a>(&'a self, hash: u32, key: &T::Key<'a>) -> Option<usize> {
        // All objects of a slot have the same key, so that of the holder is as good as any.
        let has_key = |place: usize| self.slots[place].claims.holder().key() == *key;
        self.keys.find(hash, has_key)
    }

    fn find_owner(&self, hash: u32, owner: &O) -> Option<usize> {
        self.owners
            .find(hash, |at| self.fragments[at].owner == *owner)
    }
}

/// Adds the edit from the former to the current object of a key.
fn push_change<T: Keyed>(before: T, after: &T, pending: Option<&mut Pending<T>>) {
    if let Some(pending) = pending {
        pending.extend(Edit::between(Some(before), Some(after.clone())));
    }
}
