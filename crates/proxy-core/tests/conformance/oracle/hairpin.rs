//! Hairpin connections.
//!
//! A connection of a pod of this node to itself, by way of a Service, is masqueraded.
//! Otherwise the pod would answer itself without the node.

use super::Oracle;
use super::policy::Endpoint;
use crate::flow::Flow;

/// Returns whether an endpoint of this node connects to itself.
pub(crate) fn applies(oracle: &Oracle<'_>, flow: &Flow, endpoint: &Endpoint) -> bool {
    let itself = endpoint.address;
    let is_it = |other: &Endpoint| other.address == itself && other.is_local;
    flow.source == itself.ip()
        && oracle.frontends.iter().any(|frontend| {
            let lists = [&frontend.lists.cluster, &frontend.lists.local];
            frontend.protocol == flow.protocol && lists.into_iter().flatten().any(is_it)
        })
}
