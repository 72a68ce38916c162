//! Retry delays and rate limits: how a thousand nodes do not bring down one API server.
//!
//! All nodes lose a server at the same moment, and all of them come back. Three things spread
//! their requests:
//!
//! - [`Backoff`]: each failure doubles the delay, and chance moves it. For example: 0.5 to
//!   1 s, 1 to 2 s, 2 to 4 s, up to 30 s. The chance only adds: a delay is never shorter than
//!   without it.
//! - [`WatchBackoff`]: two of them, because a watch fails in two ways. With one, reset after
//!   each success, a server that accepts every list and has lost the history of each would be
//!   listed without end. With one that a list does not reset, an outage of an hour would delay
//!   the list after the next lost history by 30 s; that was the first version.
//! - [`TokenBucket`]: the limit of `--kube-api-qps` and `--kube-api-burst`, also for Events.
//!
//! Nothing here reads a clock or a source of randomness. Times and seeds are arguments, so
//! that tests see every delay without waiting for it.

use std::time::Duration;

/// First delay, before jitter. A server that restarts behind a load balancer is often back at once.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Maximum delay. It is how long a proxy may stay stale after a long outage has ended.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// An exponential backoff with jitter, between [`FIRST_DELAY`] and [`MAX_DELAY`].
#[derive(Debug)]
pub(crate) struct Backoff {
    /// The next delay without its random part.
    next: Duration,
    random: Random,
}

impl Backoff {
    /// Creates a backoff with a random seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            next: FIRST_DELAY,
            random: Random(seed),
        }
    }

    /// Returns the next delay.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        // Doubled without the random part: otherwise chance would decide how soon the limit is
        // reached.
        self.next = (wait * 2).min(MAX_DELAY);
        // At the limit nothing is random any more. By then the six delays before have spread the
        // nodes over nearly 30 s.
        (wait + wait.mul_f64(self.random.fraction())).min(MAX_DELAY)
    }

    /// Resets the delay after a success.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST_DELAY;
    }
}

/// Retry delays of the watch of one kind.
///
/// Errors and lost history have delays of their own. An outage does not delay the list after it,
/// and lists that each lead to lost history become rare, although each of them succeeds.
#[derive(Debug)]
pub(crate) struct WatchBackoff {
    errors: Backoff,
    lost_history: Backoff,
}

impl WatchBackoff {
    /// Creates delays with a random seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            errors: Backoff::new(seed),
            // Another seed, or both would have the same delays in the same order.
            lost_history: Backoff::new(!seed),
        }
    }

    /// Returns the delay after a failure.
    pub(crate) fn wait(&mut self, is_history_lost: bool) -> Duration {
        if is_history_lost {
            self.lost_history.wait()
        } else {
            self.errors.wait()
        }
    }

    /// Resets the delay of errors, after a complete list.
    pub(crate) fn reset_errors(&mut self) {
        self.errors.reset();
    }

    /// Resets both delays, after a notification of a watch.
    pub(crate) fn reset(&mut self) {
        self.errors.reset();
        self.lost_history.reset();
    }
}

/// A pseudorandom number generator (SplitMix64). The same seed gives the same
/// numbers.
///
/// Delays need numbers that differ between nodes, not secrets, so these three lines, with the
/// constants of the published algorithm, are enough. The seed is `access::seed`.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number in the range 0 to 1, without 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // 32 bits are exact in an f64. The divisor is one more than the largest of them, so that
        // the result is below 1. The shift makes `unwrap_or` unreachable.
        let high = (bits ^ bits >> 31) >> 32;
        f64::from(u32::try_from(high).unwrap_or(u32::MAX)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// A token bucket: a burst, and an average rate per second.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    /// Tokens per second.
    rate: f64,
    /// Maximum number of tokens, at least 1.
    size: f64,
    /// Number of tokens at time `at`, with parts of one. Below 0: the debt of [`take`](Self::take).
    tokens: f64,
    /// Latest time that a caller has passed.
    at: Duration,
}

