//! A real client talks to the server, and must not notice what it is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod chaos;
mod faults;
mod lists;
mod support;
mod watches;
mod writes;
