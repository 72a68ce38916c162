//! An allocator that counts, for tests of how much work something is.
//!
//! Allocated bytes are a measure of work that does not depend on the machine's load.
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
}

/// The system's allocator, with a count of the bytes that each thread allocated.
#[derive(Debug)]
pub struct Counting;

/// Returns how many bytes the calling thread allocates in `work`, freed or not.
///
/// The count is 0 unless [`Counting`] is the global allocator.
pub fn allocated<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = BYTES.get();
    let value = work();
    (BYTES.get() - before, value)
}

#[allow(unsafe_code, reason = "an allocator cannot be written without it")]
// SAFETY: every method hands its arguments to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The variable is gone while the thread ends.
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer is from `alloc` above with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
