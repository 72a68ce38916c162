//! The events of an update.

use std::vec;

use vipline_service_model::Event;

use crate::manifests::fault::Key;
use crate::manifests::object::Object;

/// Events of changed objects.
///
/// An iterator, which converts one object after the other. So the memory of the former
/// objects is free while the caller applies the next ones.
#[derive(Debug, Default)]
pub struct Events(vec::IntoIter<Change>);

/// A changed object.
#[derive(Debug)]
pub(super) enum Change {
    Applied(Box<Object>),
    Deleted(Key),
}

impl Events {
    /// Returns whether no event is left.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

impl From<Vec<Change>> for Events {
    fn from(changes: Vec<Change>) -> Self {
        Self(changes.into_iter())
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        Some(match self.0.next()? {
            Change::Applied(object) => object.applied(),
            Change::Deleted(key) => key.deleted(),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Events {}
