//! Rejected objects and the Services that own them.
//!
//! The kernel rejects an *object*, for example the element `10.96.0.10 . tcp . 80` of a map. An
//! operator needs the name of a *Service*, and a change of that Service must retry the object at
//! once. So each rejection gets an owner when it is new, and keeps it:
//!
//! 1. The reconciler reports objects that were rejected for the first time.
//! 2. [`find_owners`] looks for the service ports that want them. A removed object has no owner in
//!    the ledger any more; for those [`FormerOwners`] has the port that gave it up.
//! 3. [`Registry`] keeps object and description by Service, until the reconciler knows no rejection
//!    of the object any more.
//!
//! Similar names: `Rejected` of `vipline-reconcile` is an object with the times of its retries.
//! [`RejectedObject`] is its description for people. [`KnownRejections`] are descriptions from
//! *another process*: `diff` asks the running proxy what its kernel rejects, and does not show that
//! as a difference.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use vipline_reconcile::{Cause, Edit, Keyed, Ledger, Reason, Reconciler, Rejected, Target};
use vipline_service_model::{Family, ObjectName, PortName};

use crate::entry::{Entry, HashedName, Key, Owner};
use crate::{AddressKind, Planner};

/// An object that the kernel rejected. All other objects were installed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RejectedObject {
    /// The service port that owns the object, or owned it before its removal. One of them if
    /// several want the object.
    ///
    /// `None` if the object depends on no Service, if it [stays](Planner::is_removal_delayed)
    /// after its last use, or if it is to be removed and an earlier process installed it.
    pub owner: Option<Arc<PortName>>,
    /// The object, as the mode's native tool names it.
    pub object: String,
    /// Whether the rejected edit removes the object.
    pub is_removal: bool,
    /// Whether the object does not depend on Services: all of them work without it, but not
    /// completely.
    pub is_of_all: bool,
    /// Reason for the rejection.
    pub reason: Reason,
}

/// Displays as `shop/web:http: -a -t 10.96.0.1:80 -r 10.1.0.255:80: invalid argument`.
impl fmt::Display for RejectedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(owner) = &self.owner {
            write!(f, "{owner}: ")?;
        }
        if self.is_of_all {
            f.write_str("for all Services: ")?;
        }
        if self.is_removal {
            f.write_str("removal of ")?;
        }
        let because = match self.reason.cause {
            Cause::Rejected | Cause::Conflict => "",
            Cause::Dependent => "another object that it needs was rejected: ",
            Cause::Untested => "left out, because too many other objects were rejected: ",
        };
        write!(f, "{}: {because}{}", self.object, self.reason)
    }
}

/// Rejected objects of a kernel, by Service.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    hasher: RandomState,
    /// Objects by Service and by the hash of their keys: a key borrows from its object, and cannot
    /// stand beside it in a map. Objects whose hashes of 64 bits collide would replace each other
    /// in reports; the reconciler retries both.
    objects: HashMap<Option<ObjectName>, HashMap<u64, Registered<T>>>,
}

/// A rejected object and its description.
#[derive(Debug)]
struct Registered<T> {
    object: T,
    described: Arc<RejectedObject>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            objects: HashMap::new(),
        }
    }
}

impl<T: Keyed> Registry<T> {
    /// Adds or replaces a rejected object.
    pub(crate) fn insert(&mut self, object: T, described: Arc<RejectedObject>) {
        let service = described.owner.as_ref().map(|name| name.service_name());
        let hash = self.hasher.hash_one(object.key());
        let objects = self.objects.entry(service).or_default();
        objects.insert(hash, Registered { object, described });
    }

    /// Returns the rejected objects of the Service that a port belongs to.
    pub(crate) fn of_service(&self, name: &PortName) -> impl Iterator<Item = &T> {
        // Each change of a Service asks, and usually nothing is rejected: then no name is built.
        let objects = if self.objects.is_empty() {
            None
        } else {
            self.objects.get(&Some(name.service_name()))
        };
        let registered = objects.into_iter().flat_map(HashMap::values);
        registered.map(|registered| &registered.object)
    }

    /// Returns the descriptions of all rejected objects, in no particular order.
    pub(crate) fn described(&self) -> impl Iterator<Item = &Arc<RejectedObject>> {
        let registered = self.objects.values().flat_map(HashMap::values);
        registered.map(|registered| &registered.described)
    }

    /// Removes objects that are no longer rejected, and updates the reasons of the
    /// others.
    pub(crate) fn refresh<K: Target<Object = T>>(&mut self, reconciler: &Reconciler<K>) {
        self.objects.retain(|_, objects| {
            objects.retain(|_, registered| {
                let rejection = reconciler.rejection(&registered.object);
                if let Some(rejection) = rejection {
                    registered.update_reason(&rejection.reason);
                }
                // The rejection of a removal after that of an addition is a new one, which the
                // reconciler reports. Its owner may be another one, so the old entry would stay
                // beside it.
                let is_removal = registered.described.is_removal;
                rejection.is_some_and(|rejection| rejection.is_removal == is_removal)
            });
            !objects.is_empty()
        });
    }
}

