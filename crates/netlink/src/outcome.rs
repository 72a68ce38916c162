//! Results of batches.

use crate::{Error, KernelError};

/// Result of sending an atomic batch.
///
/// Exhaustive: a batch is committed, rejected or of unknown effect.
#[derive(Debug)]
#[must_use = "a batch that was sent is not necessarily committed"]
pub enum Outcome {
    /// The whole batch was applied.
    Committed,
    /// The kernel rejected at least one message and applied nothing.
    Rejected {
        /// Errors of the rejected messages, in the order of the messages.
        errors: Vec<KernelError>,
        /// Number of further errors, which are not in `errors`. `None` if it is unknown,
        /// because acknowledgments were lost.
        omitted: Option<usize>,
    },
    /// Acknowledgments were lost or malformed. The batch was applied as a whole or not at
    /// all.
    Unknown(Error),
}
