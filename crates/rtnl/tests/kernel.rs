//! Links and addresses of a real kernel, judged by `ip` beside our own dump.
//!
//! Each test has a network namespace of its own; a program that is missing is
//! a failure.
//! The links are bridges and such, which all kernels have; what is about links
//! of type dummy is in `vm.rs`.
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
