//! Detection of changes that other processes make to the state of a mode.

#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::time::Duration;

use vipline_service_model::Family;

use crate::{Drift, Error, MissingFeature};

/// Detects changes by other processes. Each mode implements this trait, for
/// [`Engine::with_watch`](crate::Engine::with_watch).
pub trait Watch: Send {
    /// Starts to watch. Returns the families whose state may have changed since their
    /// last dump.
    fn start(&mut self) -> Result<Vec<Family>, Error>;

    /// Returns whether the watch is active.
    fn is_listening(&self) -> bool;

    /// Returns the descriptors that become readable when notifications arrive.
    #[cfg(target_os = "linux")]
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns the changes since the last call. Does not block.
    ///
    /// If reading fails, the drift is marked as incomplete and the watch ends.
    fn read(&mut self) -> Vec<(Family, Drift)>;

    /// Returns the time of the next poll for state without notifications.
    fn next_poll(&self) -> Option<Duration> {
        None
    }

    /// Polls state without notifications if `now` is late enough, and returns the
    /// changes.
    fn poll(&mut self, _now: Duration) -> Vec<(Family, Drift)> {
        Vec::new()
    }

    /// Removes and returns features that commits needed and the kernel does not have.
    fn take_missing_features(&mut self) -> Vec<MissingFeature> {
        Vec::new()
    }
}
