//! When searches for stale flows begin that the caller runs.

use std::time::Duration;

/// Delay of a search after a commit.
///
/// A packet that passed the former rules may not have its entry in the table yet.
const DELAY: Duration = Duration::from_millis(20);

/// Pause between two searches. Changes within the pause share the next search.
///
/// A flow is stale for at most one search, the pause and another search. With a million
/// flows a filtered dump takes 0.3 s, so this is less than one second. A dump of a million
/// UDP flows takes 2 s, so many changes of UDP Services at once take longer there.
const PAUSE: Duration = Duration::from_millis(250);

/// Determines when the next search begins. Times are durations since any fixed point.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    is_running: bool,
    /// End of the pause after the last search.
    earliest: Duration,
    /// Time of the next search.
    due: Option<Duration>,
}

impl Pace {
    /// Requests a search at `now`, or as soon as possible. Several requests before a
    /// search count once.
    pub(super) fn request(&mut self, now: Duration) {
        self.retry(now.saturating_add(DELAY));
    }

    /// Requests a search at `at` at the latest.
    pub(super) fn retry(&mut self, at: Duration) {
        let at = at.max(self.earliest);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Returns whether a search begins now.
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        let begins = !self.is_running && self.due.is_some_and(|due| due <= now);
        if begins {
            (self.is_running, self.due) = (true, None);
        }
        begins
    }

    /// Records the end of a search.
    pub(super) fn end(&mut self, now: Duration) {
        self.is_running = false;
        self.earliest = now.saturating_add(PAUSE);
        self.due = self.due.map(|due| due.max(self.earliest));
    }

    /// Returns the time at which the next search begins. `None` during a search, and if
    /// no search was requested.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.due.filter(|_| !self.is_running)
    }
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
        pace.end(millis(400));
        assert_eq!(pace.next_deadline(), Some(millis(650)));
        pace.request(millis(500));
        assert_eq!(pace.next_deadline(), Some(millis(650)));
    }

    #[test]
    fn a_request_makes_a_retry_earlier() {
        let mut pace = Pace::default();
        pace.retry(millis(30_000));
        pace.request(millis(1000));
        assert_eq!(pace.next_deadline(), Some(millis(1020)));
    }
}
