//! Queries to upstreams that are under way. Identical questions share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::answer::Answer;

/// Result of a query to the upstreams.
#[derive(Debug)]
pub(super) enum Outcome {
    /// An answer for clients.
    Answer(Answer),
    /// An error for clients that have no stale answer.
    Failure(Answer),
}

/// Receives the outcome of a query, which may be pending.
pub(super) type Pending = watch::Receiver<Option<Arc<Outcome>>>;

/// Queries that are under way, by key.
#[derive(Debug, Default)]
pub(super) struct Flights {
    pending: Mutex<HashMap<Box<[u8]>, Pending>>,
}

/// Participation in a query.
pub(super) enum Joined {
    /// Another client began the query.
    Follower(Pending),
    /// The caller must send the query and complete the flight.
    Leader(Pending, Flight),
    /// Too many queries are under way.
    Full,
}

impl Flights {
    /// Joins the query for a key. `limit` is the number of queries, 0 is unlimited.
    pub(super) fn join(self: &Arc<Self>, key: &[u8], limit: usize) -> Joined {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receiver) = pending.get(key) {
            return Joined::Follower(receiver.clone());
        }
        if limit > 0 && pending.len() >= limit {
            return Joined::Full;
        }
        let (sender, receiver) = watch::channel(None);
        pending.insert(key.into(), receiver.clone());
        let flight = Flight {
            flights: Arc::clone(self),
            key: key.into(),
            sender,
        };
        Joined::Leader(receiver, flight)
    }

    /// Returns the number of queries that are under way.
    pub(super) fn len(&self) -> usize {
        self.pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

/// A query that is under way. If dropped, followers receive an error.
#[derive(Debug)]
pub(super) struct Flight {
    flights: Arc<Flights>,
    key: Box<[u8]>,
    sender: watch::Sender<Option<Arc<Outcome>>>,
}

impl Flight {
    /// Sends the outcome to all followers.
    pub(super) fn complete(self, outcome: Outcome) {
        self.sender.send_replace(Some(Arc::new(outcome)));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}
