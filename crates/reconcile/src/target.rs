//! The interface of a keyed state that can be dumped and edited.

use crate::{Edit, Keyed, Rejection};

/// A keyed state outside of this process, such as a kernel table.
pub trait Target {
    /// Entry of the state.
    type Object: Keyed;
    /// Error of a dump or a commit.
    type Error;

    /// Returns all objects.
    ///
    /// # Errors
    ///
    /// The objects could not be read.
    fn dump(&mut self) -> Result<Vec<Self::Object>, Self::Error>;

    /// Applies edits, and returns the rejected ones.
    ///
    /// A rejected edit leaves its object unchanged; all other edits are applied.
    ///
    /// # Errors
    ///
    /// Any subset of the edits may have been applied.
    fn commit(&mut self, edits: &[Edit<Self::Object>]) -> Result<Vec<Rejection>, Self::Error>;

    /// Returns whether the last commit replaced a state that another program created.
    ///
    /// Such a commit may take longer than usual.
    fn took_over(&self) -> bool {
        false
    }
}
