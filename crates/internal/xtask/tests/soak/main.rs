//! kube-proxy under a constant load of events, with kills, foreign flushes and outages of its
//! API server, under traffic.
//!
//! `cargo xtask soak` sets the duration.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test prints its measurements")]

#[path = "../api/cluster.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod cluster;

#[path = "../api/objects.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod objects;

#[path = "../program/mod.rs"]
mod program;

mod events;

mod process;

mod random;

mod soak;
