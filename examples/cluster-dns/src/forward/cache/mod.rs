//! The cache of answers: pure, with time as an argument.
//!
//! Time is a [`Duration`] since any constant moment. Positive and negative answers have
//! capacities of their own, so that names that do not exist never displace answers.
//!
//! An entry is fresh during its lifetime. Then it is stale during [`CacheOptions::stale`],
//! and answers only while the upstreams fail.
//!
//! ```text
//!       stored            lifetime ends                    lifetime + stale
//! ────────┼──── fresh ────────┼──────── expired ───────────────────┼──── removed
//!               prefetch ─►   │  asks the upstreams first;
//!               (popular)     │  after they fail: stale, answers at once
//! ```
//!
//! For example: `example.com A` lives for 30 s and is asked ten times a second. Near its
//! end one of these queries also refreshes it in the background, so no client ever waits.
//! If the upstreams go down, the query after the end waits for their failure, the entry becomes
//! stale, and from then on all queries are answered at once, while one in each
//! `stale_recheck` looks whether the upstreams are back.
//!
//! What must stay true:
//!
//! - `map`, `slab` and the lists of `segments` hold the same entries, and `Group::memory` is the
//!   sum of theirs. [`Cache::remove`] is the only way out.
//! - Each operation takes constant time: it runs under a lock that all threads want. A flush is
//!   the exception; an operator asks for it.
//! - What strangers can ask for is bounded in number *and* in bytes: a name costs them nothing,
//!   and one answer may have 64 KiB.

mod segments;

mod slab;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::options::CacheOptions;
use segments::{Index, Segments};
use slab::{Entry, Slab};

/// Memory of an entry in bytes, without its key and answer: node, map entry and allocations. It
/// keeps small answers from counting as almost nothing.
const ENTRY_OVERHEAD_BYTES: usize = 200;

/// An answer that uses more than this part of the memory, a quarter, is not cached: it would
/// displace all others for the sake of one name.
const MEMORY_DIVISOR_OF_ONE_ANSWER: usize = 4;

/// Shortest time between two prefetches of an entry. The first one needs some time to arrive, and
/// all queries until then would start another.
const PREFETCH_INTERVAL: Duration = Duration::from_secs(2);

/// Time to cache that no upstream answered. Short, because it says nothing about the name: the
/// next query may find them up again.
const NO_ANSWER_LIFETIME: Duration = Duration::from_secs(1);

/// Longest time to cache a failure: RFC 2308, section 7, allows five minutes, but a client
/// that got SERVFAIL tries again within seconds.
const MAX_FAILURE_LIFETIME: Duration = Duration::from_secs(5);

/// Type of a cached answer, as in the labels of metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AnswerType {
    /// Records answer the question.
    Success,
    /// NXDOMAIN, NODATA, or a failure.
    Denial,
}

/// An entry to store in the cache.
#[derive(Clone, Debug)]
pub(super) struct NewEntry {
    pub(super) answer: Answer,
    pub(super) answer_type: AnswerType,
    /// Time during which the entry is fresh.
    pub(super) lifetime: Duration,
    /// Whether the entry is a failure, which never answers after its lifetime: a stale SERVFAIL
    /// would hide that the upstreams are back.
    pub(super) is_failure: bool,
}

impl NewEntry {
    /// Creates the entry of a failure, or `None` if failures are not cached. `responded`: the
    /// failure is what an upstream answered, and not that none did.
    pub(super) fn failure(answer: Answer, responded: bool, options: &CacheOptions) -> Option<Self> {
        let longest = options.servfail_ttl.min(MAX_FAILURE_LIFETIME);
        let lifetime = if responded {
            longest
        } else {
            longest.min(NO_ANSWER_LIFETIME)
        };
        (!lifetime.is_zero()).then_some(Self {
            answer,
            // Failures have no capacity of their own. Among positive answers they would displace
            // what an outage needs most.
            answer_type: AnswerType::Denial,
            lifetime,
            is_failure: true,
        })
    }
}

/// Whether an entry that was found may be served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Freshness {
    /// Yes. The value is the age of the entry in seconds.
    Fresh(u32),
    /// Yes, with the TTL of stale answers: the upstreams failed to refresh the entry.
    Stale,
    /// Only if the upstreams fail to refresh the entry.
    Expired,
}

