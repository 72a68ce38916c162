//! The claims of several owners to one key of a ledger.
//!
//! Nearly every key has one claim: the element `10.96.0.10 . tcp . 80` belongs to one Service. A
//! few have some, such as an external IP that three Services name. And a few have as many as there
//! are Services, such as the element of a network in `service-networks`, which each Service with
//! an address in that network wants. One form for all would be wasteful for the first or slow for
//! the last, so a set of claims changes its form with its size:
//!
//! ```text
//!       2nd claim         17th claim      common object:   Common  (a set of owners)
//! One ───────────► Few ──────────────►
//!     ◄───────────     ◄──────────────    other objects:   Many    (a tree in owners' order)
//!      one is left       8 are left
//! ```
//!
//! What must stay true: in every form the first owner in the order of `O` is the holder, so that
//! the form has no effect on who gets a key. Only [`Common`] has no order, because there all
//! objects are the same for the kernel.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;

use crate::Keyed;
use crate::index::{Spread, narrow, wide};
use crate::ledger::Fragment;
use crate::slab::Slab;

/// Maximum number of claims in a list. Up to it, a list is smaller than a tree and as fast.
///
/// A tree or a set becomes a list again at half of this number. If both changes happened at 16, a
/// Service that comes and goes would convert all claims each time.
const MAX_CLAIMS_IN_LIST: usize = 16;

/// The claims to one key: each owner with the object that it wants there.
///
/// A single claim, the usual case, needs no allocation. Many claims to a
/// [common](Keyed::is_common) object take 5 to 10 bytes each.
/// Adding or removing one of n claims costs O(log n).
#[derive(Clone, Debug)]
pub(crate) enum Claims<O, T> {
    /// One claim: the slab index of the owner's fragment, and the object.
    One(usize, T),
    /// Claims as (slab index of the fragment, object).
    ///
    /// Invariant: 2 to [`MAX_CLAIMS_IN_LIST`] claims, sorted by owner.
    Few(Vec<(usize, T)>),
    /// Claims to a common object.
    ///
    /// Invariant: more than [`MAX_CLAIMS_IN_LIST`] / 2 claims.
    Common(Box<Common<T>>),
    /// Claims by owner, as (slab index of the fragment, object).
    ///
    /// Invariant: more than [`MAX_CLAIMS_IN_LIST`] / 2 claims.
    Many(BTreeMap<O, (usize, T)>),
}

/// A common object, and the slab indexes of the fragments of its owners.
#[derive(Clone, Debug)]
pub(crate) struct Common<T> {
    object: T,
    owners: HashSet<u32, BuildHasherDefault<Spread>>,
}

impl<O: Clone + Ord, T: Keyed> Claims<O, T> {
    /// Returns the object of the least owner, or the common object.
    pub(crate) fn holder(&self) -> &T {
        let first = match self {
            Self::One(_, object) => Some(object),
            Self::Few(claims) => claims.first().map(|(_, object)| object),
            Self::Common(common) => Some(&common.object),
            Self::Many(claims) => claims.values().next().map(|(_, object)| object),
        };
        first.expect("a key in the ledger has a claim")
    }

