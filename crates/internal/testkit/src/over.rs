//! Ends the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when dropped, also during a panic.
///
/// A thread scope waits for its threads. Without the flag, a panic in the scope would
/// never end the test.
#[derive(Debug)]
pub struct Over<'a>(&'a AtomicBool);

impl<'a> Over<'a> {
    /// Creates a guard that sets `is_over` when dropped.
    pub fn new(is_over: &'a AtomicBool) -> Self {
        Self(is_over)
    }
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_panic_sets_the_flag() {
        let is_over = AtomicBool::new(false);
        let panicked = catch_unwind(|| {
            let _over = Over::new(&is_over);
            panic!("in the middle");
        });
        assert!(panicked.is_err() && is_over.load(Ordering::Relaxed));
    }
}
