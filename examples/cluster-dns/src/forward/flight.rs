//! Queries to upstreams that are under way. Identical questions share one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::answer::Answer;
use super::places::{Evicted, Place, Places};

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
    pending: Mutex<HashMap<Box<[u8]>, Underway>>,
}

#[derive(Debug)]
struct Underway {
    outcome: Pending,
    place: Place,
}

/// Participation in a query.
pub(super) enum Joined {
    /// Another client began the query.
    Follower(Pending),
    /// The caller must send the query and complete the flight, until its place goes to
    /// another client.
    Leader(Pending, Flight, Evicted),
    /// The upstreams have no place for a query of this client.
    Full,
}

impl Flights {
    /// Joins the query for a key, or begins it in a place of its upstreams.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &[u8],
        places: &Arc<Places>,
        client: IpAddr,
    ) -> Joined {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(underway) = pending.get_mut(key) {
            underway.place.share_with(client);
            return Joined::Follower(underway.outcome.clone());
        }
        let Some((place, evicted)) = places.take(client) else {
            return Joined::Full;
        };
        let (sender, outcome) = watch::channel(None);
        let underway = Underway {
            outcome: outcome.clone(),
            place,
        };
        pending.insert(key.into(), underway);
        let flight = Flight {
            flights: Arc::clone(self),
            key: key.into(),
            sender,
        };
        Joined::Leader(outcome, flight, evicted)
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
        let mut pending = self
            .flights
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pending.remove(&self.key);
    }
}
