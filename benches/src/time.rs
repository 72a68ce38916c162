//! How long something takes.

use std::iter::Sum;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A span of time, as a clock on the wall sees it and as the thread worked.
///
/// The kernel's work for a system call is the thread's, too.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Time {
    /// What passed.
    pub wall: Duration,
    /// What the calling thread had of a processor.
    pub processor: Duration,
}

impl Time {
    /// Runs `work` and tells how long it took.
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

/// What the calling thread has had of a processor so far.
fn processor() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
