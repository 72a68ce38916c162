//! When the searches begin that the caller runs.

use std::time::Duration;

/// Delay of a search after a commit.
///
/// A packet that passed the former rules may not have its entry in the table yet.
const DELAY: Duration = Duration::from_millis(20);

/// Longest pause between two searches. Changes within the pause share the next search.
const PAUSE: Duration = Duration::from_millis(250);

/// Time for which a flow may be stale, if searches take at most half of it.
///
/// A flow is stale for at most the running search, the pause and another search. After a
/// search of more than 365 ms, the pause is shorter. Searches that take more than 490 ms
/// exceed the limit, but still pause for [`DELAY`].
const LIMIT: Duration = Duration::from_secs(1);

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
        let at = at.max(self.earliest);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Returns whether a search begins now.
    pub(crate) fn begin(&mut self, now: Duration) -> bool {
        let begins = self.running.is_none() && self.due.is_some_and(|due| due <= now);
        if begins {
            (self.running, self.due) = (Some(now), None);
        }
        begins
    }

    /// Records the end of a search.
    pub(crate) fn end(&mut self, now: Duration) {
        let began = self.running.take().unwrap_or(now);
        self.earliest = now.saturating_add(pause(now.saturating_sub(began)));
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
    let rest = LIMIT.saturating_sub(search.saturating_mul(2).saturating_add(DELAY));
    rest.clamp(DELAY, PAUSE)
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
