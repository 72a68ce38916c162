//! The server must behave like kube-apiserver towards the client library `kube`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod chaos;
mod faults;
mod lists;
mod support;
mod watches;
mod writes;
