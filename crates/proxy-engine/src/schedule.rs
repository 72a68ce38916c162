//! The schedule of syncs: immediate, rate-limited and retried after a failure.
//!
//! A rolling update changes the endpoints of a Service many times within seconds, and each sync
//! costs something however little it changes. So after a sync there is a pause, and all changes
//! that arrive in it are one sync. A first change after a quiet time waits for nothing. Repairs of
//! what another program broke do not wait for the pause, because traffic fails until then; for
//! them a pause of 20 ms bounds what a program costs that breaks the rules again and again.
//!
//! With the defaults, after a sync that ended at 100 s:
//!
//! ```text
//! 100 s        100.02 s           101 s             130 s              3,700 s
//!   │ Ended      │ urgent           │ earliest        │ latest           │ latest
//!   └─ pause ────┴─ repairs ────────┴─ also changes ──┴─ after a failure ┴─ after a success
//! ```
//!
//! Requests are two flags. A sync serves all requests that came before it, whatever its trigger, so
//! both flags are cleared when it starts. One that comes while it runs sets a flag again.
//!
//! What must stay true: the pause starts at the first poll *after* a sync, not at the time with
//! which the sync was polled. A first sync of ten thousand Services may take longer than the
//! pause, and counted from its beginning there would be none.

use std::time::Duration;

/// Pause after a sync before a sync that repairs drift may start. Limits the load if
/// another process changes rules repeatedly: to about 50 dumps of all rules in a second, until
/// `driver::repairs` lets the object wait. Short, because a change by another process is to be
/// repaired within 100 ms.
const PAUSE_BEFORE_REPAIR: Duration = Duration::from_millis(20);

/// Intervals between syncs. The defaults are those of upstream's modes iptables and nftables:
/// `minSyncPeriod`, `syncPeriod`, and the maximum of its sync runner.
///
/// Exhaustive: the schedule has three intervals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Intervals {
    /// Minimum pause between the end of a sync and the start of the next. Default: 1 s.
    pub min: Duration,
    /// Retry interval of a failed sync, at least `min`. Also the polling interval for
    /// kernel state without notifications. Default: 30 s.
    pub retry: Duration,
    /// Maximum interval between syncs, and between comparisons of the kernel with the plan,
    /// unless the engine [watches](crate::Engine::watch). Default: 1 h.
    ///
    /// Syncs of changes compare nothing, so while Services change more often, the first sync
    /// after the interval is the one that compares.
    pub max: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            min: Duration::from_secs(1),
            retry: Duration::from_secs(30),
            max: Duration::from_secs(60 * 60),
        }
    }
}

/// Reason for a sync.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Trigger {
    /// Services, endpoints or the node changed, or the caller requested a sync.
    Change,
    /// Another process changed the kernel's state.
    Drift,
    /// The last sync failed.
    Retry,
    /// The maximum interval has passed.
    Timer,
    /// The removal of unused objects is due. Changes still wait for the end of the pause.
    Unused,
}

/// Determines when to sync. Times are durations since any fixed point.
///
/// A schedule reads no clock. It takes the time from [`poll`](Self::poll), and the pause
/// after a sync starts at the first poll that follows the sync.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    intervals: Intervals,
    /// Whether a sync is wanted once the pause has ended.
    requested: bool,
    /// Whether a sync is wanted that repairs drift, and waits for the short pause only.
    now_requested: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A sync ended, and the schedule has not been polled since.
    Ended { next: Trigger },
    /// The next sync may start at `earliest`, or at `urgent` if it repairs drift. It must
    /// start at `latest`, with the reason `next`.
    ///
    /// Invariant: `urgent` ≤ `earliest` ≤ `latest`.
    Waiting {
        urgent: Duration,
        earliest: Duration,
        latest: Duration,
        next: Trigger,
    },
}

impl Schedule {
    /// Creates a schedule whose first sync is due at the first request.
    pub fn new(intervals: Intervals) -> Self {
        // There was no sync, so there is no pause, and `latest` never comes: without a request
        // there is nothing to sync.
        let state = State::Waiting {
            urgent: Duration::ZERO,
            earliest: Duration::ZERO,
            latest: Duration::MAX,
            next: Trigger::Timer,
        };
        Self {
            intervals,
            requested: false,
            now_requested: false,
            state,
        }
    }

    /// Requests a sync as soon as the pause ends. Several requests before a sync count
    /// once.
    pub fn request(&mut self) {
        self.requested = true;
    }

    /// Requests a sync that repairs drift. The sync starts at least 20 ms after the last
    /// one, or after [`Intervals::min`] if that is shorter.
    pub fn request_sync_now(&mut self) {
        self.now_requested = true;
    }

