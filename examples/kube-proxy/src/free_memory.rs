//! Schedule for the return of free memory to the system.
//!
//! A large sync frees most of the memory that it allocates, and so does the search for
//! stale flows that follows. The allocator keeps free memory between objects in use.

use std::mem;
use std::time::Duration;

use proxy_core::Report;

/// Number of edits of a large sync.
const LARGE_SYNC: usize = 10_000;

/// Time from a large sync, and from the end of the search that follows, to the return of
/// memory.
const DELAY: Duration = Duration::from_secs(1);

/// Determines when free memory is returned.
#[derive(Debug, Default)]
pub struct FreeMemory {
    due: Option<Duration>,
    /// Whether no search for stale flows has ended since the last large sync.
    awaits_search: bool,
}

impl FreeMemory {
    /// Schedules the return of memory if a sync was large.
    pub fn synced(&mut self, report: &Report, now: Duration) {
        let mut outcomes = report.families.iter().flat_map(|done| &done.outcome);
        // A sync that only compares the state reads all objects, too.
        if outcomes.any(|outcome| outcome.dumped || outcome.edits >= LARGE_SYNC) {
            self.schedule(now);
            self.awaits_search = true;
        }
    }

    /// Schedules the return of memory after a search for stale flows if it is the first
    /// one since a large sync.
    pub fn searched(&mut self, now: Duration) {
        if mem::take(&mut self.awaits_search) {
            self.schedule(now);
        }
    }

    fn schedule(&mut self, now: Duration) {
        self.due.get_or_insert(now + DELAY);
    }

    /// Returns whether memory must be returned now. Returns `true` once per schedule.
    pub fn is_due(&mut self, now: Duration) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Returns the time at which memory must be returned.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_after_several_large_syncs() {
        let [start, later] = [5, 5 + 1].map(Duration::from_secs);
        let mut memory = FreeMemory::default();
        assert_eq!(memory.next_deadline(), None);
        assert!(!memory.is_due(start));
        memory.schedule(start);
        memory.schedule(start + DELAY / 2);
        assert_eq!(memory.next_deadline(), Some(later));
        assert!(!memory.is_due(start + DELAY / 2));
        assert!(memory.is_due(later));
        assert!(!memory.is_due(later));
    }

    #[test]
    fn memory_is_returned_again_after_the_search_of_a_large_sync() {
        let [start, later] = [5, 5 + 1].map(Duration::from_secs);
        let mut memory = FreeMemory {
            due: None,
            awaits_search: true,
        };
        memory.searched(start);
        assert!(memory.is_due(later));
        memory.searched(later);
        assert_eq!(memory.next_deadline(), None);
    }
}
