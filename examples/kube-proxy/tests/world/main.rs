//! Laws that hold for every history of a cluster that the API server admits.
//!
//! Histories are JSON of the API. They take the way of the objects of a real
//! API server: decoder, store, planner, ledger and kernel.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod decode;

mod played;

mod history;

mod memory;

mod touched;

mod laws;

mod costs;

mod refusals;

mod decoding;

mod kernel;
