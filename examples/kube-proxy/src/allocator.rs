//! Settings of the C library's allocator, so that memory that is free is returned to
//! the system.
//!
//! glibc raises two thresholds after the first large buffer is freed, and then keeps up
//! to 64 MiB of free memory per heap. The environment variable
//! `MALLOC_TRIM_THRESHOLD_` has no effect in a container without root: the file
//! capabilities of the program make glibc ignore such variables.
#![allow(unsafe_code, reason = "declares functions of the C library")]

/// Free memory at the end of a heap that is returned to the system, and size of a buffer
/// that is a mapping of its own, in bytes. The default of glibc before it adapts.
const THRESHOLD: i32 = 128 << 10;

/// Number of heaps. By default threads have separate heaps, and objects that one
/// thread creates and another one frees leave gaps in all of them.
const HEAPS: i32 = 1;

/// Limits the free memory that the allocator keeps. Must be called before the first
/// thread starts.
///
/// Does nothing with C libraries other than glibc.
pub fn limit_free_memory() {
    glibc::mallopt(glibc::M_MMAP_THRESHOLD, THRESHOLD);
    glibc::mallopt(glibc::M_TRIM_THRESHOLD, THRESHOLD);
    glibc::mallopt(glibc::M_ARENA_MAX, HEAPS);
}

/// Returns free pages between objects to the system.
///
/// Takes about 1 ms per 100 MiB. Does nothing with C libraries other than glibc.
pub fn return_free_memory() {
    glibc::malloc_trim(0);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    // Parameters in malloc.h.
    pub(super) const M_TRIM_THRESHOLD: c_int = -1;
    pub(super) const M_MMAP_THRESHOLD: c_int = -3;
    pub(super) const M_ARENA_MAX: c_int = -8;

    // SAFETY: both functions take plain numbers, and may be called at any time by any
    // thread. See mallopt(3) and malloc_trim(3).
    unsafe extern "C" {
        pub(super) safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
        pub(super) safe fn malloc_trim(pad: usize) -> c_int;
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    pub(super) const M_TRIM_THRESHOLD: i32 = 0;
    pub(super) const M_MMAP_THRESHOLD: i32 = 0;
    pub(super) const M_ARENA_MAX: i32 = 0;

    pub(super) fn mallopt(_: i32, _: i32) {}

    pub(super) fn malloc_trim(_: usize) {}
}
