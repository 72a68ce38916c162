//! How long to wait before something is tried again, and how often it may be.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(500);
/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(30);

/// Waits that double up to a limit, each longer by chance.
///
/// A cluster's proxies lose the API all at once and should not be back all at
/// once.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    chance: Chance,
}

impl Backoff {
    /// Returns waits that depend on a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            next: FIRST,
            chance: Chance(seed),
        }
    }

    /// Returns how long to wait now.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        (wait + wait.mul_f64(self.chance.fraction())).min(LONGEST)
    }

    /// Begins anew, because something succeeded.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }
}

/// How long to wait before a server is asked again for objects of a kind.
///
/// Who cannot reach it and who has to list again wait on their own: an outage
/// before does not keep anyone from listing soon, and lists that lead to lost
/// history again and again become rare though each of them succeeds.
#[derive(Debug)]
pub struct Patience {
    trouble: Backoff,
    lost_history: Backoff,
}

impl Patience {
    /// Returns waits that depend on a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            trouble: Backoff::new(seed),
            lost_history: Backoff::new(!seed),
        }
    }

    /// Returns how long to wait after a failure.
    pub fn wait(&mut self, is_history_lost: bool) -> Duration {
        match is_history_lost {
            true => self.lost_history.wait(),
            false => self.trouble.wait(),
        }
    }

    /// Begins anew as to trouble, because everything was listed.
    pub fn listed(&mut self) {
        self.trouble.reset();
    }

    /// Begins anew, because a watch told something.
    pub fn told(&mut self) {
        self.trouble.reset();
        self.lost_history.reset();
    }
}

/// Numbers by chance, the same for the same seed.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// Returns chance that depends on a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to less than 1.
    pub fn fraction(&mut self) -> f64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = (bits ^ bits >> 31) >> 32;
        f64::from(u32::try_from(high).unwrap_or(u32::MAX)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// A bucket of tokens: so many requests at once, and so many a second on average.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: f64,
    size: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    /// Returns a full bucket; without a rate above zero nothing is limited.
    pub fn new(rate: f64, burst: u32) -> Self {
        let size = f64::from(burst.max(1));
        Self {
            rate,
            size,
            tokens: size,
            at: Duration::ZERO,
        }
    }

    /// Takes a token and returns how long to wait until it is there.
    pub fn take(&mut self, now: Duration) -> Duration {
        if self.rate <= 0.0 {
            return Duration::ZERO;
        }
        self.refill(now);
        self.tokens -= 1.0;
        Duration::try_from_secs_f64((-self.tokens).max(0.0) / self.rate).unwrap_or(LONGEST)
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    fn refill(&mut self, now: Duration) {
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
    fn waits_double_up_to_a_limit_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(7);
        let mut least = FIRST;
        for _ in 0..12 {
            let wait = backoff.wait();
            assert!(
                wait >= least.min(LONGEST) && wait <= (least * 2).min(LONGEST),
                "{wait:?}"
            );
            least = (least * 2).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.wait() <= FIRST * 2);
    }

    #[test]
    fn a_list_ends_waits_for_trouble_and_a_watch_ends_all() {
        let mut patience = Patience::new(7);
        for _ in 0..8 {
            patience.wait(false);
            patience.wait(true);
        }
        assert_eq!(patience.wait(false), LONGEST);
        patience.listed();
        assert!(patience.wait(false) <= FIRST * 2);
        assert_eq!(patience.wait(true), LONGEST);
        patience.told();
        assert!(patience.wait(true) <= FIRST * 2);
    }

    #[test]
    fn chance_depends_on_the_seed_alone() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            [backoff.wait(), backoff.wait(), backoff.wait()]
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
        let mut chance = Chance::new(3);
        let fractions: Vec<_> = (0..1000).map(|_| chance.fraction()).collect();
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
        let mut bucket = Bucket::new(2.0, 3);
        let waits: Vec<_> = (0..5).map(|_| bucket.take(secs(1))).collect();
        let half = Duration::from_millis(500);
        assert_eq!(waits, [secs(0), secs(0), secs(0), half, secs(1)]);
        assert_eq!(bucket.take(secs(100)), secs(0), "it fills up again");
        let mut free = Bucket::new(-1.0, 0);
        assert!((0..100).all(|_| free.take(secs(0)).is_zero()));
    }

    #[test]
    fn a_bucket_that_is_not_waited_for_refuses() {
        let mut bucket = Bucket::new(0.1, 2);
        assert!(bucket.try_take(secs(0)) && bucket.try_take(secs(0)));
        assert!(!bucket.try_take(secs(9)));
        assert!(bucket.try_take(secs(10)));
    }
}
