//! Traffic policies.
//!
//! - Policy Cluster uses endpoints everywhere, policy Local those of this node.
//! - The internal policy applies to cluster IPs, the external policy to all other
//!   addresses.
//! - Pods and processes of the node use all endpoints regardless of external policy Local.
//! - Without an endpoint in the list, connections are dropped if a usable endpoint exists
//!   elsewhere, otherwise rejected.

use std::net::SocketAddr;

use vipline_service_model::api;

use super::candidate::Candidate;
use super::frontend::Frontend;
use super::owner::Kind;
use super::{Oracle, detection, terminating, topology};
use crate::flow::Flow;
use crate::world::World;

/// An endpoint that may get connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) is_local: bool,
}

/// The endpoints of a service port.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    pub(crate) cluster: Vec<Endpoint>,
    pub(crate) local: Vec<Endpoint>,
    /// Whether any endpoint is usable.
    pub(crate) is_any_usable: bool,
}

/// The endpoints that a packet may reach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Route {
    Cluster,
    Local,
}

/// Selects the endpoints of a service port.
pub(crate) fn lists(
    world: &World,
    all: &[Candidate<'_>],
    is_exposed: bool,
    is_internal_local: bool,
    is_external_local: bool,
) -> Lists {
    let needs_cluster = !is_internal_local || is_exposed;
    let needs_local = is_internal_local || is_external_local && is_exposed;
    let cluster = terminating::usable(all, topology::filter(world, all));
    let here: Vec<_> = all.iter().copied().filter(|each| each.is_local).collect();
    let local = terminating::usable(&here, |_| true);
    let list = |list: Vec<Candidate<'_>>, is_needed: bool| {
        let needed = list.into_iter().filter(|_| is_needed);
        let endpoint = |each: Candidate<'_>| Endpoint {
            address: each.address,
            is_local: each.is_local,
        };
        needed.map(endpoint).collect()
    };
    Lists {
        cluster: list(cluster, needs_cluster),
        local: list(local, needs_local),
        is_any_usable: terminating::is_any_usable(all),
    }
}

/// Returns whether the external policy is Local: only Services that are accessible from
/// outside by their type have an external policy.
pub(crate) fn is_external_local(spec: &api::ServiceSpec) -> bool {
    let is_external = match spec.kind {
        api::ServiceType::LoadBalancer | api::ServiceType::NodePort => true,
        _ => !spec.external_ips.is_empty(),
    };
    is_external && spec.external_traffic_policy == api::TrafficPolicy::Local
}

/// Returns the endpoints that a packet to an address of a kind may reach.
pub(crate) fn route(oracle: &Oracle<'_>, frontend: &Frontend, kind: Kind, flow: &Flow) -> Route {
    let is_local = match kind {
        Kind::ClusterIp => frontend.is_internal_local,
        _ => frontend.is_external_local && !is_short_circuited(oracle, flow),
    };
    if is_local {
        Route::Local
    } else {
        Route::Cluster
    }
}

/// Returns whether a pod or a process of the node sends the packet.
fn is_short_circuited(oracle: &Oracle<'_>, flow: &Flow) -> bool {
    detection::is_from_pod(oracle, flow) == Some(true) || oracle.world.node.is_local(flow.source)
}

impl Lists {
    /// Returns the endpoints of a route.
    pub(crate) fn of(&self, route: Route) -> &[Endpoint] {
        match route {
            Route::Cluster => &self.cluster,
            Route::Local => &self.local,
        }
    }
}
