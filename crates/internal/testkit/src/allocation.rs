//! A counting allocator, to test the complexity of functions.
//!
//! Allocated bytes are a measure of work that does not depend on the load of the host.
//!
//! ```
//! use testkit::allocation::{Counting, allocated};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let (bytes, text) = allocated(|| "x".repeat(1000));
//! assert!((1000..2000).contains(&bytes) && text.len() == 1000);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

/// The system allocator with a count of allocated bytes per thread.
#[derive(Debug)]
pub struct Counting;

/// Returns the number of bytes that the calling thread allocates in `work`, including
/// freed ones.
///
/// The count is 0 unless [`Counting`] is the global allocator.
pub fn allocated<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = BYTES.get();
    let value = work();
    (BYTES.get() - before, value)
}

/// Returns the number of bytes that the calling thread allocates in `work` and does not
/// free, such as those of the value.
///
/// The count is 0 unless [`Counting`] is the global allocator.
pub fn retained<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let (before, freed_before) = (BYTES.get(), FREED.get());
    let value = work();
    let freed = FREED.get() - freed_before;
    ((BYTES.get() - before).saturating_sub(freed), value)
}

#[allow(unsafe_code, reason = "an allocator cannot be written without it")]
// SAFETY: every method passes its arguments to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The variable may be destroyed while the thread exits.
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = FREED.try_with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the pointer is from `alloc` above with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