    /// Returns the number of claims.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Few(claims) => claims.len(),
            Self::Common(common) => common.owners.len(),
            Self::Many(claims) => claims.len(),
        }
    }

    /// Returns whether there are two or more claims, unless the object is common.
    pub(crate) fn is_contested(&self) -> bool {
        !matches!(self, Self::One(..)) && !self.holder().is_common()
    }

    /// Returns the object that an owner with a claim wants.
    pub(crate) fn object_of(&self, owner: usize, owners: &Slab<Fragment<O>>) -> Option<&T> {
        match self {
            Self::One(_, object) => Some(object),
            Self::Few(claims) => {
                let claim = claims.iter().find(|(other, _)| *other == owner);
                claim.map(|(_, object)| object)
            }
            Self::Common(common) => Some(&common.object),
            Self::Many(claims) => {
                let claim = claims.get(&owners[owner].owner);
                claim.map(|(_, object)| object)
            }
        }
    }

    /// Returns the owners in ascending order. Many owners of a common object have no
    /// order.
    pub(crate) fn owners<'a>(
        &'a self,
        owners: &'a Slab<Fragment<O>>,
    ) -> impl Iterator<Item = &'a O> {
        // One of the four has items. The forms have iterators of different types, and a boxed one
        // would cost an allocation for each key that is looked at.
        let (one, few, common, many) = match self {
            Self::One(owner, _) => (Some(*owner), &[][..], None, None),
            Self::Few(claims) => (None, &claims[..], None, None),
            Self::Common(common) => (None, &[][..], Some(&common.owners), None),
            Self::Many(claims) => (None, &[][..], None, Some(claims.keys())),
        };
        let places = one.into_iter().chain(few.iter().map(|(owner, _)| *owner));
        let common = common.into_iter().flatten();
        let places = places.chain(common.map(|&owner| wide(owner)));
        let by_place = places.map(|place| &owners[place].owner);
        by_place.chain(many.into_iter().flatten())
    }

    /// Adds the claim of an owner if it wants the common object of many owners. Returns
    /// whether it does. If not, nothing is changed, and [`insert`](Self::insert) decides.
    pub(crate) fn share(&mut self, owner: usize, object: &T) -> bool {
        match self {
            Self::Common(common) if common.object.is_equivalent(object) => {
                common.owners.insert(narrow(owner));
                true
            }
            _ => false,
        }
    }

    /// Adds or replaces the claim of an owner.
    pub(crate) fn insert(&mut self, owner: usize, object: T, owners: &Slab<Fragment<O>>) {
        match self {
            Self::One(first, held) if *first == owner => *held = object,
            // Slab indexes have no order of their own: an index is reused, so the owners decide.
            Self::One(first, held) => {
                let mut both = vec![(*first, held.clone()), (owner, object)];
                if owners[owner].owner < owners[*first].owner {
                    both.reverse();
                }
                *self = Self::Few(both);
            }
            Self::Few(claims) => {
                let this = &owners[owner].owner;
                match claims.binary_search_by(|(other, _)| owners[*other].owner.cmp(this)) {
                    Ok(at) => claims[at].1 = object,
                    Err(at) if claims.len() < MAX_CLAIMS_IN_LIST => {
                        claims.insert(at, (owner, object));
                    }
                    Err(_) => {
                        // Neither form of many claims needs them in order.
                        let claims = claims.drain(..).chain([(owner, object)]);
                        *self = Self::more_than_few(claims, owners);
                    }
                }
            }
            // All owners of a common object want the same (see `Keyed::is_common`). So if one of
            // them wants another object than before, it speaks for all.
            Self::Common(common) => {
                common.object = object;
                common.owners.insert(narrow(owner));
            }
            Self::Many(claims) => {
                claims.insert(owners[owner].owner.clone(), (owner, object));
            }
        }
    }

    /// Creates the form of more than [`MAX_CLAIMS_IN_LIST`] claims.
    fn more_than_few(claims: impl Iterator<Item = (usize, T)>, owners: &Slab<Fragment<O>>) -> Self {
        let mut claims = claims.peekable();
        match claims.peek() {
            Some((_, first)) if first.is_common() => Self::Common(Box::new(Common {
                object: first.clone(),
                owners: claims.map(|(owner, _)| narrow(owner)).collect(),
            })),
            _ => {
                let by_owner = claims.map(|claim| (owners[claim.0].owner.clone(), claim));
                Self::Many(by_owner.collect())
            }
        }
    }

    /// Removes the claim of an owner, unless it is the only one.
    ///
    /// Returns whether claims of other owners remain.
    pub(crate) fn remove(&mut self, owner: usize, owners: &Slab<Fragment<O>>) -> bool {
        match self {
            // The caller drops the claim together with the key.
            Self::One(..) => return false,
            Self::Few(claims) => {
                claims.retain(|(other, _)| *other != owner);
                if claims.len() == 1 {
                    let (owner, object) = claims.pop().expect("one claim is left");
                    *self = Self::One(owner, object);
                }
            }
            Self::Common(common) => {
                common.owners.remove(&narrow(owner));
                if common.owners.len() <= MAX_CLAIMS_IN_LIST / 2 {
                    // A set has no order, but a list must have that of the owners.
                    let places = common.owners.iter().map(|&owner| wide(owner));
                    let claims = places.map(|owner| (owner, common.object.clone()));
                    let mut claims: Vec<_> = claims.collect();
                    claims.sort_by_cached_key(|(owner, _)| owners[*owner].owner.clone());
                    *self = Self::Few(claims);
                }
            }
            Self::Many(claims) => {
                claims.remove(&owners[owner].owner);
                if claims.len() <= MAX_CLAIMS_IN_LIST / 2 {
                    *self = Self::Few(std::mem::take(claims).into_values().collect());
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object at the only key.
    #[derive(Clone, Debug)]
    struct Letter {
        letter: char,
        is_common: bool,
    }

    impl Keyed for Letter {
        type Key<'a> = ();

        fn key(&self) {}

        fn is_equivalent(&self, other: &Self) -> bool {
            self.letter == other.letter
        }

        fn is_common(&self) -> bool {
            self.is_common
        }
    }

    /// Representation of a set of claims.
    #[derive(Debug, Eq, PartialEq)]
    enum Form {
        One,
        List(usize),
        Common(usize),
        Tree(usize),
    }

    fn form(claims: &Claims<u32, Letter>) -> Form {
        match claims {
            Claims::One(..) => Form::One,
            Claims::Few(list) => Form::List(list.len()),
            Claims::Common(common) => Form::Common(common.owners.len()),
            Claims::Many(tree) => Form::Tree(tree.len()),
        }
    }

    /// Asserts the form of the claims of 1,000 owners while their number grows and shrinks.
    fn assert_forms(letter: &Letter, many: fn(usize) -> Form) {
        let mut owners = Slab::default();
        let mut insert = |owner| {
            let places = Box::default();
            owners.insert(Fragment { owner, places })
        };
        // Slab indexes are in the opposite order of the owners.
        let mut places: Vec<_> = (0..1000).rev().map(&mut insert).collect();
        let mut claims = Claims::One(places[0], letter.clone());
        for (claimed, &place) in (1..).zip(&places) {
            for _ in 0..2 {
                claims.insert(place, letter.clone(), &owners);
            }
            let expected = match claimed {
                1 => Form::One,
                2..=MAX_CLAIMS_IN_LIST => Form::List(claimed),
                _ => many(claimed),
            };
            assert_eq!((form(&claims), claims.len()), (expected, claimed));
            let is_contested = claimed > 1 && !letter.is_common;
            assert_eq!(claims.is_contested(), is_contested);
        }
        let mut sorted: Vec<_> = claims.owners(&owners).copied().collect();
        if letter.is_common {
            sorted.sort_unstable();
        }
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        while let Some(place) = places.pop() {
            let left = places.len();
            assert_eq!(claims.remove(place, &owners), left > 0);
            let expected = match left {
                0 | 1 => Form::One,
                _ if left <= MAX_CLAIMS_IN_LIST / 2 => Form::List(left),
                _ => many(left),
            };
            assert_eq!(form(&claims), expected, "{left}");
            if left <= MAX_CLAIMS_IN_LIST / 2 {
                assert!(claims.owners(&owners).is_sorted());
            }
        }
    }

    #[test]
    fn claims_are_a_tree_above_the_limit_and_a_list_below_half_of_it() {
        let letter = Letter {
            letter: 'a',
            is_common: false,
        };
        assert_forms(&letter, Form::Tree);
    }

    #[test]
    fn claims_to_a_common_object_are_a_set_above_the_limit() {
        let letter = Letter {
            letter: 'a',
            is_common: true,
        };
        assert_forms(&letter, Form::Common);
    }

    #[test]
    fn the_last_change_of_a_common_object_counts() {
        let common = |letter| Letter {
            letter,
            is_common: true,
        };
        let mut owners = Slab::default();
        let mut claims = Claims::One(0, common('a'));
        for owner in 0..100 {
            let places = Box::default();
            let place = owners.insert(Fragment { owner, places });
            claims.insert(place, common('a'), &owners);
        }
        assert_eq!(
            (form(&claims), claims.holder().letter),
            (Form::Common(100), 'a')
        );
        claims.insert(50, common('b'), &owners);
        assert_eq!(
            (form(&claims), claims.holder().letter),
            (Form::Common(100), 'b')
        );
        let of_another = claims.object_of(0, &owners).map(|object| object.letter);
        assert_eq!(of_another, Some('b'));
    }
    #[test]
    fn only_claims_to_an_equivalent_common_object_are_shared() {
        let letter = |letter| Letter {
            letter,
            is_common: true,
        };
        let mut owners = Slab::default();
        let mut claims = Claims::One(0, letter('a'));
        assert!(!claims.share(1, &letter('a')), "a single claim");
        for owner in 0..100 {
            let places = Box::default();
            let place = owners.insert(Fragment { owner, places });
            claims.insert(place, letter('a'), &owners);
        }
        assert!(!claims.share(100, &letter('b')), "another object");
        assert_eq!(form(&claims), Form::Common(100));
        assert!(claims.share(100, &letter('a')));
        assert_eq!(form(&claims), Form::Common(101));
    }
}
