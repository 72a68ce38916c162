//! The end of threads that go on until a test is over.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says that a test is over when dropped, by a panic as well.
///
/// A scope waits for its threads: one that panics before it has said so would
/// never end.
#[derive(Debug)]
pub struct Over<'a>(&'a AtomicBool);

impl<'a> Over<'a> {
    /// Returns what sets `is_over` when dropped.
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
    fn a_panic_is_the_end() {
        let is_over = AtomicBool::new(false);
        let panicked = catch_unwind(|| {
            let _over = Over::new(&is_over);
            panic!("in the middle");
        });
        assert!(panicked.is_err() && is_over.load(Ordering::Relaxed));
    }
}
