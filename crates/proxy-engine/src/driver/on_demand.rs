//! Objects that exist while service ports use them, and for a while after.
//!
//! In mode nftables, the chain `lb-50` distributes packets to 50 endpoints, for all Services that
//! have 50. It belongs to no Service, so no plan of a Service may remove it, and it cannot be
//! part of the base, because the base does not know how many endpoints there are. So its users are
//! counted:
//!
//! ```text
//! web has 50 endpoints               lb-50 is created   lb-50: 1 user
//! mail has 50 endpoints                                 lb-50: 2 users
//! web has 51 endpoints               lb-51 is created   lb-50: 1 user, lb-51: 1 user
//! mail is deleted                                       lb-50: unused, lb-51: 1 user
//! the sync of that change, at 100 s                     lb-50: unused since 100 s
//! a poll from 130 s on               lb-50 is removed
//! ```
//!
//! The owner of such an object in the ledger is its [`Id`].
//!
//! What must stay true: an object is in `unused` if and only if it has no users, and one that uses
//! another one goes first, because the kernel rejects the removal of a chain or set in use.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use vipline_reconcile::Keyed;
use vipline_service_model::PortName;

/// Delay between the last use of an object and its removal.
///
/// A Service whose number of endpoints goes up and down uses the same objects repeatedly.
/// Kernels before 6.2 release references to a chain late, and reject the removal of the
/// chain until then: after the removal of a map element they notice only a short time later that
/// its chain is unreferenced. For that alone a second would do, which is what mode nftables of
/// upstream waits.
const REMOVAL_DELAY: Duration = Duration::from_secs(30);

/// Maximum number of unused objects that stay installed. Without it, a hundred Services whose
/// timeout of session affinity changes each second would leave thousands of chains, one for each
/// timeout, within [`REMOVAL_DELAY`].
const MAX_UNUSED: usize = 64;

/// ID of an object. IDs are never reused.
pub(crate) type Id = u64;

/// Objects that several service ports use, with the number of users.
#[derive(Debug)]
pub(super) struct OnDemand<T> {
    objects: HashMap<Id, Counted<T>>,
    /// IDs by hash of the key, which borrows from its object. More than one if hashes collide.
    ids: HashMap<u64, Vec<Id>>,
    hasher: RandomState,
    /// The objects of each service port that uses any, in the order of its plan.
    users: HashMap<Arc<PortName>, Vec<Id>>,
    /// Unused objects in order of last use, with the time of the first sync since. `None` until
    /// then: planning has no clock.
    unused: BTreeMap<u64, (Id, Option<Duration>)>,
    /// Next object ID or position in `unused`.
    next: u64,
}

/// An object and its users.
#[derive(Debug)]
struct Counted<T> {
    object: T,
    users: usize,
    /// Position in `unused`; `None` while there are users.
    unused: Option<u64>,
}

impl<T: Keyed> OnDemand<T> {
    pub(super) fn new() -> Self {
        Self {
            objects: HashMap::new(),
            ids: HashMap::new(),
            hasher: RandomState::new(),
            users: HashMap::new(),
            unused: BTreeMap::new(),
            next: 0,
        }
    }

    /// Replaces the objects that a service port uses.
    ///
    /// Returns the objects that did not exist.
    pub(super) fn replace(&mut self, name: &Arc<PortName>, objects: Vec<T>) -> Vec<(Id, T)> {
        // Modes without such objects always end here.
        if objects.is_empty() && self.users.is_empty() {
            return Vec::new();
        }
        let former = self.users.remove(name).unwrap_or_default();
        let (mut used, mut created) = (Vec::with_capacity(objects.len()), Vec::new());
        for object in objects {
            let id = self.find(&object).unwrap_or_else(|| {
                let id = self.insert(object.clone());
                created.push((id, object));
                id
            });
            // The new list before the former one is released: what is in both never becomes unused.
            // Two claims of the port may use one object, which counts once.
            if !used.contains(&id) {
                self.acquire(id);
                used.push(id);
            }
        }
        // An object that uses another one comes after it in the list, and must expire
        // before it.
        former.into_iter().rev().for_each(|id| self.release(id));
        if !used.is_empty() {
            self.users.insert(Arc::clone(name), used);
        }
        created
    }

    /// Adds objects that a service port uses, besides those of the last call. Returns the
    /// objects that did not exist.
    ///
    /// For a service port of which a part still uses the former objects.
    pub(super) fn extend(&mut self, name: &Arc<PortName>, objects: Vec<T>) -> Vec<(Id, T)> {
        let former = self.users.get(name).into_iter().flatten();
        let former: Vec<T> = former.map(|id| self.objects[id].object.clone()).collect();
        self.replace(name, former.into_iter().chain(objects).collect())
    }

    /// Removes and returns objects that have been unused for [`REMOVAL_DELAY`]. If more
    /// than [`MAX_UNUSED`] are unused, also removes those with the oldest last use.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<Id> {
        let mut excess = self.unused.len().saturating_sub(MAX_UNUSED);
        let mut expired = Vec::new();
        // In order of last use, so that the excess is taken from the oldest.
        self.unused.retain(|_, (id, since)| {
            let since = *since.get_or_insert(now);
            let stays = excess == 0 && now < since.saturating_add(REMOVAL_DELAY);
            excess = excess.saturating_sub(1);
            if !stays {
                expired.push(*id);
            }
            stays
        });
        expired.iter().for_each(|id| self.forget(*id));
        expired
    }

    /// Returns the time at which the next unused object expires.
    pub(super) fn deadline(&self) -> Option<Duration> {
        // The first one has the earliest time. Those without a time were released by a plan, and
        // the sync of that plan gives them one.
        let since = self.unused.values().find_map(|(_, since)| *since)?;
        Some(since.saturating_add(REMOVAL_DELAY))
    }

    fn find(&self, object: &T) -> Option<Id> {
        let ids = self.ids.get(&self.hasher.hash_one(object.key()))?;
        let has_key = |id: &&Id| self.objects[*id].object.key() == object.key();
        ids.iter().find(has_key).copied()
    }

    fn insert(&mut self, object: T) -> Id {
        let id = self.number();
        let hash = self.hasher.hash_one(object.key());
        self.ids.entry(hash).or_default().push(id);
        let counted = Counted {
            object,
            users: 0,
            unused: None,
        };
        self.objects.insert(id, counted);
        id
    }

    /// Forgets an object without users. The caller removes it from the ledger, by its ID.
    fn forget(&mut self, id: Id) {
        let Some(counted) = self.objects.remove(&id) else {
            return;
        };
        let hash = self.hasher.hash_one(counted.object.key());
        if let Some(ids) = self.ids.get_mut(&hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.ids.remove(&hash);
            }
        }
    }

    fn acquire(&mut self, id: Id) {
        let Some(counted) = self.objects.get_mut(&id) else {
            return;
        };
        counted.users += 1;
        if let Some(place) = counted.unused.take() {
            self.unused.remove(&place);
        }
    }

    fn release(&mut self, id: Id) {
        let place = self.number();
        let Some(counted) = self.objects.get_mut(&id) else {
            return;
        };
        counted.users -= 1;
        if counted.users == 0 {
            counted.unused = Some(place);
            self.unused.insert(place, (id, None));
        }
    }

    /// The next number. An object that is released again gets a new position, behind those that
    /// were released in the meantime.
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
