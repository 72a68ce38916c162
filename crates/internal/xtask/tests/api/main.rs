//! Connections through kube-proxy while its API server, or kube-proxy itself, is
//! unavailable.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test prints its measurements")]

mod chaos;

mod cluster;

mod kernel;

mod objects;

#[path = "../program/mod.rs"]
mod program;

mod restart;
