//! Keys and updates of flows.

use std::fmt;

use crate::{Flow, Tuple};

/// Identity of a flow.
///
/// With an ID, a deletion does not affect another flow with the same tuple.
/// The kernel derives the ID from the tuple and the memory address of the flow. A new
/// flow with the same tuple at the same address therefore has the same ID.
///
/// Exhaustive: the fields identify a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Tuple of the original direction.
    pub original: Tuple,
    /// Zone of both directions, if not 0.
    pub zone: Option<u16>,
    /// ID of the flow; `None` for any flow with this tuple.
    pub id: Option<u32>,
}

impl From<Tuple> for Key {
    /// Creates the key of any flow with this original tuple.
    fn from(original: Tuple) -> Self {
        Self {
            original,
            zone: None,
            id: None,
        }
    }
}

impl From<&Flow> for Key {
    fn from(flow: &Flow) -> Self {
        flow.key()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.original.protocol, self.original)?;
        if let Some(zone) = self.zone {
            write!(f, " zone={zone}")?;
        }
        match self.id {
            Some(id) => write!(f, " id={id}"),
            None => Ok(()),
        }
    }
}

/// An update of a flow; fields without a value stay unchanged.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Update {
    /// New timeout, in seconds.
    pub timeout: Option<u32>,
    /// New bits of the mark, as `(value, mask)`.
    pub mark: Option<(u32, u32)>,
    /// New labels, as `(value, mask)`: bit `n` is label `n`.
    pub labels: Option<(u128, u128)>,
}

impl Update {
    /// Creates an empty update.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the timeout, in seconds.
    #[must_use]
    pub fn with_timeout(self, seconds: u32) -> Self {
        Self {
            timeout: Some(seconds),
            ..self
        }
    }

    /// Sets the labels of `mask` to those of `value`: bit `n` is label `n`.
    ///
    /// The kernel returns an error for a flow without room for labels: a rule must use
    /// labels when the flow is created.
    #[must_use]
    pub fn with_labels(self, value: u128, mask: u128) -> Self {
        Self {
            labels: Some((value, mask)),
            ..self
        }
    }

    /// Sets the bits of `mask` in the mark to those of `value`.
    #[must_use]
    pub fn with_mark(self, value: u32, mask: u32) -> Self {
        Self {
            mark: Some((value, mask)),
            ..self
        }
    }
}
