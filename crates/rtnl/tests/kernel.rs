//! Tests against the running kernel, compared with the output of `ip`.
//!
//! Each test runs in a new network namespace and fails if a program is missing.
//! The links are of types that all kernels have; tests of dummy links are in `vm.rs`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "lab/mod.rs"]
mod lab;

#[path = "kernel/commits.rs"]
mod commits;

#[path = "kernel/dumps.rs"]
mod dumps;

#[path = "kernel/refusals.rs"]
mod refusals;
