//! Entries of a driver's ledger and their owners.
//!
//! Two Services may claim one address: both have `externalIPs: [203.0.113.9]` and port 80.
//! In nftables that is an element of a map for the address, one or more for source ranges, one
//! for masquerading. One Service must get *all* of them, or packets would match rules of both.
//!
//! So the ledger does not hold these objects one by one. All objects for
//! `203.0.113.9:80/TCP` are one [`Entry`] whose key is the address. The ledger gives each key to
//! its least owner, and [`Owner`] sorts as the precedence of claims does, so that "one Service
//! gets the whole address" needs no check: it is what a key means. When the winner withdraws,
//! the entry of the second becomes the value of the key, and `edits` turns the change of the
//! entry into edits of single objects.
//!
//! The second reason is memory: with ten objects an address the ledger has a tenth of the
//! entries.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::slice;
use std::sync::Arc;

use vipline_reconcile::{Edit, Keyed, diff};
use vipline_service_model::PortName;

use crate::driver::Id;
use crate::{Address, AddressKind};

/// Owner of objects, in order of precedence.
///
/// All owners of an object want the same contents. Claims to one address compare by kind,
/// then by the age of the Service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Owner {
    /// Objects that do not depend on Services.
    Base,
    /// Objects of a service port for its addresses of one kind. Objects without an
    /// address belong to the first kind.
    Port(AddressKind, HashedName),
    /// An object that several service ports use. It outlives its last user for a while.
    OnDemand(Id),
}

/// Hashes one number, because lookups are frequent: a plan of a port looks up an owner for each
/// kind of address. The names of namespace, Service and port are the same in all of them, and are
/// hashed once, in [`HashedName::new`]. Numbers of different variants may collide; `Eq` tells them
/// apart.
impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(match self {
            Self::Base => 0,
            Self::Port(kind, name) => name.hash.wrapping_add(*kind as u64),
            Self::OnDemand(id) => *id,
        });
    }
}

/// The name of a service port with its hash, which the owners of all kinds of addresses
/// share.
///
/// Sorts by the name, which sorts by the age of the Service first: the hash must have no part in
/// the order, because the order decides who gets a contested address.
#[derive(Clone, Debug)]
pub(crate) struct HashedName {
    hash: u64,
    name: Arc<PortName>,
}

impl HashedName {
    /// Hashes a name. All names that are compared must have the same `hasher`: equal names with
    /// different hashes count as different.
    pub(crate) fn new(name: &Arc<PortName>, hasher: &RandomState) -> Self {
        Self {
            hash: hasher.hash_one(name),
            name: Arc::clone(name),
        }
    }

    /// The name without its hash, for reports.
    pub(crate) fn name(&self) -> &Arc<PortName> {
        &self.name
    }
}

impl Hash for HashedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Eq for HashedName {}

impl PartialEq for HashedName {
    fn eq(&self, other: &Self) -> bool {
        // The hash is the quick part: different names nearly always have different hashes.
        self.hash == other.hash && self.name == other.name
    }
}

impl Ord for HashedName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl PartialOrd for HashedName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A ledger entry: one object, or all objects for an address.
#[derive(Clone, Debug)]
pub(crate) enum Entry<T> {
    /// An object without an address, such as the chain of an endpoint.
    Object(T),
    /// Objects of an address. No other entry contains one of their keys.
    Address(Address, Box<[T]>),
}

impl<T> Entry<T> {
    /// The objects that the entry adds to the kernel: one, or all of its address.
    pub(crate) fn objects(&self) -> &[T] {
        match self {
            Self::Object(object) => slice::from_ref(object),
            Self::Address(_, objects) => objects,
        }
    }
}

impl<T: Keyed> Keyed for Entry<T> {
    type Key<'a>
        = Key<'a, T>
    where
        T: 'a;

    fn key(&self) -> Key<'_, T> {
        match self {
            Self::Object(object) => Key::Object(object.key()),
            Self::Address(address, _) => Key::Address(*address),
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        // In order, because a planner is a pure function, and its list has the same order each
        // time. Another order would only cost a comparison: `edits` finds no difference then.
        let [these, others] = [self, other].map(Self::objects);
        let same = |(one, other): (&T, &T)| one.key() == other.key() && one.is_equivalent(other);
        these.len() == others.len() && these.iter().zip(others).all(same)
    }