/// An entry that was found.
#[derive(Debug)]
pub(super) struct Hit<'a> {
    pub(super) answer: &'a Answer,
    pub(super) answer_type: AnswerType,
    pub(super) freshness: Freshness,
    /// Whether the caller must refresh the entry in the background.
    pub(super) needs_refresh: bool,
}

/// A cache of answers with bounded memory.
#[derive(Debug)]
pub(super) struct Cache {
    options: CacheOptions,
    map: HashMap<Arc<[u8]>, Index>,
    slab: Slab,
    success: Group,
    denial: Group,
}

/// Entries of one type, with limits of their own.
#[derive(Debug)]
struct Group {
    segments: Segments,
    capacity: usize,
    memory: usize,
}

impl Group {
    fn new(capacity: usize) -> Self {
        Self {
            segments: Segments::new(capacity),
            capacity,
            memory: 0,
        }
    }
}

impl Cache {
    /// Creates an empty cache with the capacities and the memory of `options`.
    pub(super) fn new(options: &CacheOptions) -> Self {
        Self {
            options: options.clone(),
            map: HashMap::new(),
            slab: Slab::default(),
            success: Group::new(options.success_capacity),
            denial: Group::new(options.denial_capacity),
        }
    }

    /// Returns the number of entries of a type.
    pub(super) fn len(&self, answer_type: AnswerType) -> usize {
        match answer_type {
            AnswerType::Success => self.success.segments.len(),
            AnswerType::Denial => self.denial.segments.len(),
        }
    }

