//! Tests with the iptables programs and a real kernel.
//!
//! Each test has its own network namespace and xtables lock. A missing program is a
//! failure.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "kernel/lab.rs"]
mod lab;

#[path = "kernel/client.rs"]
mod client;

#[path = "kernel/programs.rs"]
mod programs;

#[path = "kernel/nfacct.rs"]
mod nfacct;

#[path = "kernel/documents.rs"]
mod documents;

#[path = "kernel/hand_written.rs"]
mod hand_written;

#[path = "kernel/single.rs"]
mod single;

#[path = "kernel/states.rs"]
mod states;

#[path = "kernel/rules.rs"]
mod rules;

#[path = "kernel/suite.rs"]
mod suite;

#[cfg(feature = "nft")]
#[path = "kernel/nft.rs"]
mod nft;

#[cfg(feature = "nft")]
#[path = "kernel/nft_client.rs"]
mod nft_client;

#[cfg(feature = "nft")]
#[path = "kernel/twins.rs"]
mod twins;
