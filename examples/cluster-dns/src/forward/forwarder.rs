//! Answers from the cache and from the upstreams.
//!
//! The problem: a client waits for servers that may be slow or dead, and so do all others that
//! share its places, sockets and memory. A query must end, it must not cost others theirs, and an
//! old answer is better than none.
//!
//! One query for `www.example.com.` of type A. Everything but `fly` is on the side of one client,
//! and `fly` is one task for all clients with the same key:
//!
//! ```text
//! cached              a UDP thread looks into the cache; a fresh or stale answer ends here
//! answer
//!   └► try_answer     looks again (the answer may have come), then joins the flight of the key
//!        ├► join      follows the query that is under way, or begins it in a place of the set
//!        │    └► fly  asks the upstreams, keeps the outcome in the cache, then tells followers
//!        └► wait      for the outcome; an expired entry answers if that takes 1.8 s or fails
//! ```
//!
//! An expired entry answers only if the upstreams failed to refresh it. This is a state of the
//! entry, [`Cache::refresh_failed`](super::cache::Cache::refresh_failed), not of the query: the
//! first client waits for the failure, and the next ones get the stale answer at once.
//!
//! What was given up: one limit of waiting clients for all upstreams. One dead stub domain took all
//! places, and names of healthy upstreams were refused. Now each set has its own
//! (`places.rs`), and within a set a client can lose its place to one that has fewer.
//!
//! What must stay true:
//!
//! - `fly` stores before it tells. Otherwise a query between the two finds neither the entry nor the
//!   flight, and asks again; and a follower would find no stale entry that may answer.
//! - No lock is held over an `await`, and none of the cache while the flights are asked for one.
//! - Only the answer and failures of upstreams get into the cache, never that we had no place.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::BinEncodable;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::answer::{Answer, Form, Ttl};
use super::ask::{Asked, ask};
use super::cache::{AnswerType, Freshness};
use super::counters::Counters;
use super::error::ForwardError;
use super::flight::{Flight, Flights, Joined, Outcome, Pending};
use super::options::{ForwardOptions, Upstreams};
use super::places::Evicted;
use super::probe::{self, Probes};
use super::query::{Key, Query, suffixes};
use super::routes::{Routes, Source};
use super::store::Store;
use super::upstream::Upstream;
use crate::rotation::Rotation;

/// Longest message in bytes: over TCP, 16 bits before it have its length.
const LONGEST_MESSAGE_BYTES: usize = u16::MAX as usize;

/// Types of questions that are no records of a zone: OPT, TKEY, TSIG, the transfers IXFR and AXFR,
/// and the obsolete MAILB and MAILA. A transfer has many messages, which no cache entry can hold,
/// and the others are about one connection and mean nothing to the next server. ANY (255) is asked.
const REFUSED_TYPES: [u16; 7] = [41, 249, 250, 251, 252, 253, 254];

/// Shortest interval of the task that reads the file with the upstreams. An interval of 0 would
/// read the file without a pause.
const SHORTEST_RELOAD_INTERVAL: Duration = Duration::from_millis(50);

const SERVFAIL: u8 = 2;
const REFUSED: u8 = 5;

/// A forwarder with a cache. Clones share all state.
#[derive(Clone, Debug)]
pub struct Forwarder {
    shared: Arc<Shared>,
}

/// State of a forwarder.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ForwardOptions,
    /// Replaced as a whole by [`reload`]. A query clones the `Arc` and ends with the routes that it
    /// began with.
    routes: RwLock<Arc<Routes>>,
    /// Counts queries for the policy `round_robin`. It is not in the routes, so that a reload does
    /// not begin with the first upstream again.
    pub(super) turn: AtomicUsize,
    /// Chooses which record comes first in the next answer, so that clients that take the first one
    /// are spread.
    rotation: Rotation,
    store: Store,
    /// In an `Arc` of its own: each [`Flight`] removes itself from it when it ends.
    flights: Arc<Flights>,
    pub(super) counters: Counters,
    pub(super) probes: Probes,
    /// Time zero of the cache.
    start: Instant,
    /// UDP threads are no threads of the runtime, and begin refreshes there: `tokio::spawn` would
    /// panic.
    pub(super) runtime: Handle,
}

/// An answer of the cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CachedAnswer {
    /// Type of the entry.
    pub answer_type: AnswerType,
    /// RCODE of the answer.
    pub rcode: u8,
    /// Whether the lifetime of the entry is over.
    pub is_stale: bool,
}

/// Result of a look-up in the cache.
enum Found {
    Answer(CachedAnswer),
    /// The entry answers only if the upstreams fail.
    Expired,
    Nothing,
}