    /// Finds an entry. An entry after the time of stale answers is removed.
    ///
    /// At most one hit in a time of `stale_recheck` needs a refresh of a stale entry.
    pub(super) fn get(&mut self, key: &[u8], now: Duration) -> Option<Hit<'_>> {
        let &at = self.map.get(key)?;
        let entry = self.slab.entry(at);
        // Saturating: a caller may have read the clock before the entry was stored, but waited for
        // the lock.
        let age = now.saturating_sub(entry.stored);
        if age >= longest_age(entry, &self.options) {
            self.remove(at);
            return None;
        }
        let freshness = if age < entry.lifetime {
            // For prefetches, which only a fresh entry gets. Others need not count.
            entry.hits = entry.hits.saturating_add(1);
            Freshness::Fresh(u32::try_from(age.as_secs()).unwrap_or(u32::MAX))
        } else if entry.refresh_failed {
            Freshness::Stale
        } else {
            Freshness::Expired
        };
        let interval = match freshness {
            Freshness::Fresh(_) => {
                is_prefetch_due(entry, age, &self.options).then_some(PREFETCH_INTERVAL)
            }
            Freshness::Stale => Some(self.options.stale_recheck),
            // The caller asks the upstreams itself, and waits for them.
            Freshness::Expired => None,
        };
        // The first hit that is due notes the next time, so that a thousand hits in the same second
        // begin one refresh.
        let interval = interval.filter(|_| now >= entry.next_refresh);
        if let Some(interval) = interval {
            entry.next_refresh = now.saturating_add(interval);
        }
        let answer_type = entry.answer_type;
        let (group, slab) = self.group(answer_type);
        // Also of an expired entry: somebody asks for the name, and the entry may have to answer.
        group.segments.hit(slab, at);
        // Looked up again, because `hit` changes the links that stand beside the entry.
        let answer = &self.slab.entry(at).answer;
        Some(Hit {
            answer,
            answer_type,
            freshness,
            needs_refresh: interval.is_some(),
        })
    }

    /// Stores an entry in place of an entry with the same key.
    ///
    /// Returns the number of entries that were evicted.
    pub(super) fn insert(&mut self, key: &[u8], new: NewEntry, now: Duration) -> usize {
        // The key twice would be wrong: map and slab share it.
        let memory = key.len() + new.answer.memory() + ENTRY_OVERHEAD_BYTES;
        let answer_type = new.answer_type;
        let most = self.options.memory;
        let mut known = self.map.get(key).copied();
        let is_storable =
            self.group(answer_type).0.capacity > 0 && memory <= most / MEMORY_DIVISOR_OF_ONE_ANSWER;
        // The previous answer is wrong now, also if the new one cannot be stored or has a place
        // among those of the other type, as of a name that came into being.
        if let Some(at) = known
            && (!is_storable || self.slab.entry(at).answer_type != answer_type)
        {
            self.remove(at);
            known = None;
        }
        if !is_storable {
            return 0;
        }
        let entry = Entry::new(new, memory, now);
        let (group, slab) = self.group(answer_type);
        // Added before the memory of the previous entry is subtracted, so that it never underflows.
        group.memory += memory;
        // In place: the entry keeps its position in the lists, so a refresh does not make a name
        // popular.
        if let Some(at) = known {
            // Its hits begin at 0 again.
            group.memory -= slab.entry(at).memory;
            *slab.entry(at) = entry;
        } else {
            let key = Arc::<[u8]>::from(key);
            let at = slab.insert(Arc::clone(&key), entry);
            group.segments.insert(slab, at);
            self.map.insert(key, at);
        }
        // After the insertion, so that the new entry counts. Also for a replaced entry, whose answer
        // may be larger than before.
        self.evict(answer_type)
    }

    /// Notes that the upstreams failed to refresh an entry, which then answers while it is
    /// stale. Returns whether an entry answers.
    pub(super) fn refresh_failed(&mut self, key: &[u8], now: Duration) -> bool {
        let Some(&at) = self.map.get(key) else {
            return false;
        };
        let entry = self.slab.entry(at);
        let age = now.saturating_sub(entry.stored);
        // Not removed here: `get` or an eviction does that, or a failure that takes its place.
        if age >= longest_age(entry, &self.options) {
            return false;
        }
        // A failed prefetch of a fresh entry changes nothing: the entry is still valid.
        if age >= entry.lifetime {
            entry.refresh_failed = true;
            // Whoever called this has just asked. The first stale hit shall not ask again at once.
            entry.next_refresh = now.saturating_add(self.options.stale_recheck);
        }
        true
    }

    /// Removes all entries whose key `selects` accepts.
    pub(super) fn flush(&mut self, mut selects: impl FnMut(&[u8]) -> bool) {
        let selected = self.map.iter().filter(|(key, _)| selects(key));
        // Collected, because `remove` changes the map.
        let selected = selected.map(|(_, &at)| at).collect::<Vec<_>>();
        for at in selected {
            self.remove(at);
        }
    }

    /// Removes entries until the type is within its capacity and memory.
    ///
    /// The new entry may be the victim itself, if it is the only one on probation and popular
    /// entries fill the memory.
    fn evict(&mut self, answer_type: AnswerType) -> usize {
        let most = self.options.memory;
        let mut evicted = 0;
        loop {
            let (group, _) = self.group(answer_type);
            let is_full = group.segments.len() > group.capacity || group.memory > most;
            // Without a victim the group is empty, and then it is not full either.
            let Some(victim) = group.segments.victim().filter(|_| is_full) else {
                return evicted;
            };
            self.remove(victim);
            evicted += 1;
        }
    }

    fn remove(&mut self, at: Index) {
        let entry = self.slab.entry(at);
        let (answer_type, memory) = (entry.answer_type, entry.memory);
        let (group, slab) = self.group(answer_type);
        group.memory -= memory;
        // From the list first: its neighbors are in the node, which the slab drops.
        group.segments.remove(slab, at);
        let key = slab.remove(at);
        self.map.remove(&key);
    }

    /// Returns the group of a type and the slab, which both groups share. They are returned together
    /// because a second call would borrow the whole cache again.
    fn group(&mut self, answer_type: AnswerType) -> (&mut Group, &mut Slab) {
        let group = match answer_type {
            AnswerType::Success => &mut self.success,
            AnswerType::Denial => &mut self.denial,
        };
        (group, &mut self.slab)
    }
}

/// Returns the age at which an entry answers no more.
fn longest_age(entry: &Entry, options: &CacheOptions) -> Duration {
    let stale = if entry.is_failure {
        Duration::ZERO
    } else {
        options.stale
    };
    entry.lifetime.saturating_add(stale)
}

/// Returns whether a fresh entry is popular and near its end.
///
/// An entry that is asked rarely is not worth a query, and a failure shall be asked again by a
/// client that needs it. The last second counts always: 10 percent of a TTL of 5 s are 500 ms, in
/// which there may be no hit.
fn is_prefetch_due(entry: &Entry, age: Duration, options: &CacheOptions) -> bool {
    let is_popular = options.prefetch_hits > 0 && entry.hits >= options.prefetch_hits;
    let part = entry.lifetime.saturating_mul(options.prefetch_percent) / 100;
    let remaining = entry.lifetime.saturating_sub(age);
    is_popular && !entry.is_failure && remaining <= part.max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod laws;
