//! Places for queries of one set of upstreams, shared fairly by client addresses.
//!
//! A place is taken as long as an upstream does not answer. If all places were one pool, a
//! client that asks for random names below a dead stub domain would take them all, and names
//! of healthy upstreams would be refused. So each set of upstreams has places of its own,
//! and within a set no client can hold more than the others leave: as long as there are free
//! places a client may take them, and when all are taken, a client with fewer places takes
//! one from the client with most.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A number of places.
#[derive(Debug)]
pub(super) struct Places {
    /// 0 is unlimited.
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Places of each client, the oldest first. No entry is empty. Dropping a sender evicts
    /// the query.
    clients: HashMap<IpAddr, BTreeMap<u64, oneshot::Sender<Infallible>>>,
    /// The same clients by number of places.
    order: BTreeSet<(usize, IpAddr)>,
    total: usize,
    /// Number of the last place that was taken.
    last: u64,
}

/// A place that is taken. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: IpAddr,
    number: u64,
}

/// Completes when the place of a query goes to another client.
pub(super) type Evicted = oneshot::Receiver<Infallible>;

impl Places {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            taken: Mutex::default(),
        })
    }

    /// Takes a place for a client.
    ///
    /// Returns `None` if all places are taken, and no other client has at least two more.
    /// Otherwise that client loses its newest place: it waited least.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<(Place, Evicted)> {
        let mut taken = self.taken();
        if self.limit > 0 && taken.total >= self.limit {
            let &(most, richest) = taken.order.last()?;
            if most < taken.count(client) + 2 {
                return None;
            }
            taken.change(richest, |places| drop(places.pop_last()));
        }
        taken.last += 1;
        let number = taken.last;
        let (evict, evicted) = oneshot::channel();
        taken.change(client, |places| drop(places.insert(number, evict)));
        drop(taken);
        let place = Place {
            places: Arc::clone(self),
            client,
            number,
        };
        Some((place, evicted))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn count(&self, client: IpAddr) -> usize {
        self.clients.get(&client).map_or(0, BTreeMap::len)
    }

    fn change(
        &mut self,
        client: IpAddr,
        change: impl FnOnce(&mut BTreeMap<u64, oneshot::Sender<Infallible>>),
    ) {
        let places = self.clients.entry(client).or_default();
        let before = places.len();
        change(places);
        let after = places.len();
        if after == 0 {
            self.clients.remove(&client);
        }
        if before == after {
            return;
        }
        self.total = self.total - before + after;
        self.order.remove(&(before, client));
        if after > 0 {
            self.order.insert((after, client));
        }
    }
}

impl Place {
    /// Makes the place that of another client who waits for the same query, if that client
    /// has fewer places. Otherwise the client that floods could lead the queries for popular
    /// names, and its eviction would fail them for all.
    pub(super) fn share_with(&mut self, client: IpAddr) {
        let mut taken = self.places.taken();
        if client == self.client || taken.count(client) + 1 >= taken.count(self.client) {
            return;
        }
        let mut evict = None;
        taken.change(self.client, |places| evict = places.remove(&self.number));
        // Without it, the query was evicted before.
        if let Some(evict) = evict {
            taken.change(client, |places| drop(places.insert(self.number, evict)));
            drop(taken);
            self.client = client;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.change(self.client, |places| drop(places.remove(&self.number)));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn client(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// Returns how many of the queries have their places.
    fn open(queries: &mut [(Place, Evicted)]) -> usize {
        let received = queries.iter_mut().map(|(_, evicted)| evicted.try_recv());
        received
            .filter(|it| *it == Err(TryRecvError::Empty))
            .count()
    }

    #[test]
    fn a_client_may_take_all_places_until_others_come() {
        let places = Places::new(12);
        let mut flood: Vec<_> = (0..20).filter_map(|_| places.take(client(1))).collect();
        assert_eq!(flood.len(), 12);
        let mut second: Vec<_> = (0..20).filter_map(|_| places.take(client(2))).collect();
        assert_eq!((open(&mut flood), open(&mut second)), (6, 6));
        let mut third: Vec<_> = (0..20).filter_map(|_| places.take(client(3))).collect();
        let shares = (open(&mut flood), open(&mut second), open(&mut third));
        assert_eq!(shares, (4, 4, 4));
        assert!(places.take(client(1)).is_none() && places.take(client(2)).is_none());
        // The oldest queries stay.
        assert_eq!(flood[3].1.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(flood[4].1.try_recv(), Err(TryRecvError::Closed));
        drop((flood, second, third));
        let taken = places.taken();
        assert!(taken.clients.is_empty() && taken.order.is_empty() && taken.total == 0);
    }

    #[test]
    fn a_query_that_others_wait_for_is_not_evicted_with_those_of_its_first_client() {
        let places = Places::new(4);
        let mut flood: Vec<_> = (0..4).filter_map(|_| places.take(client(1))).collect();
        let mut popular = flood.pop().unwrap();
        popular.0.share_with(client(2));
        let _third = places.take(client(3)).unwrap();
        let _fourth = places.take(client(4)).unwrap();
        assert_eq!(open(&mut flood), 1);
        assert_eq!(open(std::slice::from_mut(&mut popular)), 1);
        drop(popular);
        assert_eq!(places.taken().count(client(2)), 0);
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let places = Places::new(0);
        let all: Vec<_> = (0..10_000).filter_map(|_| places.take(client(1))).collect();
        assert_eq!(all.len(), 10_000);
    }
}