    /// Service ports contest addresses, and share other objects: one without an address is
    /// the same for all that want it, as the chain of an endpoint is for two ports that lead to it.
    fn is_common(&self) -> bool {
        matches!(self, Self::Object(_))
    }
}

/// Key of an entry. The key of an object and an address may have the same hash; `Eq` tells them
/// apart.
pub(crate) enum Key<'a, T: Keyed + 'a> {
    Object(T::Key<'a>),
    Address(Address),
}

impl<'a, T: Keyed + 'a> fmt::Debug for Key<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(key) => key.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl<'a, T: Keyed + 'a> Eq for Key<'a, T> {}

impl<'a, T: Keyed + 'a> PartialEq for Key<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(key), Self::Object(other)) => key == other,
            (Self::Address(address), Self::Address(other)) => address == other,
            _ => false,
        }
    }
}

impl<'a, T: Keyed + 'a> Hash for Key<'a, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Object(key) => key.hash(state),
            Self::Address(address) => address.hash(state),
        }
    }
}

/// An iterator with a known number of items, for `reserve` in the code that reads it: the size of
/// a flattened iterator is unknown to the standard library, so the index of a first sync would
/// grow step by step, and be copied at each.
///
/// A wrong number is harmless: readers reserve too little or too much memory.
#[derive(Clone, Debug)]
pub(crate) struct Counted<I> {
    items: I,
    left: usize,
}

impl<I> Counted<I> {
    /// Wraps an iterator of at least `count` items.
    pub(crate) fn new(items: I, count: usize) -> Self {
        let left = count;
        Self { items, left }
    }
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, self.items.size_hint().1)
    }
}

/// Splits the edit of an entry into edits of its objects. Objects that both sides have are in no
/// edit, so if one of ten objects of an address changes, the kernel gets one edit.
pub(crate) fn edits<T: Keyed>(edit: Edit<Entry<T>>) -> Vec<Edit<T>> {
    let (before, after) = edit.into_old_and_new();
    let installed = before.iter().flat_map(Entry::objects).cloned();
    diff(installed, after.iter().flat_map(Entry::objects))
}

#[cfg(test)]
mod tests {
    use vipline_service_model::Transport;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Object(u8, char);

    impl Keyed for Object {
        type Key<'a> = u8;

        fn key(&self) -> u8 {
            self.0
        }

        fn is_equivalent(&self, other: &Self) -> bool {
            self.1 == other.1
        }
    }

    fn entry(objects: &[Object]) -> Entry<Object> {
        Entry::Address(Address::NodePort(Transport::Tcp, 30_080), objects.into())
    }

    #[test]
    fn entries_are_equivalent_only_if_all_their_objects_are() {
        let both = entry(&[Object(1, 'a'), Object(2, 'b')]);
        assert!(both.is_equivalent(&both.clone()));
        for other in [
            &[Object(1, 'a')][..],
            &[Object(1, 'a'), Object(2, 'c')],
            &[Object(1, 'a'), Object(3, 'b')],
            &[Object(1, 'a'), Object(2, 'b'), Object(3, 'c')],
        ] {
            assert!(!both.is_equivalent(&entry(other)), "{other:?}");
            assert!(!entry(other).is_equivalent(&both), "{other:?}");
        }
    }

    #[test]
    fn the_edit_of_an_entry_contains_only_the_objects_that_differ() {
        let old = entry(&[Object(1, 'a'), Object(2, 'b'), Object(3, 'c')]);
        let new = entry(&[Object(1, 'a'), Object(2, 'x'), Object(4, 'd')]);
        let change = Edit::Change { old, new };
        let expected = [
            Edit::Change {
                old: Object(2, 'b'),
                new: Object(2, 'x'),
            },
            Edit::Add(Object(4, 'd')),
            Edit::Remove(Object(3, 'c')),
        ];
        assert_eq!(edits(change), expected);
        let gone = edits(Edit::Remove(entry(&[Object(1, 'a')])));
        assert_eq!(gone, [Edit::Remove(Object(1, 'a'))]);
    }
}
