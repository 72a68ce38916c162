//! Endpoints that are addresses of Services, which no controller writes.
//!
//! - Within the networks of cluster IPs, a connection to an endpoint is refused like one to
//!   an address that no Service has.
//! - On the node itself, it is refused if the address and port have no usable endpoints.

use std::net::SocketAddr;

use super::{Oracle, owner, unused, verdict};
use crate::fate::Fate;
use crate::flow::Flow;

/// Returns how a connection to an endpoint is refused, if it is.
pub(crate) fn refuse(oracle: &Oracle<'_>, flow: &Flow, endpoint: SocketAddr) -> Option<Fate> {
    let ip = endpoint.ip();
    let is_received = oracle.world.node.receives(ip, flow.is_from_node());
    let is_allocatable = unused::is_allocatable(oracle, ip);
    let leaves = flow.is_from_node() || !is_received;
    let translated = flow.to(endpoint);
    let of_address = || {
        let (kind, frontend) = owner::of(oracle, &translated)?;
        verdict(frontend, kind)
    };
    let of_unused = || match unused::is_cluster_ip(oracle, ip) {
        true => Some(Fate::Rejected),
        false => Some(Fate::Dropped),
    };
    match () {
        () if leaves && is_allocatable => of_address().or_else(of_unused),
        () if is_received => of_address(),
        () => None,
    }
}
