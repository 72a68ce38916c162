//! Hearing what somebody else does to the state of a mode.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use vipline_service_model::Family;

use crate::{Drift, Error};

/// What the engine does to hear of changes, whatever the mode.
pub(crate) trait Watch: Send {
    /// Begins to listen, and returns the families whose state may have been
    /// changed since it was dumped.
    fn start(&mut self) -> Result<Vec<Family>, Error>;

    /// Tells whether it listens.
    fn is_listening(&self) -> bool;

    /// Returns what becomes readable when there is something to hear.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns what was done since the last time, without waiting.
    ///
    /// When nothing can be heard any more, everything may have been done.
    fn read(&mut self) -> Vec<(Family, Drift)>;

    /// Returns the time of the next look, for who cannot hear.
    fn next_poll(&self) -> Option<Duration> {
        None
    }

    /// Looks for what was done, if it is time, and returns what it found.
    fn poll(&mut self, _now: Duration) -> Vec<(Family, Drift)> {
        Vec::new()
    }

    /// Returns the schedulers that the last commits asked for in vain.
    fn take_missing_schedulers(&mut self) -> Vec<Box<str>> {
        Vec::new()
    }
}
