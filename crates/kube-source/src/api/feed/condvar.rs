//! A wakeup by a condition variable, on systems without eventfd.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Wakes the thread of the receiver.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    #[allow(clippy::unnecessary_wraps, reason = "an eventfd can fail")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    /// Wakes the thread now, or at its next [`wait`](Self::wait).
    pub(super) fn set(&self) {
        *self.lock() = true;
        // One is enough: a feed has one receiver, which one thread waits on.
        self.changed.notify_one();
    }

    /// Resets the wakeup. Items sent before the call are visible after it.
    pub(super) fn clear(&self) {
        *self.lock() = false;
    }

    /// Waits until the wakeup is set. Returns `false` after the timeout.
    #[allow(clippy::unnecessary_wraps, reason = "waiting for an eventfd can fail")]
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let guard = self.lock();
        let is_clear = |is_set: &mut bool| !*is_set;
        Ok(*match timeout {
            None => self
                .changed
                .wait_while(guard, is_clear)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(guard, timeout, is_clear);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        })
    }

    /// A panic of another thread leaves a valid value.
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test has threads of its own")]

    use std::sync::Arc;

    use super::*;

    const BRIEF: Option<Duration> = Some(Duration::from_millis(1));

    #[test]
    fn a_wakeup_before_the_wait_is_not_lost() {
        let wakeup = Wakeup::new().unwrap();
        assert!(!wakeup.wait(BRIEF).unwrap());
        wakeup.set();
        wakeup.set();
        assert!(wakeup.wait(Some(Duration::MAX)).unwrap());
        assert!(wakeup.wait(None).unwrap(), "it stays set");
        wakeup.clear();
        assert!(!wakeup.wait(BRIEF).unwrap());
    }

    #[test]
    fn another_thread_wakes_the_waiting_one() {
        let wakeup = Arc::new(Wakeup::new().unwrap());
        let other = Arc::clone(&wakeup);
        let thread = std::thread::spawn(move || other.wait(None).unwrap());
        wakeup.set();
        assert!(thread.join().unwrap());
    }
}
