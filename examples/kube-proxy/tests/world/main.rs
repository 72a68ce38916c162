//! Laws that hold for every history of a cluster that the API server admits.
//!
//! Histories are JSON of the API and pass through the same stages as objects of a real
//! API server: decoder, store, planner, ledger and kernel.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cached;

mod decode;

mod replay;

mod history;

mod memory;

mod affected;

mod laws;

mod costs;

mod rejections;

mod decoding;

mod kernel;