impl<T> Registered<T> {
    fn update_reason(&mut self, reason: &Reason) {
        if self.described.reason != *reason {
            let described = Arc::make_mut(&mut self.described);
            described.reason = reason.clone();
        }
    }
}

/// Service ports that owned removed objects, by the hash of the object's key.
///
/// Only from the plan of a removal until the next sync that succeeds: after that, a rejected
/// removal has its owner in the [`Registry`].
#[derive(Debug, Default)]
pub(crate) struct FormerOwners {
    hasher: RandomState,
    ports: HashMap<u64, HashedName>,
}

impl FormerOwners {
    /// Records that a port no longer wants an object.
    pub(crate) fn insert<T: Keyed>(&mut self, object: &T, port: &HashedName) {
        let hash = self.hasher.hash_one(object.key());
        self.ports.insert(hash, port.clone());
    }

    /// Returns the port that owned an object.
    pub(crate) fn get<T: Keyed>(&self, object: &T) -> Option<&HashedName> {
        self.ports.get(&self.hasher.hash_one(object.key()))
    }

    /// Removes all records, and gives their memory back: `clear` of the map would keep room for as
    /// many as the largest removal had.
    pub(crate) fn clear(&mut self) {
        self.ports = HashMap::new();
    }
}

/// Rejected objects that another process reports, for
/// [`Engine::difference_except`](crate::Engine::difference_except).
///
/// The other process is the kube-proxy that runs on the node.
#[derive(Clone, Debug, Default)]
pub struct KnownRejections(HashSet<(Family, bool, String)>);

impl KnownRejections {
    /// Adds an object by its [text](RejectedObject::object). `is_removal` is
    /// [`RejectedObject::is_removal`].
    pub fn insert(&mut self, family: Family, is_removal: bool, object: String) {
        self.0.insert((family, is_removal, object));
    }

    /// Splits off the edits of known objects. Returns the other edits and the number of
    /// known ones.
    pub(crate) fn split<P: Planner>(
        &self,
        family: Family,
        edits: Vec<Edit<P::Object>>,
    ) -> (Vec<Edit<P::Object>>, usize) {
        if self.0.is_empty() {
            return (edits, 0);
        }
        let is_known = |edit: &Edit<P::Object>| {
            let is_removal = matches!(edit, Edit::Remove(_));
            let text = P::text(edit.object());
            self.0.contains(&(family, is_removal, text))
        };
        let count = edits.len();
        let others: Vec<_> = edits.into_iter().filter(|edit| !is_known(edit)).collect();
        let known = count - others.len();
        (others, known)
    }
}

/// Returns the owner of each rejected object.
///
/// Ports that `changed` since the last sync are searched first; with `None`, only the
/// whole ledger is searched. Owners of removed objects come from `former`.
pub(crate) fn find_owners<T: Keyed>(
    ledger: &Ledger<Owner, Entry<T>>,
    former: &FormerOwners,
    rejected: &[Rejected<T>],
    changed: Option<&[HashedName]>,
) -> Vec<Option<Owner>> {
    let former_owner = |rejected: &Rejected<T>| {
        // An object may have been removed and added again since the last sync. Then the ledger
        // knows its owner.
        let port = former
            .get(&rejected.object)
            .filter(|_| rejected.is_removal)?;
        // Any kind: the caller reads the name only.
        Some(Owner::Port(AddressKind::ClusterIp, port.clone()))
    };
    let mut owners: Vec<Option<Owner>> = rejected.iter().map(former_owner).collect();
    let mut unknown = HashMap::new();
    let wanted = rejected.iter().enumerate();
    for (index, rejected) in wanted.filter(|(_, rejected)| !rejected.is_removal) {
        owners[index] = ledger
            .claimants(&Key::Object(rejected.object.key()))
            .next()
            .cloned();
        // An object of an address: the ledger knows the address, but not the object, so entries
        // are searched for it below.
        if owners[index].is_none() {
            unknown.insert(rejected.object.key(), index);
        }
    }
    let ports = changed.into_iter().flatten().flat_map(|name| {
        let of_kind = |kind| Owner::Port(kind, name.clone());
        AddressKind::ALL.map(of_kind)
    });
    for owner in ports {
        for object in ledger.objects_of(&owner).flat_map(Entry::objects) {
            if let Some(&index) = unknown.get(&object.key()) {
                owners[index] = Some(owner.clone());
            }
        }
    }
    if unknown.values().all(|&index| owners[index].is_some()) {
        return owners;
    }
    // Slow, but rare: after a dump, or if the port of an object did not change since the last sync.
    for (owner, entry) in ledger.objects_with_owners() {
        for object in entry.objects() {
            if let Some(&index) = unknown.get(&object.key()) {
                owners[index] = Some(owner.clone());
            }
        }
    }
    owners
}
