//! Objects that contain their key.

use std::fmt::Debug;
use std::hash::Hash;

/// An entry of a keyed state.
///
/// A clone should be cheap (a reference count, not a copy): ledger and reconciler
/// share objects. Keys are never stored, so they may borrow from the object.
pub trait Keyed: Clone {
    /// Identity of the object within its state.
    type Key<'a>: Debug + Eq + Hash
    where
        Self: 'a;

    /// Returns the key of the object.
    fn key(&self) -> Self::Key<'_>;

    /// Returns whether two objects with equal keys are the same to the kernel.
    ///
    /// Equivalent objects need no edit.
    fn is_equivalent(&self, other: &Self) -> bool;

    /// Returns whether all owners of the key want equivalent objects. Default: `false`.
    ///
    /// The order of the owners then does not matter. For many owners, a
    /// [`Ledger`](crate::Ledger) stores one object and an unordered set of the owners.
    fn is_common(&self) -> bool {
        false
    }
}
