//! What is allocated, in the form that Kubernetes keeps it in.

use thiserror::Error;

/// Why something is no snapshot of a range.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is of another range.
    #[error("it is of the range {found}, not of {expected}")]
    OtherRange {
        /// The range it is of.
        found: Box<str>,
        /// The range it should be of.
        expected: Box<str>,
    },
    /// It cannot be read.
    #[error("{what}, at byte {at}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// An item is taken that the range does not have.
    #[error("item {number} is taken, and the range {range} has {len}")]
    Outside {
        /// The number of the item.
        number: u128,
        /// The range.
        range: Box<str>,
        /// How many items the range has.
        len: u128,
    },
}
