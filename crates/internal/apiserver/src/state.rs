//! Shared state of a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::faults::{Disconnect, Faults};
use crate::kind::Kind;
use crate::link::{Link, lock};
use crate::random::Random;
use crate::requests::Request;
use crate::store::Store;

/// Default period of bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Largest number of remembered ranges of shuffled events.
const MAX_SHUFFLED_RANGES: usize = 4096;

/// State of a server.
#[derive(Debug)]
pub(crate) struct State {
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    random: Mutex<Random>,
    links: Mutex<Links>,
    requests: Mutex<Vec<Request>>,
    watching: Mutex<BTreeMap<&'static str, usize>>,
    shuffled: Mutex<Vec<ShuffledRange>>,
    token: Mutex<String>,
    bookmark_period: Mutex<Duration>,
    bookmarks_asked: AtomicU64,
    expiries: AtomicU64,
    changed: watch::Sender<()>,
}

/// Open connections.
#[derive(Debug, Default)]
struct Links {
    all: Vec<Weak<Link>>,
    hung: bool,
}

/// Range of changes that a watch has received in another order.
#[derive(Debug)]
struct ShuffledRange {
    kind: Kind,
    start: u64,
    end: u64,
}

/// Counts a watch while it exists.
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
            shuffled: Mutex::default(),
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

    /// Changes objects, and wakes all watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let value = change(&mut self.store());
        self.wake();
        value
    }

    /// Returns the faults of a kind.
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

    /// Changes faults without waking watches.
    pub(crate) fn change_faults_quietly<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut lock(&self.faults))
    }

    pub(crate) fn with_random<T>(&self, work: impl FnOnce(&mut Random) -> T) -> T {
        work(&mut lock(&self.random))
    }

    /// Returns the version of lists of the newest state.
    pub(crate) fn outdated(&self, store: &Store, kind: Kind) -> u64 {
        let behind = self.faults(kind).outdated;
        store.version().saturating_sub(behind)
    }

    /// Returns the version of lists of any version.
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

    /// Records that changes after `start` up to `end` were sent in another order.
    pub(crate) fn record_shuffled(&self, kind: Kind, start: u64, end: u64) {
        let mut shuffled = lock(&self.shuffled);
        if shuffled.len() == MAX_SHUFFLED_RANGES {
            shuffled.remove(0);
        }
        shuffled.push(ShuffledRange { kind, start, end });
    }

    /// Returns the range of changes that a client at `version` may have missed.
    pub(crate) fn shuffled(&self, kind: Kind, version: u64) -> Option<(u64, u64)> {
        let shuffled = lock(&self.shuffled);
        let around = |range: &&ShuffledRange| {
            range.kind == kind && range.start < version && version <= range.end
        };
        shuffled
            .iter()
            .filter(around)
            .map(|range| (range.start, range.end))
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Adds a connection.
    pub(crate) fn admit(&self, link: &Arc<Link>) {
        let mut links = lock(&self.links);
        links.all.retain(|link| link.strong_count() > 0);
        links.all.push(Arc::downgrade(link));
        if links.hung {
            link.hang(true);
        }
    }

    /// Closes all connections, and returns their number.
    pub(crate) fn cut(&self, disconnect: Disconnect) -> usize {
        let links = std::mem::take(&mut lock(&self.links).all);
        let links = links.iter().filter_map(Weak::upgrade);
        links.inspect(|link| link.cut(disconnect)).count()
    }

    /// Stalls or resumes all connections, including new ones.
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

    /// Returns the number of watches of a resource, or of all resources.
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
