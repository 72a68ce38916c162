//! What flows are deleted by, and what can be changed of them.

use std::fmt;

use crate::{Flow, Tuple};

/// What a flow is known by.
///
/// With the id it is that flow alone: another one of the same addresses is left
/// alone by a delete.
/// The kernel makes the id of the addresses and of where in its memory the flow
/// is, so one that takes the very place of one that is gone has its id.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Packets of whoever began the flow.
    pub original: Tuple,
    /// The zone, if it is that of both directions and not 0.
    pub zone: Option<u16>,
    /// What tells it from flows of the same tuples.
    pub id: Option<u32>,
}

impl From<Tuple> for Key {
    /// Takes whatever flow begins with these packets.
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

/// What is to be changed of a flow.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Change {
    /// In how many seconds it is to be forgotten.
    pub timeout: Option<u32>,
    /// The bits of the mark that change, and what they change to.
    pub mark: Option<(u32, u32)>,
}

impl Change {
    /// Returns no change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has the flow forgotten in so many seconds.
    #[must_use]
    pub fn timeout(self, seconds: u32) -> Self {
        Self {
            timeout: Some(seconds),
            ..self
        }
    }

    /// Changes the bits of `mask` in the mark to those of `value`.
    #[must_use]
    pub fn mark(self, mask: u32, value: u32) -> Self {
        Self {
            mark: Some((mask, value)),
            ..self
        }
    }
}