impl TokenBucket {
    /// Creates a full bucket. A `rate` of zero or less disables the limit of [`take`](Self::take),
    /// as a negative QPS does in client-go. [`try_take`](Self::try_take) needs a positive one.
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        // A bucket without room would never have a token.
        let size = f64::from(burst.max(1));
        Self {
            rate,
            size,
            tokens: size,
            at: Duration::ZERO,
        }
    }

    /// Takes a token and returns the delay until the token is available.
    ///
    /// For requests, which all have to be sent some time. The bucket goes into debt, so that
    /// the next caller gets a later turn: callers form a queue without a queue. Events, which
    /// may be dropped, use [`try_take`](Self::try_take).
    pub(crate) fn take(&mut self, now: Duration) -> Duration {
        if self.rate <= 0.0 {
            return Duration::ZERO;
        }
        self.refill(now);
        self.tokens -= 1.0;
        // `-self.tokens` is the debt. A tiny rate makes a delay that no Duration can have.
        Duration::try_from_secs_f64((-self.tokens).max(0.0) / self.rate).unwrap_or(MAX_DELAY)
    }

    /// Takes a token if one is available. Returns whether it did.
    pub(crate) fn try_take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    /// Returns whether the bucket is as full as a new one. Then nothing is lost if its owner drops
    /// it, and creates another one when it is needed.
    pub(crate) fn is_full(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.tokens >= self.size
    }

    fn refill(&mut self, now: Duration) {
        // A caller that reads its clock before it has the lock of the bucket may pass a time before
        // the last one. Neither tokens nor time go back then, or the same moment would count twice.
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.size);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn waits_double_up_to_a_limit_and_are_reset_by_a_success() {
        let mut backoff = Backoff::new(7);
        let mut least = FIRST_DELAY;
        for _ in 0..12 {
            let wait = backoff.wait();
            assert!(
                wait >= least.min(MAX_DELAY) && wait <= (least * 2).min(MAX_DELAY),
                "{wait:?}"
            );
            least = (least * 2).min(MAX_DELAY);
        }
        backoff.reset();
        assert!(backoff.wait() <= FIRST_DELAY * 2);
    }

    #[test]
    fn a_list_resets_error_delays_and_a_watch_resets_all_delays() {
        let mut backoff = WatchBackoff::new(7);
        for _ in 0..8 {
            backoff.wait(false);
            backoff.wait(true);
        }
        assert_eq!(backoff.wait(false), MAX_DELAY);
        backoff.reset_errors();
        assert!(backoff.wait(false) <= FIRST_DELAY * 2);
        assert_eq!(backoff.wait(true), MAX_DELAY);
        backoff.reset();
        assert!(backoff.wait(true) <= FIRST_DELAY * 2);
    }

    #[test]
    fn random_numbers_depend_on_the_seed_alone() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            [backoff.wait(), backoff.wait(), backoff.wait()]
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
        let mut random = Random::new(3);
        let fractions: Vec<_> = (0..1000).map(|_| random.fraction()).collect();
        assert!(
            fractions
                .iter()
                .all(|fraction| (0.0..1.0).contains(fraction))
        );
        let mean = fractions.iter().sum::<f64>() / 1000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = TokenBucket::new(2.0, 3);
        let waits: Vec<_> = (0..5).map(|_| bucket.take(secs(1))).collect();
        let half = Duration::from_millis(500);
        assert_eq!(waits, [secs(0), secs(0), secs(0), half, secs(1)]);
        assert_eq!(bucket.take(secs(100)), secs(0), "it fills up again");
        let mut free = TokenBucket::new(-1.0, 0);
        assert!((0..100).all(|_| free.take(secs(0)).is_zero()));
    }

    #[test]
    fn an_empty_bucket_gives_no_token() {
        let mut bucket = TokenBucket::new(0.1, 2);
        assert!(bucket.try_take(secs(0)) && bucket.try_take(secs(0)));
        assert!(!bucket.try_take(secs(9)));
        assert!(bucket.try_take(secs(10)));
    }
}
