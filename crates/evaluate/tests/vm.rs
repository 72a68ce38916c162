//! Random packets through virtual servers of IPVS: the evaluation agrees with the kernel.
//!
//! Runs as root on a kernel with IPVS, in separate network namespaces. Load the modules
//! `ip_vs_lblc` and `ip_vs_lblcr` in advance: a kernel was observed to hang when it loaded one
//! while a namespace was being removed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that sends packets"
)]

#[path = "vm/ipvs.rs"]
mod ipvs;
