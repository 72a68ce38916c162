//! The endpoints of a Service, gathered from its EndpointSlices.
//!
//! Slices may overlap while endpoints move between them.
//! Of several entries for one address and port, one that is not terminating
//! wins over a terminating one.
//! Otherwise upstream kube-proxy picks an arbitrary entry. Here entries are ordered
//! by slice name, then by position in the slice. The last entry that is not
//! terminating wins, or else the first terminating one.
//! The result therefore does not depend on the order of events.

use std::net::IpAddr;
use std::sync::Arc;

use crate::api::MetadataKey;
use crate::location::{Location, SharedLocations};
use crate::slice_ports::SlicePorts;
use crate::warning::{Field, Problem, Warnings};
use crate::{
    Endpoint, Family, NodeView, ObjectName, SpecialAddress, Transport, api, parse_address,
};

/// The fields of an EndpointSlice that the model uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Slice {
    pub(crate) name: Arc<str>,
    pub(crate) family: Family,
    ports: SlicePorts,
    endpoints: Box<[Entry]>,
}

/// An endpoint without its port.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    addr: IpAddr,
    condition: Condition,
    location: Option<Arc<Location>>,
    hints: Option<Box<Hints>>,
}

/// Conditions of an endpoint, independent of each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Condition {
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
}

/// Topology hints of an endpoint.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Hints {
    pub(crate) zones: Box<[Box<str>]>,
    pub(crate) nodes: Box<[Box<str>]>,
}

/// An endpoint of a service port before selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) endpoint: Endpoint,
    pub(crate) condition: Condition,
    pub(crate) hints: Option<&'a Hints>,
    pub(crate) location: Option<&'a Location>,
}

impl Slice {
    /// Parses a slice and the name of its Service. Returns `None` if this proxy does not
    /// use the slice.
    pub(crate) fn read(
        slice: api::EndpointSlice,
        name: &ObjectName,
        locations: &mut SharedLocations,
        warnings: &mut Warnings<'_>,
    ) -> Option<(ObjectName, Self)> {
        let metadata = &slice.metadata;
        if metadata.label(MetadataKey::Headless).is_some() {
            return None;
        }
        let service = metadata.label(MetadataKey::ServiceName)?;
        if service.is_empty() || name.namespace.is_empty() || name.name.is_empty() {
            return None;
        }
        let Some(family) = slice.address_type.family() else {
            let word = slice.address_type.as_str().into();
            warnings.push(Field::plain("addressType"), Problem::Unknown(word));
            return None;
        };
        let service = ObjectName {
            namespace: Arc::clone(&name.namespace),
            name: service.into(),
        };
        let slice = Self {
            name: Arc::clone(&name.name),
            family,
            ports: SlicePorts::read(slice.ports, warnings),
            endpoints: entries(slice.endpoints, family, locations, warnings),
        };
        Some((service, slice))
    }

    /// Returns whether a UDP port has endpoints in this slice.
    pub(crate) fn has_udp(&self) -> bool {
        !self.endpoints.is_empty() && self.ports.has_udp()
    }

    /// Returns the ready addresses on this node.
    fn local_ready(&self, node: &NodeView) -> impl Iterator<Item = IpAddr> {
        let ready = self.endpoints.iter().filter(|entry| entry.condition.ready);
        ready
            .filter(|entry| entry.is_local(node))
            .map(|entry| entry.addr)
    }
}

/// Returns the endpoints of one port of a Service, sorted by address and port.
///
/// `slices` holds all slices of the Service, sorted by name.
pub(crate) fn gather<'a>(
    slices: &'a [Slice],
    family: Family,
    name: &str,
    protocol: Transport,
    node: &NodeView,
) -> Vec<Candidate<'a>> {
    let mut found = Vec::with_capacity(slices.iter().map(|slice| slice.endpoints.len()).sum());
    for slice in slices.iter().filter(|slice| slice.family == family) {
        for port in slice.ports.named(name, protocol) {
            found.extend(
                slice
                    .endpoints
                    .iter()
                    .map(|entry| entry.candidate(port, node)),
            );
        }
    }
    let key = |candidate: &Candidate<'_>| (candidate.endpoint.addr, candidate.endpoint.port);
    found.sort_by_key(key);
    found.dedup_by(|later, earlier| {
        let same = key(later) == key(earlier);
        if same && !later.condition.terminating {
            *earlier = *later;
        }
        same
    });
    found
}

/// Returns the number of addresses on this node that are ready on at least one port.
///
/// All ports of a slice have the same endpoints, so the cost does not depend on the
/// number of ports.
pub(crate) fn local_ready(slices: &[Slice], family: Family, node: &NodeView) -> usize {
    let of_family = slices.iter().filter(|slice| slice.family == family);
    let mut addresses: Vec<_> = of_family
        .filter(|slice| !slice.ports.is_empty())
        .flat_map(|slice| slice.local_ready(node))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.len()
}

impl Slice {
    /// Returns family, name and protocol of each port, if the slice has endpoints.
    pub(crate) fn served(&self) -> impl Iterator<Item = (Family, String, Transport)> {
        let ports = self.ports.names().filter(|_| !self.endpoints.is_empty());
        ports.map(|(name, protocol)| (self.family, name.to_owned(), protocol))
    }
}

impl Entry {
    fn is_local(&self, node: &NodeView) -> bool {
        let location = self.location.as_ref();
        let own = location.and_then(|location| location.node.as_deref());
        !node.name.is_empty() && own == Some(&*node.name)
    }

    fn candidate(&self, port: u16, node: &NodeView) -> Candidate<'_> {
        Candidate {
            endpoint: Endpoint {
                addr: self.addr,
                port,
                is_local: self.is_local(node),
            },
            condition: self.condition,
            hints: self.hints.as_deref(),
            location: self.location.as_deref(),
        }
    }
}

fn entries(
    endpoints: Vec<api::SliceEndpoint>,
    family: Family,
    locations: &mut SharedLocations,
    warnings: &mut Warnings<'_>,
) -> Box<[Entry]> {
    let mut entries = Vec::with_capacity(endpoints.len());
    for (index, endpoint) in endpoints.into_iter().enumerate() {
        let Some(text) = endpoint.addresses.first() else {
            continue;
        };
        let problem = match parse_address(text) {
            None => Problem::BadAddress(text.as_str().into()),
            Some(addr) if Family::of(addr) != family => Problem::WrongFamily(addr, family),
            Some(addr) => match SpecialAddress::of(addr) {
                Some(special) => Problem::SpecialAddress(addr, special),
                None => {
                    entries.push(Entry::read(addr, endpoint, locations));
                    continue;
                }
            },
        };
        warnings.push(Field::member("endpoints[].addresses[0]", index), problem);
    }
    entries.into()
}

impl Entry {
    fn read(addr: IpAddr, endpoint: api::SliceEndpoint, shared: &mut SharedLocations) -> Self {
        let condition = Condition {
            ready: endpoint.conditions.ready.unwrap_or(true),
            serving: endpoint.conditions.serving.unwrap_or(true),
            terminating: endpoint.conditions.terminating.unwrap_or(false),
        };
        let names = |hints: Vec<api::NamedHint>| hints.into_iter().map(|h| h.name.into()).collect();
        let hints = endpoint.hints.map(|hints| Hints {
            zones: names(hints.for_zones),
            nodes: names(hints.for_nodes),
        });
        Self {
            addr,
            condition,
            location: shared.share(Location {
                node: endpoint.node_name,
                zone: endpoint.zone,
            }),
            hints: hints
                .filter(|hints| *hints != Hints::default())
                .map(Box::new),
        }
    }
}
