//! The claims of several owners to one key of a ledger.

use std::collections::BTreeMap;

use crate::ledger::Fragment;
use crate::slab::Slab;

/// Number of claims up to which a list is smaller than a tree and as fast.
const FEW: usize = 16;

/// The claims to one key: each owner with the object that it wants there.
///
/// A single claim, the common case, needs no allocation.
/// Adding or removing one of n claims costs O(log n).
#[derive(Clone, Debug)]
pub(crate) enum Claims<O, T> {
    /// One claim: the slab index of the owner's fragment, and the object.
    One(usize, T),
    /// Claims as (slab index of the fragment, object).
    ///
    /// Invariant: 2 to [`FEW`] claims, sorted by owner.
    Few(Vec<(usize, T)>),
    /// Claims by owner, as (slab index of the fragment, object).
    ///
    /// Invariant: more than [`FEW`] / 2 claims.
    Many(BTreeMap<O, (usize, T)>),
}

impl<O: Clone + Ord, T> Claims<O, T> {
    /// Returns the object of the least owner.
    pub(crate) fn holder(&self) -> &T {
        let first = match self {
            Self::One(_, object) => Some(object),
            Self::Few(claims) => claims.first().map(|(_, object)| object),
            Self::Many(claims) => claims.values().next().map(|(_, object)| object),
        };
        first.expect("a key in the ledger has a claim")
    }

    /// Returns the number of claims.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Few(claims) => claims.len(),
            Self::Many(claims) => claims.len(),
        }
    }

    /// Returns whether there are two or more claims.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::One(..))
    }

    /// Returns the object that an owner claims.
    pub(crate) fn object_of(&self, owner: usize, owners: &Slab<Fragment<O>>) -> Option<&T> {
        match self {
            Self::One(_, object) => Some(object),
            Self::Few(claims) => {
                let claim = claims.iter().find(|(other, _)| *other == owner);
                claim.map(|(_, object)| object)
            }
            Self::Many(claims) => {
                let claim = claims.get(&owners[owner].owner);
                claim.map(|(_, object)| object)
            }
        }
    }

    /// Returns the owners in ascending order.
    pub(crate) fn owners<'a>(
        &'a self,
        owners: &'a Slab<Fragment<O>>,
    ) -> impl Iterator<Item = &'a O> {
        let (one, few, many) = match self {
            Self::One(owner, _) => (Some(*owner), &[][..], None),
            Self::Few(claims) => (None, &claims[..], None),
            Self::Many(claims) => (None, &[][..], Some(claims.keys())),
        };
        let places = one.into_iter().chain(few.iter().map(|(owner, _)| *owner));
        let by_place = places.map(|place| &owners[place].owner);
        by_place.chain(many.into_iter().flatten())
    }

    /// Adds or replaces the claim of an owner.
    pub(crate) fn insert(&mut self, owner: usize, object: T, owners: &Slab<Fragment<O>>)
    where
        T: Clone,
    {
        match self {
            Self::One(first, held) if *first == owner => *held = object,
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
                    Err(at) if claims.len() < FEW => claims.insert(at, (owner, object)),
                    Err(_) => {
                        let claims = claims.drain(..).chain([(owner, object)]);
                        let by_owner = claims.map(|claim| (owners[claim.0].owner.clone(), claim));
                        *self = Self::Many(by_owner.collect());
                    }
                }
            }
            Self::Many(claims) => {
                claims.insert(owners[owner].owner.clone(), (owner, object));
            }
        }
    }

    /// Removes the claim of an owner, unless it is the only one.
    ///
    /// Returns whether claims of other owners remain.
    pub(crate) fn remove(&mut self, owner: usize, owners: &Slab<Fragment<O>>) -> bool {
        match self {
            Self::One(..) => return false,
            Self::Few(claims) => {
                claims.retain(|(other, _)| *other != owner);
                if claims.len() == 1 {
                    let (owner, object) = claims.pop().expect("one claim is left");
                    *self = Self::One(owner, object);
                }
            }
            Self::Many(claims) => {
                claims.remove(&owners[owner].owner);
                // Half of the limit: hysteresis against repeated conversions.
                if claims.len() <= FEW / 2 {
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

    /// Representation of a set of claims.
    #[derive(Debug, Eq, PartialEq)]
    enum Form {
        One,
        List(usize),
        Tree(usize),
    }

    fn form(claims: &Claims<u32, char>) -> Form {
        match claims {
            Claims::One(..) => Form::One,
            Claims::Few(list) => Form::List(list.len()),
            Claims::Many(tree) => Form::Tree(tree.len()),
        }
    }

    #[test]
    fn claims_are_a_tree_above_the_limit_and_a_list_below_half_of_it() {
        let mut owners = Slab::default();
        let mut insert = |owner| {
            let places = Vec::new();
            owners.insert(Fragment { owner, places })
        };
        // Slab indexes are in the opposite order of the owners.
        let mut places: Vec<_> = (0..1000).rev().map(&mut insert).collect();
        let mut claims = Claims::One(places[0], 'a');
        for (claimed, &place) in (1..).zip(&places) {
            claims.insert(place, 'a', &owners);
            let expected = match claimed {
                1 => Form::One,
                2..=FEW => Form::List(claimed),
                _ => Form::Tree(claimed),
            };
            assert_eq!((form(&claims), claims.len()), (expected, claimed));
        }
        let sorted: Vec<_> = claims.owners(&owners).copied().collect();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        while let Some(place) = places.pop() {
            let left = places.len();
            assert_eq!(claims.remove(place, &owners), left > 0);
            let expected = match left {
                0 | 1 => Form::One,
                _ if left <= FEW / 2 => Form::List(left),
                _ => Form::Tree(left),
            };
            assert_eq!(form(&claims), expected, "{left}");
        }
    }
}
