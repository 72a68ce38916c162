//! Endpoints with all properties that decide about their use.

use std::collections::BTreeSet;

use crate::slices::{self, Candidate, Slice};
use crate::store::Store;
use crate::{Endpoint, Family, ServicePort, Transport};

/// Maximum number of ports in [`Store::slice_ports`].
const MAX_PORTS: usize = 16;

/// An endpoint of a service port, whether it is used or not.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct EndpointDetails {
    /// Address and port.
    pub endpoint: Endpoint,
    /// Whether the endpoint accepts new connections.
    pub ready: bool,
    /// Whether the endpoint serves, even while terminating.
    pub serving: bool,
    /// Whether the endpoint is terminating.
    pub terminating: bool,
    /// Name of its node, if known.
    pub node: Option<String>,
    /// Its zone, if known.
    pub zone: Option<String>,
    /// Zones that should use the endpoint.
    pub zone_hints: BTreeSet<String>,
    /// Nodes that should use the endpoint.
    pub node_hints: BTreeSet<String>,
}

impl EndpointDetails {
    fn new(candidate: &Candidate<'_>) -> Self {
        let names = |names: &[Box<str>]| names.iter().map(|name| name.to_string()).collect();
        let (condition, location) = (candidate.condition, candidate.location);
        Self {
            endpoint: candidate.endpoint,
            ready: condition.ready,
            serving: condition.serving,
            terminating: condition.terminating,
            node: location.and_then(|it| it.node.clone()),
            zone: location.and_then(|it| it.zone.clone()),
            zone_hints: candidate
                .hints
                .map(|it| names(&it.zones))
                .unwrap_or_default(),
            node_hints: candidate
                .hints
                .map(|it| names(&it.nodes))
                .unwrap_or_default(),
        }
    }
}

impl Store {
    /// Returns all endpoints of a service port, ready or not, sorted by address and port.
    pub fn endpoint_details(&self, port: &ServicePort) -> Vec<EndpointDetails> {
        let slices = self.slices_of(&port.name.service_name());
        let (name, node) = (&port.name, self.node());
        let candidates = slices::gather(slices, port.family, &name.port, name.protocol, &node);
        candidates.iter().map(EndpointDetails::new).collect()
    }

    /// Returns families, names and protocols of the ports of a Service's EndpointSlices that
    /// have endpoints, sorted, at most 16. A service port without endpoints may differ from all.
    pub fn slice_ports(&self, port: &ServicePort) -> Vec<(Family, String, Transport)> {
        let slices = self.slices_of(&port.name.service_name()).iter();
        let ports: BTreeSet<_> = slices.flat_map(Slice::served).collect();
        ports.into_iter().take(MAX_PORTS).collect()
    }
}
