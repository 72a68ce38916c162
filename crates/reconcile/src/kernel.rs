//! A keyed state that can be dumped and edited.

use crate::{Edit, Keyed, Rejection};

/// A keyed state outside of this process.
pub trait Kernel {
    /// An entry of the state.
    type Object: Keyed;
    /// Why a dump or a commit failed.
    type Error;

    /// Reads the whole state.
    fn dump(&mut self) -> Result<Vec<Self::Object>, Self::Error>;

    /// Applies edits, and returns those that were rejected.
    ///
    /// A rejected edit leaves its object as it was; all other edits are applied.
    ///
    /// # Errors
    ///
    /// An unknown part of the edits is applied.
    fn commit(&mut self, edits: &[Edit<Self::Object>]) -> Result<Vec<Rejection>, Self::Error>;

    /// Tells whether the last commit replaced a state that somebody else made.
    ///
    /// Such a commit may take longer than others.
    fn took_over(&self) -> bool {
        false
    }
}
