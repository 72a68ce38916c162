//! Real connections through a real proxy that asks an API server, while that
//! server, or the proxy, is away.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test says what it saw")]

mod chaos;

mod cluster;

mod kernel;

mod objects;

#[path = "../program/mod.rs"]
mod program;

mod restart;
