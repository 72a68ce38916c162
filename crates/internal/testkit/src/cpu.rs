//! CPU time of the calling thread, to test the complexity of functions.
//!
//! Includes work that [allocates nothing](crate::allocation), such as comparisons.
//! Excludes time of other processes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time that the calling thread uses in `work`.
///
/// ```
/// let (time, sum) = testkit::cpu::time_of(|| (0..1_000_000_u64).sum::<u64>());
/// assert!(time.as_secs() < 60 && sum > 0);
/// ```
pub fn time_of<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let before = now();
    let value = work();
    (now().saturating_sub(before), value)
}

/// Returns the ratio of the time per item with `many` items to that with `few` items.
///
/// The ratio is about 1 for linear work, and about `many / few` for quadratic work.
pub fn growth_per_item(few: u32, many: u32, mut work: impl FnMut(u32)) -> f64 {
    let mut per_item = |items: u32| {
        // Short measurements need more rounds.
        let rounds = (many / items).clamp(2, 8);
        let times = (0..rounds).map(|_| time_of(|| work(items)).0);
        let quickest = times.min().expect("at least two rounds");
        quickest.as_secs_f64() / f64::from(items)
    };
    per_item(many) / per_item(few)
}

/// Returns the CPU time that the calling thread has used.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
