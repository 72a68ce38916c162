//! Limits on open connections: in total, and per client.
//!
//! A new connection is always admitted. If a limit is reached, the pool evicts
//! another connection: the least recently used one of the same client, or of
//! the client with most connections. So a client with one connection is evicted
//! last, regardless of other clients.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Prefix length that identifies an IPv6 client: a host chooses the other 64
/// bits freely.
const CLIENT_PREFIX: u32 = 64;

/// Limits shared by the connections of several listeners.
///
/// A connection is idle until its client sends data. Idle connections cost
/// little, so their limits are high: even a distant client has sent its request
/// before later connections evict it.
#[derive(Clone, Debug)]
pub struct Connections {
    pub(super) idle: Arc<Pool>,
    pub(super) active: Arc<Pool>,
}

impl Connections {
    /// Creates limits. One client may have half of the idle connections and a
    /// quarter of the active ones.
    pub fn new(idle: usize, active: usize) -> Self {
        Self {
            idle: Pool::new(idle, idle / 2),
            active: Pool::new(active, active / 4),
        }
    }

    /// Evicts an idle connection if there is one, otherwise an active one.
    pub(super) fn shed(&self) {
        if !self.idle.shed() {
            self.active.shed();
        }
    }
}

/// Connections within a limit.
#[derive(Debug)]
pub struct Pool {
    limit: usize,
    client_limit: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Connections by client. No entry is empty.
    clients: BTreeMap<IpAddr, Uses>,
    /// The same clients in eviction order: the last one loses a connection
    /// next.
    order: BTreeSet<Rank>,
    total: usize,
    /// Number of the last use of any connection.
    last_use: u64,
}

/// Connections of a client by the number of their last use. Dropping a sender
/// evicts the connection.
type Uses = BTreeMap<u64, oneshot::Sender<Infallible>>;

/// Number of connections of a client, its least recent use, and its address.
type Rank = (usize, Reverse<u64>, IpAddr);

/// Slot of a connection in a pool. Dropping it releases the slot.
#[derive(Debug)]
pub struct Slot {
    pool: Arc<Pool>,
    client: IpAddr,
    /// Number of the last use of the connection.
    last_use: AtomicU64,
}

impl Pool {
    /// Creates a pool of at most `limit` connections, of which one client may
    /// have `client_limit`.
    pub fn new(limit: usize, client_limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            client_limit: client_limit.max(1),
            open: Mutex::default(),
        })
    }

    /// Admits a connection from an address. Evicts another one if a limit is
    /// reached.
    ///
    /// Returns the slot of the connection, and a receiver that completes when
    /// the connection is evicted.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> (Slot, oneshot::Receiver<Infallible>) {
        let client = client_of(address);
        let (evict, evicted) = oneshot::channel();
        let mut open = self.open();
        let of_client = open.clients.get(&client).map_or(0, Uses::len);
        if of_client >= self.client_limit {
            open.evict_from(client);
        } else if open.total >= self.limit {
            open.evict();
        }
        let last_use = open.next_use();
        open.change(client, |uses| uses.insert(last_use, evict));
        drop(open);
        let slot = Slot {
            pool: Arc::clone(self),
            client,
            last_use: last_use.into(),
        };
        (slot, evicted)
    }

    /// Evicts a connection. Returns whether a connection existed.
    pub fn shed(&self) -> bool {
        let mut open = self.open();
        let is_any = open.total > 0;
        open.evict();
        is_any
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn next_use(&mut self) -> u64 {
        self.last_use += 1;
        self.last_use
    }

    /// Evicts the least recently used connection of the client with most connections.
    fn evict(&mut self) {
        if let Some(&(_, _, client)) = self.order.last() {
            self.evict_from(client);
        }
    }

    /// Evicts the least recently used connection of a client.
    fn evict_from(&mut self, client: IpAddr) {
        self.change(client, Uses::pop_first);
    }

    /// Changes the connections of a client.
    fn change<T>(&mut self, client: IpAddr, change: impl FnOnce(&mut Uses) -> T) {
        let mut uses = self.clients.remove(&client).unwrap_or_default();
        self.order.remove(&rank(client, &uses));
        self.total -= uses.len();
        change(&mut uses);
        self.total += uses.len();
        if !uses.is_empty() {
            self.order.insert(rank(client, &uses));
            self.clients.insert(client, uses);
        }
    }
}

