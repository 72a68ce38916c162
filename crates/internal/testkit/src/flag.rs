//! A flag that stops the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when dropped, also during a panic.
///
/// A thread scope waits for its threads. Without the flag, a panic in the scope would
/// never end the test.
#[derive(Debug)]
pub struct SetOnDrop<'a>(&'a AtomicBool);

impl<'a> SetOnDrop<'a> {
    /// Creates a guard that sets `flag` when dropped.
    pub fn new(flag: &'a AtomicBool) -> Self {
        Self(flag)
    }
}

impl Drop for SetOnDrop<'_> {
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
        let flag = AtomicBool::new(false);
        let panicked = catch_unwind(|| {
            let _guard = SetOnDrop::new(&flag);
            panic!("in the middle");
        });
        assert!(panicked.is_err() && flag.load(Ordering::Relaxed));
    }
}
