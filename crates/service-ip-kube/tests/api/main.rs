//! Tests with an API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "time, files and threads are the test's to have"
)]

mod allocation;
mod asynchronous;
mod cidrs;
mod cluster;
#[expect(
    dead_code,
    reason = "an example is run by its `main`, which no test is"
)]
#[path = "../../examples/ipam/main.rs"]
mod ipam;
mod many;
mod mishaps;
mod repairs;
mod shell;