fn rank(client: IpAddr, uses: &Uses) -> Rank {
    let least = uses.first_key_value().map_or(0, |(&number, _)| number);
    (uses.len(), Reverse(least), client)
}

impl Slot {
    /// Marks the connection as the most recently used one.
    pub fn touch(&self) {
        let mut open = self.pool.open();
        let now = open.next_use();
        // The lock orders all uses.
        let before = self.last_use.swap(now, Ordering::Relaxed);
        open.change(self.client, |uses| {
            if let Some(evict) = uses.remove(&before) {
                uses.insert(now, evict);
            }
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let last_use = *self.last_use.get_mut();
        self.pool
            .open()
            .change(self.client, |uses| uses.remove(&last_use));
    }
}

/// Returns the address that identifies a client: the IPv4 address, or the /64
/// prefix of the IPv6 address.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::MAX << (u128::BITS - CLIENT_PREFIX);
            Ipv6Addr::from_bits(address.to_bits() & prefix).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    /// An admitted connection.
    struct Admitted {
        slot: Slot,
        evicted: oneshot::Receiver<Infallible>,
    }

    impl Admitted {
        fn from(pool: &Arc<Pool>, address: &str) -> Self {
            let (slot, evicted) = pool.admit(address.parse().unwrap());
            Self { slot, evicted }
        }

        fn is_open(&mut self) -> bool {
            self.evicted.try_recv() == Err(TryRecvError::Empty)
        }
    }

    fn open(connections: &mut [Admitted]) -> Vec<bool> {
        connections.iter_mut().map(Admitted::is_open).collect()
    }

    #[test]
    fn a_client_at_its_limit_loses_its_least_recently_used_connection() {
        let pool = Pool::new(12, 3);
        let mut other = Admitted::from(&pool, "192.0.2.2");
        let mut own: Vec<_> = (0..3).map(|_| Admitted::from(&pool, "192.0.2.1")).collect();
        own[0].slot.touch();
        own.push(Admitted::from(&pool, "192.0.2.1"));
        assert_eq!(open(&mut own), [true, false, true, true]);
        assert!(other.is_open(), "another client is not concerned");
    }

    #[test]
    fn a_full_pool_evicts_from_the_client_with_most_connections() {
        let pool = Pool::new(8, 2);
        let addresses = ["::1:0:0:0:1", "10.0.0.1", "10.0.0.2", "10.0.0.2"];
        let mut few: Vec<_> = addresses
            .iter()
            .map(|address| Admitted::from(&pool, address))
            .collect();
        let mut many: Vec<_> = (0..4)
            .map(|host| Admitted::from(&pool, &format!("10.0.1.{}", host / 2)))
            .collect();
        let _new = Admitted::from(&pool, "10.0.2.1");
        assert_eq!(open(&mut few), [true, true, false, true]);
        assert_eq!(open(&mut many), [true; 4]);
        let _newer = Admitted::from(&pool, "10.0.2.2");
        assert_eq!(open(&mut few), [true, true, false, true]);
        assert_eq!(open(&mut many), [false, true, true, true]);
    }

    #[test]
    fn a_closed_connection_frees_its_slot() {
        let pool = Pool::new(4, 1);
        let mut rest: Vec<_> = (1..=4)
            .map(|host| Admitted::from(&pool, &format!("10.0.0.{host}")))
            .collect();
        drop(rest.pop());
        rest.push(Admitted::from(&pool, "10.0.0.5"));
        assert_eq!(open(&mut rest), [true; 4]);
        let evicted = Admitted::from(&pool, "10.0.0.6");
        assert_eq!(open(&mut rest), [false, true, true, true]);
        // The slot of an evicted connection is free already.
        rest.remove(0);
        assert_eq!(pool.open().total, 4);
        drop((rest, evicted));
        assert!(pool.open().clients.is_empty() && pool.open().order.is_empty());
        assert_eq!(pool.open().total, 0);
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        for (address, client) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("fe80::1", "fe80::"),
        ] {
            let client: IpAddr = client.parse().unwrap();
            assert_eq!(client_of(address.parse().unwrap()), client);
        }
    }

    #[test]
    fn idle_connections_are_shed_first() {
        let connections = Connections::new(8, 8);
        connections.shed();
        let mut active = Admitted::from(&connections.active, "10.0.0.1");
        let mut idle = Admitted::from(&connections.idle, "10.0.0.1");
        connections.shed();
        assert!(active.is_open() && !idle.is_open());
        connections.shed();
        assert!(!active.is_open());
    }
}