impl Forwarder {
    /// Creates a forwarder. Its tasks run on the current runtime until all clones are
    /// dropped.
    ///
    /// # Errors
    ///
    /// - [`ForwardError::ResolvConf`] if the file with the upstreams cannot be read.
    /// - [`ForwardError::Loop`] if an option names an address of this process.
    /// - [`ForwardError::NoUpstream`] if no usable upstream is left.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime.
    pub fn new(options: ForwardOptions) -> Result<Self, ForwardError> {
        let source = Source::read(&options)?;
        let routes = Routes::new(&options, &source, None)?;
        let shared = Arc::new(Shared {
            store: Store::new(&options.cache),
            options,
            routes: RwLock::new(Arc::new(routes)),
            turn: AtomicUsize::new(0),
            rotation: Rotation::default(),
            flights: Arc::default(),
            counters: Counters::default(),
            probes: Probes::default(),
            start: Instant::now(),
            runtime: Handle::current(),
        });
        // Weak: with a strong reference the task would keep the forwarder alive, and never end.
        tokio::spawn(reload(Arc::downgrade(&shared), source));
        Ok(Self { shared })
    }

    /// Answers from the cache, without waiting.
    ///
    /// `client` is the address of the client, for its share of the places for queries. The
    /// answer with at most `limit` bytes replaces the content of `out`. Returns `None`
    /// if the upstreams must be asked; then the content of `out` is unspecified. Due
    /// refreshes begin in the background.
    pub fn cached(
        &self,
        query: &Query<'_>,
        client: IpAddr,
        limit: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<CachedAnswer> {
        // An IPv4 client on a socket of IPv6 is the same client, with one share of the places.
        let client = client.to_canonical();
        match self.find(query, &query.key(), client, limit, now, out) {
            Found::Answer(cached) => Some(cached),
            // `answer` distinguishes them: an expired entry may become the answer later.
            Found::Expired | Found::Nothing => None,
        }
    }

    /// Answers from the cache or from the upstreams.
    ///
    /// The answer with at most `limit` bytes replaces the content of `out`. It is SERVFAIL
    /// or another error of the upstreams if they fail and there is no stale answer. It is
    /// REFUSED for zone transfers, and if the upstreams have no place for a query of the
    /// client with the address `client`.
    pub async fn answer(&self, query: &Query<'_>, client: IpAddr, limit: usize, out: &mut Vec<u8>) {
        let client = client.to_canonical();
        let rcode = match self.try_answer(query, client, limit, out).await {
            Ok(()) => return,
            Err(rcode) => rcode,
        };
        Answer::error(query, rcode).write(query, self.form(Ttl::Age(0), limit), out);
    }

    /// Answers a decoded request of an unknown client, as
    /// [`resolve_for`](Self::resolve_for) does. All unknown clients have one share of the places.
    pub async fn resolve(&self, request: &Message) -> Message {
        self.resolve_for(Ipv4Addr::UNSPECIFIED.into(), request)
            .await
    }

    /// Answers a decoded request of a client. The response is not truncated.
    ///
    /// The response is FORMERR if the request is not a standard query with one question.
    pub async fn resolve_for(&self, client: IpAddr, request: &Message) -> Message {
        let mut out = Vec::new();
        // A message that cannot be encoded is an empty one, which is no query: FORMERR.
        let encoded = request.to_vec().unwrap_or_default();
        let mut code = ResponseCode::FormErr;
        if let Some(query) = Query::parse(&encoded) {
            self.answer(&query, client, LONGEST_MESSAGE_BYTES, &mut out)
                .await;
            // What upstreams sent was decoded and encoded again, so this does not fail unless there
            // is a bug, and then the client still gets an answer.
            if let Ok(response) = Message::from_vec(&out) {
                return response;
            }
            code = ResponseCode::ServFail;
        }
        Message::error_msg(request.metadata.id, request.metadata.op_code, code)
    }

    /// Returns whether a name in wire format has upstreams. Without upstreams for all names,
    /// only those of stub domains have some.
    pub fn has_upstreams(&self, name: &[u8]) -> bool {
        let shared = &self.shared;
        // The usual case first: it needs neither the lock nor a copy of the name.
        shared.options.upstreams != Upstreams::None
            || shared.routes().has_upstreams(&name.to_ascii_lowercase())
    }

    /// Looks for forwarding loops: sends a question to each upstream, and again after each
    /// change of the upstreams. This process must serve already.
    pub fn probe_loops(&self) {
        probe::start_all(&self.shared);
    }

    /// Returns whether a question of a client is one of those of
    /// [`probe_loops`](Self::probe_loops), which came back. Logs the loop.
    pub fn is_probe(&self, query: &Query<'_>, client: IpAddr) -> bool {
        self.shared.probes.came_back(query, client)
    }

    /// Returns the number of upstreams that send our queries back to us.
    pub fn loops(&self) -> usize {
        self.shared.probes.loops()
    }

    /// Removes all entries from the cache. Queries that are under way are not cached.
    pub fn flush(&self) {
        self.shared.store.flush(|_| true);
    }

    /// Removes the entries of a domain and of all names below it.
    pub fn flush_domain(&self, domain: &Name) {
        // Keys have names in lower case. A name that was parsed can be encoded.
        let suffix = domain.to_lowercase().to_bytes().unwrap_or_default();
        self.shared
            .store
            .flush(|key| is_below(Key::name(key), &suffix));
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the number of entries in the cache: `coredns_cache_entries`.
    pub fn entries(&self, answer_type: AnswerType) -> usize {
        self.shared.store.len(answer_type)
    }

    /// Returns the number of queries to upstreams that are under way.
    pub fn pending(&self) -> usize {
        self.shared.flights.len()
    }

    /// Returns the current upstreams, each once, ordered by address.
    pub fn upstreams(&self) -> Vec<Arc<Upstream>> {
        let mut upstreams = self
            .shared
            .routes()
            .upstreams()
            .cloned()
            .collect::<Vec<_>>();
        // The routes have a map, whose order differs in each process; metrics would jump.
        upstreams.sort_by_key(|upstream| upstream.address());
        upstreams
    }

    async fn try_answer(
        &self,
        query: &Query<'_>,
        client: IpAddr,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), u8> {
        if REFUSED_TYPES.contains(&query.record_type) || !self.has_upstreams(query.name) {
            return Err(REFUSED);
        }
        let key = query.key();
        // One set for the whole query: its places must be freed where they were taken.
        let routes = self.shared.routes();
        let set = routes.set(Key::name(&key));
        let asking = Asking {
            query,
            key,
            client,
            limit,
        };
        // `cached` missed some time ago, and another client may have brought the answer since.
        // ExternalName Services come here without `cached`.
        let may_be_stale = match self.find(query, &key, client, limit, Instant::now(), out) {
            Found::Answer(_) => return Ok(()),
            Found::Expired => true,
            Found::Nothing => false,
        };
        // Joined before a stale answer is served, so that the entry is refreshed also if nobody waits.
        let joined = self.join(&key, client);
        // Waiting cannot help now, so a client that could have an old answer gets it at once instead
        // of after `stale_wait`. If it has none, it waits for the one try of `ask`, or is refused.
        if may_be_stale && (joined.is_none() || set.is_down()) {
            self.refresh_failed(&key);
            if self.serve_stale(&asking, out) {
                return Ok(());
            }
        }
        let pending = joined.ok_or(REFUSED)?;
        // The second limit. `join` limits queries, and thousands of clients can follow one query:
        // each is a task with a buffer. Stale answers came before, as they do not wait.
        let Some((_place, evicted)) = set.waiting.take(client) else {
            self.shared.counters.max_concurrent_rejects.increment();
            return Err(REFUSED);
        };
        // Biased: an answer that has arrived is not thrown away because the place is lost as well.
        // Dropping `wait` ends nothing for others; the flight is a task of its own.
        tokio::select! {
            biased;
            answered = self.wait(&asking, pending, may_be_stale, out) => answered,
            _ = evicted => {
                self.shared.counters.max_concurrent_rejects.increment();
                Err(REFUSED)
            }
        }
    }

    /// Waits for the outcome of a query.
    ///
    /// There is no time limit here: `ask` ends at its deadline and always has an outcome.
    async fn wait(
        &self,
        asking: &Asking<'_>,
        mut pending: Pending,
        mut may_be_stale: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), u8> {
        loop {
            let outcome = pending.wait_for(Option::is_some);
            let outcome = if may_be_stale {
                // RFC 8767, section 5: 1.8 s, just under the 2 s after which many clients give up.
                // The flight goes on and refreshes the entry.
                let wait = self.shared.options.cache.stale_wait;
                let Ok(outcome) = timeout(wait, outcome).await else {
                    may_be_stale = false;
                    self.refresh_failed(&asking.key);
                    if self.serve_stale(asking, out) {
                        return Ok(());
                    }
                    // The entry is gone: evicted, flushed or too old. Nothing is left but to wait.
                    continue;
                };
                outcome
            } else {
                outcome.await
            };
            // The error is a flight that was dropped without an outcome, because its task panicked.
            // Without this the client would get no answer at all. The clone lets go of the lock of the
            // channel before the answer is written.
            let outcome = outcome.map_err(|_| SERVFAIL)?.clone().ok_or(SERVFAIL)?;
            match &*outcome {
                // `fly` has marked the entry as failed before it told, so it may answer now, and
                // the failure is only for clients without an entry.
                Outcome::Failure(_) if may_be_stale && self.serve_stale(asking, out) => {}
                Outcome::Answer(answer) | Outcome::Failure(answer) => {
                    self.shared.counters.cache_misses.increment();
                    let form = self.form(Ttl::Age(0), asking.limit);
                    answer.write(asking.query, form, out);
                }
            }
            return Ok(());
        }
    }

    /// Looks up an entry, and writes the answer of a usable one.
    fn find(
        &self,
        query: &Query<'_>,
        key: &Key,
        client: IpAddr,
        limit: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Found {
        let shared = &self.shared;
        let mut needs_refresh = false;
        // The answer is written while the shard is locked: it stands in the cache and is not copied.
        let found = shared.store.with(key, |cache| {
            let Some(hit) = cache.get(key, now.saturating_duration_since(shared.start)) else {
                return Found::Nothing;
            };
            // Also of a stale entry: its refresh looks whether the upstreams are back.
            needs_refresh = hit.needs_refresh;
            let ttl = match hit.freshness {
                Freshness::Fresh(age) => Ttl::Age(age),
                Freshness::Stale => Ttl::Stale(shared.stale_ttl()),
                Freshness::Expired => return Found::Expired,
            };
            hit.answer.write(query, self.form(ttl, limit), out);
            Found::Answer(CachedAnswer {
                answer_type: hit.answer_type,
                rcode: hit.answer.rcode(),
                is_stale: hit.freshness == Freshness::Stale,
            })
        });
        // All after the lock: a refresh takes that of the flights, and spawns a task.
        if let Found::Answer(cached) = &found {
            shared
                .counters
                .cache_hits
                .of(cached.answer_type)
                .increment();
            if cached.is_stale {
                shared.counters.served_stale.increment();
            }
        }
        if needs_refresh {
            shared.counters.prefetches.increment();
            // Without a place for the query, a later hit tries again.
            self.join(key, client);
        }
        found
    }

    /// Writes the answer of an entry, if the upstreams failed to refresh it, or just succeeded:
    /// then the fresh answer is even better.
    fn serve_stale(&self, asking: &Asking<'_>, out: &mut Vec<u8>) -> bool {
        let Asking {
            query,
            key,
            client,
            limit,
        } = asking;
        let found = self.find(query, key, *client, *limit, Instant::now(), out);
        matches!(found, Found::Answer(_))
    }

    fn refresh_failed(&self, key: &Key) {
        self.shared.refresh_failed(key);
    }

    /// Joins or begins the upstream query of a key, if the upstreams have a place for the
    /// client.
    fn join(&self, key: &Key, client: IpAddr) -> Option<Pending> {
        let shared = &self.shared;
        let routes = shared.routes();
        let set = routes.set(Key::name(key));
        match shared.flights.join(key, &set.places, client) {
            // One query for all: a popular name that expires would otherwise be asked by everyone
            // at the same time.
            Joined::Follower(pending) => {
                shared.counters.shared.increment();
                // An upstream that asks what we just asked it may have sent it back. Such a query
                // waits for itself until the deadline; the probe makes the log say so.
                let is_client = |upstream: &&Arc<Upstream>| upstream.address().ip() == client;
                if let Some(suspect) = set.upstreams().iter().find(is_client) {
                    probe::start(shared, Key::name(key), suspect);
                }
                Some(pending)
            }
            Joined::Leader(pending, flight, evicted) => {
                // A task, not part of this future: a client that gives up must not end the query
                // that others follow.
                let flight = fly(Arc::clone(shared), *key, flight, evicted);
                shared.runtime.spawn(flight);
                Some(pending)
            }
            Joined::Full => {
                shared.counters.max_concurrent_rejects.increment();
                None
            }
        }
    }

    fn form(&self, ttl: Ttl, limit: usize) -> Form {
        Form {
            ttl,
            limit,
            payload_size: self.shared.options.udp_payload_size,
            rotation: self.shared.rotation.next(),
        }
    }
}

impl Shared {
    /// Returns the current routes.
    pub(super) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn refresh_failed(&self, key: &Key) {
        let now = self.start.elapsed();
        self.store.with(key, |cache| cache.refresh_failed(key, now));
    }

    fn stale_ttl(&self) -> u32 {
        // RFC 8767, section 4: more than 0, so that clients do not ask again for each connection,
        // and 30 s recommended, so that they notice the recovery.
        const MOST_SECONDS: u64 = 30;
        let seconds = self.options.cache.stale_ttl.as_secs();
        u32::try_from(seconds.clamp(1, MOST_SECONDS)).unwrap_or(1)
    }

    /// Stores the outcome of a query, unless the cache was flushed since.
    fn keep(&self, key: &Key, asked: Asked, flushes: u64) -> Outcome {
        let now = self.start.elapsed();
        let (outcome, entry) = asked.into_outcome(&self.options.cache);
        self.store.with(key, |cache| {
            // Compared while the shard is locked. A flush counts first and then locks each shard, so
            // either this sees the count, or the flush comes later and removes the entry.
            let is_failure = matches!(outcome, Outcome::Failure(_));
            // A failure does not replace an answer that still serves, fresh or stale: without this
            // one SERVFAIL would end the hour for which an outage is bridged.
            if self.store.flushes() != flushes || (is_failure && cache.refresh_failed(key, now)) {
                return;
            }
            if let Some(entry) = entry {
                let answer_type = entry.answer_type;
                let evicted = cache.insert(key, entry, now);
                // Those that were evicted are of the type of the new one: each has its own group.
                let evictions = self.counters.evictions.of(answer_type);
                evictions.add(u64::try_from(evicted).unwrap_or_default());
            }
        });
        outcome
    }
}

/// A client's question.
struct Asking<'a> {
    query: &'a Query<'a>,
    key: Key,
    client: IpAddr,
    /// Longest answer in bytes.
    limit: usize,
}

/// Asks the upstreams, stores the outcome and sends it to the followers. If the place of the
/// query goes to another client, the followers get REFUSED, which is not stored.
async fn fly(shared: Arc<Shared>, key: Key, flight: Flight, evicted: Evicted) {
    // Before the question is sent: an answer to it may be from before a flush, and whoever flushes
    // wants to get rid of it.
    let flushes = shared.store.flushes();
    // Biased, for the same reason as in `try_answer`.
    let asked = tokio::select! {
        biased;
        asked = ask(&shared, &key) => asked,
        _ = evicted => {
            shared.counters.max_concurrent_rejects.increment();
            // Our own limit and not a failure of the upstreams, but followers with an expired entry
            // shall get it.
            shared.refresh_failed(&key);
            let refused = Answer::error(&key.query(), REFUSED);
            return flight.complete(Outcome::Failure(refused));
        }
    };
    // In this order, see the top of the file.
    let outcome = shared.keep(&key, asked, flushes);
    flight.complete(outcome);
}

/// Reads the file with the upstreams again after each interval, and closes idle
/// connections.
async fn reload(shared: Weak<Shared>, mut source: Source) {
    loop {
        // Strong only between two pauses, so that the task ends after the last clone is dropped.
        let Some(interval) = shared.upgrade().map(|shared| shared.options.reload) else {
            return;
        };
        sleep(interval.max(SHORTEST_RELOAD_INTERVAL)).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        // Here, because no other task runs at intervals. A connection may stay open for one more of
        // them after its time.
        let routes = shared.routes();
        routes
            .upstreams()
            .for_each(|upstream| upstream.close_idle());
        let read = match Source::read(&shared.options) {
            Ok(read) if read != source => read,
            Ok(_) => continue,
            Err(error) => {
                warn!(%error, "upstream name servers stay as they are; retrying");
                continue;
            }
        };
        // Also if it turns out to be unusable: then the warning below is one for each change, not one
        // for each interval.
        source = read;
        // With the previous routes, so that upstreams that stay keep what is known of them, and
        // places that are taken stay taken.
        match Routes::new(&shared.options, &source, Some(&routes)) {
            Ok(routes) => {
                let addresses = routes.upstreams().map(|upstream| upstream.address());
                let upstreams = addresses.collect::<Vec<_>>();
                info!(?upstreams, "upstream name servers changed");
                *shared
                    .routes
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
                // A new upstream may forward to us.
                probe::start_all(&shared);
            }
            // For example a file that is being written: no name server is worse than old ones.
            Err(error) => {
                warn!(%error, "upstream name servers stay as they are until the file changes");
            }
        }
    }
}

/// Returns whether a name is equal to a domain or below it, both in wire format and lower
/// case. Whole labels are compared: `notexample.com` is not below `example.com`.
fn is_below(name: &[u8], domain: &[u8]) -> bool {
    suffixes(name).any(|suffix| suffix == domain)
}
