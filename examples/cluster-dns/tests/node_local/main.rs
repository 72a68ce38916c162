//! Node-local addresses and rules with traffic: a pod, a node and a DNS Service behind
//! another address.
//!
//! The links are veth pairs, and the interface of the addresses is `lo`, because many
//! kernels lack dummy links.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

mod traffic;
