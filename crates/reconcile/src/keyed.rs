//! Objects that know the key they are stored under.

use std::fmt::Debug;
use std::hash::Hash;

/// An entry of a keyed state.
///
/// Cloning an object should be cheap (reference counts, not copies): ledger and
/// reconciler hand the same object on. Keys are never kept, so they may borrow.
pub trait Keyed: Clone {
    /// What identifies the object within its state.
    type Key<'a>: Debug + Eq + Hash
    where
        Self: 'a;

    /// Returns the key the object is stored under.
    fn key(&self) -> Self::Key<'_>;

    /// Tells whether the kernel would see no difference between the two.
    ///
    /// Only asked of objects with equal keys.
    fn same(&self, other: &Self) -> bool;
}
