//! Forwarding and the cache against upstream name servers in network namespaces: scripted
//! ones, hostile ones, and dnsmasq.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cache;
mod dnsmasq;
mod external;
mod failures;
mod hostile;
mod limits;
mod scripted;
mod stale;
mod transport;