    /// Returns whether a sync was requested and has not started.
    pub fn is_requested(&self) -> bool {
        self.requested || self.now_requested
    }

    /// Returns whether the pause after the last sync has not started. The next poll
    /// starts it.
    pub(crate) fn is_before_pause(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    /// Returns the reason if a sync is due now.
    ///
    /// The sync that follows serves all earlier requests.
    pub fn poll(&mut self, now: Duration) -> Option<Trigger> {
        let State::Waiting {
            urgent,
            earliest,
            latest,
            next,
        } = self.started(now)
        else {
            return None;
        };
        // Each of them serves all requests, so the order decides only what the sync is called. The
        // name has an effect: at `Timer` an engine that does not watch dumps the kernel, and a
        // change that is due at the same moment must not prevent that.
        let due = if self.now_requested && now >= urgent {
            Trigger::Drift
        } else if now >= latest {
            next
        } else if self.requested && now >= earliest {
            Trigger::Change
        } else {
            return None;
        };
        (self.requested, self.now_requested) = (false, false);
        Some(due)
    }

    /// Returns the time of the next poll that matters. The time may have passed.
    ///
    /// `None` if nothing is due before the next request.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.state {
            // At once: only a poll knows the time, and starts the pause.
            State::Ended { .. } => Some(Duration::ZERO),
            State::Waiting { urgent, .. } if self.now_requested => Some(urgent),
            State::Waiting { earliest, .. } if self.requested => Some(earliest),
            // `latest` is not earlier than the times above. With an endless interval it never comes.
            State::Waiting { latest, .. } if latest == Duration::MAX => None,
            State::Waiting { latest, .. } => Some(latest),
        }
    }

    /// Records that a sync succeeded.
    pub fn succeeded(&mut self) {
        self.ended(Trigger::Timer);
    }

    /// Records that a sync succeeded and left a part of the changes. The next sync is due at
    /// once: the pause is for changes that arrive one after the other.
    pub fn continues(&mut self) {
        self.requested = true;
        self.state = State::Waiting {
            urgent: Duration::ZERO,
            earliest: Duration::ZERO,
            latest: Duration::MAX,
            next: Trigger::Timer,
        };
    }

    /// Records that a sync failed.
    pub fn failed(&mut self) {
        self.ended(Trigger::Retry);
    }

    /// Leaves the start of the intervals to the next poll, because the time is not known here.
    fn ended(&mut self, next: Trigger) {
        self.state = State::Ended { next };
    }

    /// Starts the intervals if a sync has ended.
    fn started(&mut self, now: Duration) -> State {
        let Intervals { min, retry, max } = self.intervals;
        if let State::Ended { next } = self.state {
            // A retry after a failure, but not later than a sync without a reason would be.
            let longest = if next == Trigger::Retry {
                retry.min(max)
            } else {
                max
            };
            let earliest = now.saturating_add(min);
            // A retry interval may be shorter than the pause, which a failing kernel needs most.
            let latest = now.saturating_add(longest).max(earliest);
            self.state = State::Waiting {
                // A caller without a pause wants no short one either.
                urgent: now.saturating_add(min.min(PAUSE_BEFORE_REPAIR)),
                earliest,
                latest,
                next,
            };
        }
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn schedule() -> Schedule {
        Schedule::new(Intervals {
            min: secs(1),
            retry: secs(30),
            max: secs(3600),
        })
    }

    /// Returns a schedule whose first sync was at 100 s.
    fn synced(outcome: fn(&mut Schedule)) -> Schedule {
        let mut schedule = schedule();
        schedule.request();
        assert_eq!(schedule.poll(secs(100)), Some(Trigger::Change));
        outcome(&mut schedule);
        assert_eq!(schedule.next_deadline(), Some(Duration::ZERO));
        assert_eq!(schedule.poll(secs(100)), None);
        schedule
    }

    #[test]
    fn nothing_is_due_before_the_first_request_and_then_at_once() {
        let mut schedule = schedule();
        assert_eq!(schedule.next_deadline(), None);
        assert_eq!(schedule.poll(secs(1_000_000)), None);
        schedule.request();
        assert_eq!(schedule.next_deadline(), Some(Duration::ZERO));
        assert_eq!(schedule.poll(Duration::ZERO), Some(Trigger::Change));
    }

    #[test]
    fn a_request_within_the_pause_waits_for_its_end() {
        let mut schedule = synced(Schedule::succeeded);
        schedule.request();
        schedule.request();
        assert_eq!(schedule.next_deadline(), Some(secs(101)));
        assert_eq!(schedule.poll(Duration::from_millis(100_999)), None);
        assert_eq!(schedule.poll(secs(101)), Some(Trigger::Change));
        schedule.succeeded();
        assert_eq!(schedule.poll(secs(101)), None);
        assert_eq!(schedule.poll(secs(102)), None, "two requests are one sync");
    }

    #[test]
    fn the_pause_counts_from_the_end_of_a_sync() {
        let mut schedule = schedule();
        schedule.request();
        assert_eq!(schedule.poll(secs(100)), Some(Trigger::Change));
        schedule.succeeded();
        schedule.request();
        assert_eq!(
            schedule.poll(secs(107)),
            None,
            "the sync took seven seconds"
        );
        assert_eq!(schedule.next_deadline(), Some(secs(108)));
    }

    #[test]
    fn without_requests_the_timer_is_due_once_an_interval() {
        let mut schedule = synced(Schedule::succeeded);
        assert_eq!(schedule.next_deadline(), Some(secs(3700)));
        assert_eq!(schedule.poll(secs(3699)), None);
        assert_eq!(schedule.poll(secs(3700)), Some(Trigger::Timer));
    }

    #[test]
    fn a_failed_sync_is_retried_until_it_succeeds() {
        let mut schedule = synced(Schedule::failed);
        assert_eq!(schedule.next_deadline(), Some(secs(130)));
        assert_eq!(schedule.poll(secs(129)), None);
        assert_eq!(schedule.poll(secs(130)), Some(Trigger::Retry));
        schedule.failed();
        assert_eq!(schedule.poll(secs(130)), None);
        schedule.request();
        assert_eq!(schedule.poll(secs(131)), Some(Trigger::Change));
        schedule.succeeded();
        assert_eq!(schedule.poll(secs(131)), None);
        assert_eq!(schedule.next_deadline(), Some(secs(131 + 3600)));
    }

    #[test]
    fn a_retry_never_comes_before_the_pause_is_over() {
        let mut schedule = Schedule::new(Intervals {
            min: secs(10),
            retry: secs(2),
            max: secs(3600),
        });
        schedule.request();
        assert_eq!(schedule.poll(secs(0)), Some(Trigger::Change));
        schedule.failed();
        assert_eq!(schedule.poll(secs(0)), None);
        assert_eq!(schedule.next_deadline(), Some(secs(10)));
        assert_eq!(schedule.poll(secs(10)), Some(Trigger::Retry));
    }

    #[test]
    fn an_urgent_sync_waits_only_for_the_short_pause() {
        let mut schedule = synced(Schedule::succeeded);
        let breath = secs(100) + PAUSE_BEFORE_REPAIR;
        schedule.request_sync_now();
        assert_eq!(schedule.next_deadline(), Some(breath));
        assert_eq!(schedule.poll(secs(100)), None);
        schedule.request();
        assert_eq!(schedule.poll(breath), Some(Trigger::Drift));
        schedule.succeeded();
        assert_eq!(schedule.poll(breath), None);
        assert_eq!(schedule.poll(secs(102)), None, "one sync answers both");
        schedule.request_sync_now();
        assert_eq!(
            schedule.poll(secs(103)),
            Some(Trigger::Drift),
            "and at once"
        );
    }

    #[test]
    fn without_a_pause_every_request_is_due_at_once() {
        let mut schedule = Schedule::new(Intervals {
            min: secs(0),
            retry: secs(2),
            max: secs(3600),
        });
        for second in 0..3 {
            schedule.request();
            assert_eq!(schedule.poll(secs(second)), Some(Trigger::Change));
            schedule.succeeded();
        }
    }

    #[test]
    fn an_endless_interval_has_no_deadline() {
        let mut schedule = Schedule::new(Intervals {
            min: secs(1),
            retry: Duration::MAX,
            max: Duration::MAX,
        });
        schedule.request();
        assert_eq!(schedule.poll(secs(5)), Some(Trigger::Change));
        schedule.succeeded();
        assert_eq!(schedule.poll(secs(5)), None);
        assert_eq!(schedule.next_deadline(), None);
    }

    #[test]
    fn the_rest_of_a_change_is_due_at_once_and_the_pause_follows_it() {
        let mut schedule = schedule();
        schedule.request();
        assert_eq!(schedule.poll(secs(100)), Some(Trigger::Change));
        schedule.continues();
        assert!(schedule.is_requested());
        assert_eq!(schedule.next_deadline(), Some(Duration::ZERO));
        assert_eq!(schedule.poll(secs(100)), Some(Trigger::Change));
        schedule.succeeded();
        assert_eq!(schedule.poll(secs(100)), None);
        schedule.request();
        assert_eq!(schedule.next_deadline(), Some(secs(101)));
    }
}
