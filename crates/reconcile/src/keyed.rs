//! Objects that know the key they are stored under.

use std::fmt::Debug;
use std::hash::Hash;

/// An entry of a keyed state.
///
/// Cloning an object or a key should be cheap (reference counts, not copies):
/// ledger and reconciler hand the same object on.
pub trait Keyed: Clone {
    /// What identifies the object within its state.
    type Key: Clone + Debug + Eq + Hash;

    /// Returns the key the object is stored under.
    fn key(&self) -> Self::Key;

    /// Tells whether the kernel would see no difference between the two.
    ///
    /// Only asked of objects with equal keys.
    fn same(&self, other: &Self) -> bool;
}
