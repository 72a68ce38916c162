//! Processor time of the calling thread, for tests of how work grows.
//!
//! Comparisons allocate nothing, so [allocated bytes](crate::allocation) do not show
//! them. Time that other processes use does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time that the calling thread uses in `work`.
///
/// ```
/// let (time, sum) = testkit::processor::time_of(|| (0..1_000_000_u64).sum::<u64>());
/// assert!(time.as_secs() < 60 && sum > 0);
/// ```
pub fn time_of<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let before = now();
    let value = work();
    (now().saturating_sub(before), value)
}

/// Returns how many times longer `work` takes per item with `many` items than with
/// `few`.
///
/// The result is about 1 if the work is linear, and `many / few` if it is quadratic.
pub fn growth_per_item(few: u32, many: u32, mut work: impl FnMut(u32)) -> f64 {
    let mut per_item = |items: u32| {
        // A short time needs more rounds than a long one.
        let rounds = (many / items).clamp(2, 8);
        let times = (0..rounds).map(|_| time_of(|| work(items)).0);
        let quickest = times.min().expect("there is a round");
        quickest.as_secs_f64() / f64::from(items)
    };
    per_item(many) / per_item(few)
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
