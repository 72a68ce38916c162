//! What all parts of a server share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::faults::{Ending, Faults};
use crate::kind::Kind;
use crate::link::Link;
use crate::random::Random;
use crate::requests::Request;
use crate::store::Store;

/// How often a watch is sent a bookmark unless told otherwise.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How many mixed stretches of history are remembered.
const STRETCHES: usize = 4096;

/// The state of a server.
#[derive(Debug)]
pub(crate) struct State {
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    random: Mutex<Random>,
    links: Mutex<Links>,
    requests: Mutex<Vec<Request>>,
    watching: Mutex<BTreeMap<&'static str, usize>>,
    mixed: Mutex<Vec<Stretch>>,
    token: Mutex<String>,
    bookmark_period: Mutex<Duration>,
    bookmarks_asked: AtomicU64,
    expiries: AtomicU64,
    changed: watch::Sender<()>,
}

/// The connections there are.
#[derive(Debug, Default)]
struct Links {
    all: Vec<Weak<Link>>,
    hung: bool,
}

/// Changes that some watch was told in another order.
#[derive(Debug)]
struct Stretch {
    kind: Kind,
    start: u64,
    end: u64,
}

/// A watch that is counted.
#[derive(Debug)]
pub(crate) struct Watching {
    state: Arc<State>,
    kind: Kind,
}

impl State {
    pub(crate) fn new(token: String) -> Self {
        Self {
            store: Mutex::new(Store::new()),
            faults: Mutex::default(),
            random: Mutex::new(Random::new(0)),
            links: Mutex::default(),
            requests: Mutex::default(),
            watching: Mutex::default(),
            mixed: Mutex::default(),
            token: Mutex::new(token),
            bookmark_period: Mutex::new(BOOKMARK_PERIOD),
            bookmarks_asked: AtomicU64::new(0),
            expiries: AtomicU64::new(0),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// Changes objects, and wakes those who wait for it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let value = change(&mut self.store());
        self.wake();
        value
    }

    /// Returns what goes wrong with a kind.
    pub(crate) fn faults(&self, kind: Kind) -> Faults {
        let faults = lock(&self.faults);
        if faults.concern(kind) {
            faults.clone()
        } else {
            Faults::default()
        }
    }

    pub(crate) fn change_faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        let value = change(&mut lock(&self.faults));
        self.wake();
        value
    }

    /// Changes faults in a way that no watch has to look at.
    pub(crate) fn change_faults_quietly<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut lock(&self.faults))
    }

    pub(crate) fn with_random<T>(&self, work: impl FnOnce(&mut Random) -> T) -> T {
        work(&mut lock(&self.random))
    }

    /// Returns the version that a list of the newest state shows.
    pub(crate) fn outdated(&self, store: &Store, kind: Kind) -> u64 {
        let behind = self.faults(kind).outdated;
        store.version().saturating_sub(behind)
    }

    /// Returns the version that lists of a kind are of when any will do.
    pub(crate) fn stale(&self, store: &Store, kind: Kind) -> u64 {
        let newest = store.version();
        let old = newest.saturating_sub(self.faults(kind).stale);
        store.table(kind).since(old).map_or(newest, |_| old)
    }

    /// Wakes all watches.
    pub(crate) fn wake(&self) {
        self.changed.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn token(&self) -> String {
        lock(&self.token).clone()
    }

    pub(crate) fn set_token(&self, token: &str) {
        token.clone_into(&mut lock(&self.token));
    }

    pub(crate) fn bookmark_period(&self) -> Duration {
        *lock(&self.bookmark_period)
    }

    pub(crate) fn set_bookmark_period(&self, period: Duration) {
        *lock(&self.bookmark_period) = period;
    }

    pub(crate) fn bookmarks_asked(&self) -> u64 {
        self.bookmarks_asked.load(Ordering::SeqCst)
    }

    pub(crate) fn ask_for_bookmarks(&self) {
        self.bookmarks_asked.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn expiries(&self) -> u64 {
        self.expiries.load(Ordering::SeqCst)
    }

    pub(crate) fn expire(&self) {
        self.expiries.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Remembers that changes after `start` up to `end` were told in no order.
    pub(crate) fn mix(&self, kind: Kind, start: u64, end: u64) {
        let mut mixed = lock(&self.mixed);
        if mixed.len() == STRETCHES {
            mixed.remove(0);
        }
        mixed.push(Stretch { kind, start, end });
    }

    /// Returns the changes that somebody who is at `version` may have missed.
    pub(crate) fn mixed(&self, kind: Kind, version: u64) -> Option<(u64, u64)> {
        let mixed = lock(&self.mixed);
        let around = |stretch: &&Stretch| {
            stretch.kind == kind && stretch.start < version && version <= stretch.end
        };
        mixed
            .iter()
            .filter(around)
            .map(|stretch| (stretch.start, stretch.end))
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Takes in a connection.
    pub(crate) fn admit(&self, link: &Arc<Link>) {
        let mut links = lock(&self.links);
        links.all.retain(|link| link.strong_count() > 0);
        links.all.push(Arc::downgrade(link));
        if links.hung {
            link.hang(true);
        }
    }

    /// Cuts all connections, and returns how many there were.
    pub(crate) fn cut(&self, ending: Ending) -> usize {
        let links = std::mem::take(&mut lock(&self.links).all);
        let links = links.iter().filter_map(Weak::upgrade);
        links.inspect(|link| link.cut(ending)).count()
    }

    /// Stops or goes on reading and writing on all connections, also new ones.
    pub(crate) fn hang(&self, hang: bool) {
        let mut links = lock(&self.links);
        links.hung = hang;
        for link in links.all.iter().filter_map(Weak::upgrade) {
            link.hang(hang);
        }
    }

    pub(crate) fn log(&self, request: Request) {
        lock(&self.requests).push(request);
    }

    pub(crate) fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        lock(&self.requests)
    }

    /// Returns how many watches there are, of one resource or of all.
    pub(crate) fn watchers(&self, plural: Option<&str>) -> usize {
        let watching = lock(&self.watching);
        let wanted = |(name, _): &(&&str, &usize)| plural.is_none_or(|plural| **name == plural);
        watching.iter().filter(wanted).map(|(_, count)| count).sum()
    }

    fn count(&self, kind: Kind, change: impl FnOnce(usize) -> usize) {
        let mut watching = lock(&self.watching);
        let count = watching.entry(kind.plural()).or_default();
        *count = change(*count);
    }
}

impl Watching {
    pub(crate) fn new(state: &Arc<State>, kind: Kind) -> Self {
        state.count(kind, |count| count + 1);
        let state = Arc::clone(state);
        Self { state, kind }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.state.count(self.kind, |count| count - 1);
    }
}

/// Locks; a panic elsewhere is that thread's own matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
