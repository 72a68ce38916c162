//! A request to end the process, from another thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use vipline_kube_source::api::feed::Sender;

/// A request to end the process. Clones refer to the same request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_requested: Mutex<bool>,
    changed: Condvar,
    /// Wakes the thread that waits for tasks.
    waiting: OnceLock<Sender>,
}

impl Stop {
    /// Requests the end.
    pub fn request(&self) {
        *self.lock() = true;
        self.0.changed.notify_all();
        if let Some(waiting) = self.0.waiting.get() {
            waiting.wake();
        }
    }

    /// Returns whether the end is requested.
    pub fn is_requested(&self) -> bool {
        *self.lock()
    }

    /// Waits for a request for a limited time. Returns whether the end is requested.
    pub fn wait(&self, limit: Duration) -> bool {
        let waited = self
            .0
            .changed
            .wait_timeout_while(self.lock(), limit, |is_requested| !*is_requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Makes a request wake the thread that receives from `sender`.
    pub fn wakes(&self, sender: &Sender) {
        // A request before this call is seen before the thread waits.
        let _ = self.0.waiting.set(sender.clone());
    }

    /// A panic of another thread leaves a valid value.
    fn lock(&self) -> MutexGuard<'_, bool> {
        let guard = self.0.is_requested.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use vipline_kube_source::api::feed::feed;

    use super::*;

    #[test]
    fn a_request_ends_a_wait_and_wakes_the_receiver() {
        let stop = Stop::default();
        assert!(!stop.wait(Duration::from_millis(1)));
        let (sender, receiver) = feed().unwrap();
        stop.wakes(&sender);
        let other = stop.clone();
        let waiting = thread::spawn(move || other.wait(Duration::from_secs(30)));
        stop.request();
        assert!(waiting.join().unwrap() && stop.is_requested());
        assert!(receiver.wait(Some(Duration::ZERO)).unwrap());
    }
}
