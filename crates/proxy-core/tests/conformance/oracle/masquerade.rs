//! Masquerading.
//!
//! - Traffic to external addresses is masqueraded with external policy Cluster. With policy
//!   Local, only that of processes of the node is.
//! - Traffic to cluster IPs is masqueraded if no pod sends it. With
//!   `--masquerade-all`, all traffic is. Without detection of pods, none is.
//! - Only packets that leave the node or that a process sends can be masqueraded.

use std::net::IpAddr;

use super::frontend::Frontend;
use super::owner::Kind;
use super::policy::Endpoint;
use super::{Oracle, detection, hairpin};
use crate::flow::Flow;

/// Returns whether a packet is masqueraded on its way to an endpoint.
pub(crate) fn applies(
    oracle: &Oracle<'_>,
    frontend: &Frontend,
    kind: Kind,
    flow: &Flow,
    endpoint: &Endpoint,
) -> bool {
    let is_received = oracle
        .world
        .node
        .receives(endpoint.address.ip(), flow.is_from_node());
    let can_apply = flow.is_from_node() || !is_received;
    let is_marked = match kind {
        Kind::ClusterIp => is_cluster_ip_marked(oracle, flow),
        _ => is_external_marked(oracle, frontend, flow),
    };
    can_apply && (is_marked || hairpin::applies(oracle, flow, endpoint))
}

pub(crate) fn is_cluster_ip_marked(oracle: &Oracle<'_>, flow: &Flow) -> bool {
    oracle.world.config.engine.masquerade_all || detection::is_from_pod(oracle, flow) == Some(false)
}

fn is_external_marked(oracle: &Oracle<'_>, frontend: &Frontend, flow: &Flow) -> bool {
    let is_from_node = |ip: IpAddr| oracle.world.node.is_local(ip);
    match frontend.is_external_local {
        false => true,
        // The rule for pods comes first.
        true => detection::is_from_pod(oracle, flow) != Some(true) && is_from_node(flow.source),
    }
}
