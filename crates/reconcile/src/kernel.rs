//! Something with a keyed state that can be dumped and edited.

use crate::{Edit, Keyed};

/// A keyed state outside of this process.
pub trait Kernel {
    /// An entry of the state.
    type Object: Keyed;
    /// Why a dump or a commit failed.
    type Error;

    /// Reads the whole state.
    fn dump(&mut self) -> Result<Vec<Self::Object>, Self::Error>;

    /// Applies edits, all or, after an error, an unknown part of them.
    fn commit(&mut self, edits: &[Edit<Self::Object>]) -> Result<(), Self::Error>;

    /// Tells whether the last commit replaced a state that somebody else made.
    ///
    /// Such a commit may take longer than others.
    fn took_over(&self) -> bool {
        false
    }
}
