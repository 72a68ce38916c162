//! The cache of all threads: shards, each behind a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::cache::{AnswerType, Cache};
use super::options::CacheOptions;

/// Shards of a large cache.
const SHARDS: usize = 16;

/// Entries for which a further shard is worthwhile.
const ENTRIES_PER_SHARD: usize = 64;

/// A cache for many threads.
#[derive(Debug)]
pub(super) struct Store {
    shards: Box<[Mutex<Cache>]>,
    hasher: RandomState,
    flushes: AtomicU64,
}

impl Store {
    pub(super) fn new(options: &CacheOptions) -> Self {
        let largest = options.success_capacity.max(options.denial_capacity);
        let shards = (largest / ENTRIES_PER_SHARD).clamp(1, SHARDS);
        let of_shard = CacheOptions {
            success_capacity: options.success_capacity.div_ceil(shards),
            denial_capacity: options.denial_capacity.div_ceil(shards),
            memory: options.memory / shards,
            ..options.clone()
        };
        let shards = (0..shards)
            .map(|_| Mutex::new(Cache::new(&of_shard)))
            .collect();
        Self {
            shards,
            hasher: RandomState::new(),
            flushes: AtomicU64::new(0),
        }
    }

    /// Calls `work` with the shard of a key.
    pub(super) fn with<T>(&self, key: &[u8], work: impl FnOnce(&mut Cache) -> T) -> T {
        // The remainder of a division by the number of shards, which is below 2^32.
        let hash = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or_default();
        let shard = &self.shards[hash % self.shards.len()];
        work(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of entries of a type.
    pub(super) fn len(&self, answer_type: AnswerType) -> usize {
        let len = |shard: &Mutex<Cache>| {
            shard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .len(answer_type)
        };
        self.shards.iter().map(len).sum()
    }

    /// Removes all entries whose key `selects` accepts.
    pub(super) fn flush(&self, selects: impl Fn(&[u8]) -> bool) {
        // First, so that answers to earlier questions are not stored later.
        self.flushes.fetch_add(1, Ordering::SeqCst);
        for shard in &self.shards {
            shard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .flush(&selects);
        }
    }

    /// Returns the number of flushes.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }
}
