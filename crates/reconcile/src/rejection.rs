//! Edits that a kernel rejects.

use std::fmt;
use std::sync::Arc;

/// An edit that a kernel rejected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// Position of the edit in the commit, from 0.
    pub index: usize,
    /// Why it was rejected.
    pub reason: Reason,
}

/// Why an edit was rejected; displays as the message of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reason {
    /// Meaning of the rejection.
    pub cause: Cause,
    /// Error number, if the kernel gave one.
    pub errno: Option<i32>,
    /// Message of the kernel, with the object it is about.
    pub message: Arc<str>,
}

/// Meaning of a rejection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cause {
    /// The kernel refuses the object.
    Refused,
    /// The state of the kernel is not the one that the edit starts from.
    ///
    /// The object exists already, or does not exist any more.
    Conflict,
    /// The object needs another one that was rejected.
    Dependent,
    /// The object was left out without a test of its own: too many others of its
    /// batch were refused.
    Untested,
}

impl Reason {
    /// Returns the refusal of an object with a message.
    pub fn refused(errno: Option<i32>, message: impl fmt::Display) -> Self {
        Self {
            cause: Cause::Refused,
            errno,
            message: message.to_string().into(),
        }
    }

    /// Returns the same reason with another cause.
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
