//! Edits that a kernel rejects.

use std::fmt;
use std::sync::Arc;

/// A rejected edit of a commit.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rejection {
    /// Position of the edit in the commit, from 0.
    pub index: usize,
    /// Reason of the rejection.
    pub reason: Reason,
}

/// Reason of a rejection; displays as the message of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Reason {
    /// Class of the rejection.
    pub cause: Cause,
    /// Error number, if the kernel returned one.
    pub errno: Option<i32>,
    /// Message of the kernel, including the object.
    pub message: Arc<str>,
}

/// Class of a rejection.
///
/// Exhaustive: programs report each cause in words of their own.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cause {
    /// The kernel rejected the object.
    Rejected,
    /// The state of the kernel differs from the state before the edit: the object exists
    /// already, or no longer exists.
    Conflict,
    /// The object depends on a rejected object.
    Dependent,
    /// The edit was not sent on its own, because too many batches were rejected.
    Untested,
}

impl Rejection {
    /// Creates a rejection of the edit at `index`, from 0.
    pub fn new(index: usize, reason: Reason) -> Self {
        Self { index, reason }
    }
}

impl Reason {
    /// Creates a reason with [`Cause::Rejected`].
    pub fn rejected(errno: Option<i32>, message: impl fmt::Display) -> Self {
        Self {
            cause: Cause::Rejected,
            errno,
            message: message.to_string().into(),
        }
    }

    /// Returns a copy of the reason with another cause.
    #[must_use]
    pub fn with_cause(&self, cause: Cause) -> Self {
        Self {
            cause,
            ..self.clone()
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
