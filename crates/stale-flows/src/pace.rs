//! Decides when the next search for stale flows may start.
//!
//! Each search dumps the conntrack table, for which the kernel walks all its buckets, so a
//! burst of changes must share one search. But a stale flow must not live longer than a second,
//! because its client gets no answers meanwhile. Two times express that: a search begins
//! [`DELAY`] after the first change, and [`MAX_PAUSE`] after the end of the search before.
//!
//! For example: changes are committed at 0, 5 and 100 ms, and a search takes 10 ms. The first
//! search begins at 20 ms and covers two of them; the second begins at 30 + 250 = 280 ms and
//! covers the third. A rollout of an hour with a change each 10 ms is about four searches a second.
//!
//! What must stay true: one search at a time, because both delete from one table; no request
//! is lost, also not one that comes while a search runs; and nothing here reads a clock, so
//! that tests need not wait.

use std::time::Duration;

/// Delay of a search after a commit.
///
/// A packet that passed the former rules may not have its entry in the table yet: the kernel
/// adds it when the packet leaves. A search before that would not see it, and no other search
/// would be due.
const DELAY: Duration = Duration::from_millis(20);

/// Longest pause between two searches. Changes within the pause share the next search.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Longest time for which a flow may be stale, if searches take at most half of it.
///
/// A flow is stale for at most the running search, the pause and another search. After a
/// search of more than 365 ms, the pause is shorter. Searches that take more than 490 ms
/// exceed the limit, but still pause for [`DELAY`].
const MAX_STALE: Duration = Duration::from_secs(1);

/// Determines when the next search begins. Times are durations since any fixed point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Time at which the running search began.
    running: Option<Duration>,
    /// End of the pause after the last search.
    earliest: Duration,
    /// Time of the next search.
    due: Option<Duration>,
}

impl Pace {
    /// Requests a search at `now`, or as soon as possible. Several requests before a
    /// search count once.
    pub(crate) fn request(&mut self, now: Duration) {
        self.retry(now.saturating_add(DELAY));
    }

    /// Requests a search at `at` at the latest.
    pub(crate) fn retry(&mut self, at: Duration) {
        // A request does not end the pause, and a later one does not move an earlier one back.
        let at = at.max(self.earliest);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Returns whether a search begins now.
    pub(crate) fn begin(&mut self, now: Duration) -> bool {
        let begins = self.running.is_none() && self.due.is_some_and(|due| due <= now);
        if begins {
            // `due` is free for the requests that come while the search runs: it may have
            // passed their flows already.
            (self.running, self.due) = (Some(now), None);
        }
        begins
    }

    /// Records the end of a search.
    pub(crate) fn end(&mut self, now: Duration) {
        let began = self.running.take().unwrap_or(now);
        self.earliest = now.saturating_add(pause(now.saturating_sub(began)));
        // These requests were made before the length of the pause was known.
        self.due = self.due.map(|due| due.max(self.earliest));
    }

    /// Returns the time at which the next search begins. `None` during a search, and if
    /// no search was requested.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.due.filter(|_| self.running.is_none())
    }
}

/// Returns the pause after a search.
fn pause(search: Duration) -> Duration {
    // Twice: the worst flow becomes stale just after the running search has passed it, waits
    // for its end and the pause, and is found at the end of the next one. DELAY is part of that,
    // because the request may come at the last moment of the pause.
    let rest = MAX_STALE.saturating_sub(search.saturating_mul(2).saturating_add(DELAY));
    rest.clamp(DELAY, MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn requests_before_a_search_count_once_and_the_first_one_sets_its_time() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_deadline(), None);
        pace.request(millis(1000));
        pace.request(millis(1010));
        assert_eq!(pace.next_deadline(), Some(millis(1020)));
        assert!(!pace.begin(millis(1019)));
        assert!(pace.begin(millis(1020)));
        pace.end(millis(1020));
        assert_eq!(pace.next_deadline(), None);
        assert!(!pace.begin(millis(9000)));
    }

    #[test]
    fn a_request_during_a_search_waits_for_its_end_and_for_the_pause() {
        let mut pace = Pace::default();
        pace.request(Duration::ZERO);
        assert!(pace.begin(millis(20)));
        pace.request(millis(30));
        assert_eq!(pace.next_deadline(), None, "a search is running");
        assert!(!pace.begin(millis(500)));
        pace.end(millis(380));
        assert_eq!(pace.next_deadline(), Some(millis(630)));
        pace.request(millis(500));
        assert_eq!(pace.next_deadline(), Some(millis(630)));
    }

    #[test]
    fn two_long_searches_and_their_pause_take_at_most_a_second() {
        for (search, expected) in [(0, 250), (365, 250), (400, 180), (480, 20), (2000, 20)] {
            assert_eq!(pause(millis(search)), millis(expected), "{search}");
        }
        assert_eq!(pause(Duration::MAX), DELAY);
    }

    #[test]
    fn a_request_makes_a_retry_earlier() {
        let mut pace = Pace::default();
        pace.retry(millis(30_000));
        pace.request(millis(1000));
        assert_eq!(pace.next_deadline(), Some(millis(1020)));
    }
}
