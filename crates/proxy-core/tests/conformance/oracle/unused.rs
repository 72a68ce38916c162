//! Ports and addresses that no Service has.
//!
//! - A port that a cluster IP does not have is rejected.
//! - An address that no Service has is dropped if it belongs to a ServiceCIDR.
//! - Packets that the node receives from others are neither.

use std::net::IpAddr;

use super::{Expectation, Oracle, Rule};
use crate::fate::Fate;
use crate::flow::Flow;

/// Returns what happens to a packet to an address and port of no Service.
pub(crate) fn expect(oracle: &Oracle<'_>, flow: &Flow) -> Expectation {
    let ip = flow.destination.ip();
    let is_checked = flow.is_from_node() || !oracle.world.node.receives(ip, false);
    let (rule, fate) = match () {
        () if !is_checked => (Rule::None, Fate::passed(flow.destination)),
        () if is_cluster_ip(oracle, ip) => (Rule::UnusedPort, Fate::Rejected),
        () if is_allocatable(oracle, ip) => (Rule::Unallocated, Fate::Dropped),
        () => (Rule::None, Fate::passed(flow.destination)),
    };
    Expectation::certain(rule, fate)
}

/// Returns whether an address is a cluster IP of any Service.
pub(crate) fn is_cluster_ip(oracle: &Oracle<'_>, ip: IpAddr) -> bool {
    oracle.frontends.iter().any(|each| each.cluster_ip == ip)
}

/// Returns whether an address belongs to a ServiceCIDR.
pub(crate) fn is_allocatable(oracle: &Oracle<'_>, ip: IpAddr) -> bool {
    oracle.cidrs.iter().any(|cidr| cidr.contains(&ip))
}
