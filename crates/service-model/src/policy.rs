//! Selection of the endpoints of a service port, common to all modes.

use std::sync::Arc;

use crate::frontend::{Addresses, Frontend, Port};
use crate::slices::{self, Candidate, Slice};
use crate::topology::Topology;
use crate::{Endpoint, NodeView, Route, ServicePort};

/// Returns all service ports of a Service, sorted by family and name.
pub(crate) fn ports(frontend: &Frontend, slices: &[Slice], node: &NodeView) -> Vec<ServicePort> {
    let mut ports = Vec::with_capacity(frontend.addresses.len() * frontend.ports.len());
    for addresses in &frontend.addresses {
        for port in &frontend.ports {
            ports.push(resolve(frontend, addresses, port, slices, node));
        }
    }
    ports
}

fn resolve(
    frontend: &Frontend,
    addresses: &Addresses,
    port: &Port,
    slices: &[Slice],
    node: &NodeView,
) -> ServicePort {
    let Port { name, .. } = port;
    let candidates = slices::gather(slices, addresses.family, &name.port, name.protocol, node);
    let internal_local = frontend.internal_policy_local;
    let external_local = frontend.external_policy_local;
    let is_external = Frontend::is_external(port, addresses);
    let chosen = choose(
        &candidates,
        Lists {
            cluster: !internal_local || is_external,
            local: internal_local || (external_local && is_external),
        },
        node,
    );
    let matching = |is: fn(&Candidate<'_>) -> bool| {
        let matching = candidates.iter().filter(move |candidate| is(candidate));
        matching.map(|candidate| candidate.endpoint)
    };
    let serving = matching(|candidate| candidate.condition.serving);
    let cluster = share(chosen.cluster.iter().copied(), &[]);
    ServicePort {
        name: Arc::clone(name),
        family: addresses.family,
        protocol: name.protocol,
        cluster_ip: addresses.cluster_ip,
        port: port.port,
        node_port: port.node_port,
        external_ips: Arc::clone(&addresses.external_ips),
        load_balancer_ips: Arc::clone(&addresses.load_balancer_ips),
        source_ranges: Arc::clone(&addresses.source_ranges),
        affinity: frontend.affinity,
        scheduler: frontend.scheduler,
        preserves_destination: frontend.preserves_destination,
        internal: route(internal_local, chosen.any, &cluster, &chosen.local),
        external: route(external_local, chosen.any, &cluster, &chosen.local),
        internal_policy_local: internal_local,
        external_policy_local: external_local,
        is_exposed: is_external,
        health_check_node_port: frontend.health_check_node_port,
        local: share(chosen.local.iter().copied(), &[&cluster]),
        serving: share(serving, &[&cluster]),
        serving_terminating: share(matching(is_serving_terminating), &[&cluster]),
        not_serving: share(matching(|candidate| !candidate.condition.serving), &[]),
        endpoint_count: u32::try_from(candidates.len()).unwrap_or(u32::MAX),
        cluster,
    }
}

/// Endpoint lists that a service port needs.
///
/// The cluster list is needed even with `externalTrafficPolicy: Local`: pods and
/// processes of the node use it for external addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Lists {
    cluster: bool,
    local: bool,
}

/// The endpoints selected for a service port.
#[derive(Debug, Default, Eq, PartialEq)]
struct Chosen {
    cluster: Vec<Endpoint>,
    local: Vec<Endpoint>,
    /// Whether an endpoint is usable under some policy or on some node.
    any: bool,
}

/// Selects the ready endpoints, or the serving terminating ones if none is ready.
///
/// Each list falls back separately. Hints apply to the cluster list only, and not
/// to its fallback.
fn choose(candidates: &[Candidate<'_>], lists: Lists, node: &NodeView) -> Chosen {
    let mut chosen = Chosen::default();
    if lists.cluster {
        let topology = Topology::of(candidates, node);
        chosen.cluster = usable(candidates, |candidate| topology.admits(candidate, node));
        if chosen.cluster.is_empty() {
            chosen.cluster = serving_terminating(candidates, |_| true);
        }
    }
    if lists.local {
        chosen.local = usable(candidates, |candidate| candidate.endpoint.is_local);
        if chosen.local.is_empty() {
            chosen.local = serving_terminating(candidates, |candidate| candidate.endpoint.is_local);
        }
    }
    chosen.any = (lists.cluster || lists.local)
        && candidates
            .iter()
            .any(|candidate| is_usable(candidate) || is_serving_terminating(candidate));
    chosen
}

fn is_usable(candidate: &Candidate<'_>) -> bool {
    candidate.condition.ready
}

fn is_serving_terminating(candidate: &Candidate<'_>) -> bool {
    candidate.condition.serving && candidate.condition.terminating
}

fn usable(all: &[Candidate<'_>], admits: impl Fn(&Candidate<'_>) -> bool) -> Vec<Endpoint> {
    let chosen = all
        .iter()
        .filter(|candidate| is_usable(candidate) && admits(candidate));
    let mut usable = Vec::with_capacity(all.len());
    usable.extend(chosen.map(|candidate| candidate.endpoint));
    usable
}

fn serving_terminating(
    all: &[Candidate<'_>],
    admits: impl Fn(&Candidate<'_>) -> bool,
) -> Vec<Endpoint> {
    let chosen = all
        .iter()
        .filter(|candidate| is_serving_terminating(candidate) && admits(candidate));
    chosen.map(|candidate| candidate.endpoint).collect()
}

/// Returns the route of traffic under a policy.
fn route(policy_local: bool, any: bool, cluster: &[Endpoint], local: &[Endpoint]) -> Route {
    match policy_local {
        false if !cluster.is_empty() => Route::Cluster,
        true if !local.is_empty() => Route::Local,
        true if any => Route::Drop,
        _ => Route::Reject,
    }
}

/// Returns a shared list. Reuses an equal list of `known`.
fn share(
    list: impl Iterator<Item = Endpoint> + Clone,
    known: &[&Arc<[Endpoint]>],
) -> Arc<[Endpoint]> {
    match known
        .iter()
        .find(|known| list.clone().eq(known.iter().copied()))
    {
        Some(known) => Arc::clone(known),
        None if list.clone().next().is_none() => Arc::default(),
        None => list.collect(),
    }
}
