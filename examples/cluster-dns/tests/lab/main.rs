//! The program in a lab of network namespaces, with the resolvers that pods have.
//!
//! A pod asks the program on the node. The upstream name server is `dnsmasq` in the
//! namespace outside the cluster.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

mod changes;

mod chaos;

mod client;

mod deploy;

mod dig;

mod node_local;

mod objects;

mod resolver;

mod stage;
