//! Elapsed time and processor time.

use std::iter::Sum;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Elapsed time and processor time of a measurement.
///
/// Processor time includes system calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Time {
    /// Elapsed time.
    pub wall: Duration,
    /// Processor time of the calling thread.
    pub processor: Duration,
}

impl Time {
    /// Runs `work` and measures it.
    pub fn of<T>(work: impl FnOnce() -> T) -> (Self, T) {
        let (wall, processor) = (Instant::now(), processor());
        let value = work();
        let wall = wall.elapsed();
        let processor = self::processor().saturating_sub(processor);
        (Self { wall, processor }, value)
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            wall: self.wall + other.wall,
            processor: self.processor + other.processor,
        }
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Self::add)
    }
}

impl Sub for Time {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            wall: self.wall - other.wall,
            processor: self.processor - other.processor,
        }
    }
}

/// Returns the processor time of the calling thread.
fn processor() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
