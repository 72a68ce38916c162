//! Endpoints: the addresses of a service port in EndpointSlices.
//!
//! - A slice belongs to the Service of its label, unless it is of a headless Service.
//! - Only the first address of an endpoint counts, with the port of the same name and
//!   protocol.
//! - Of several entries for one address and port, one that is not terminating wins: the
//!   last one, or else the first that is terminating.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use vipline_service_model::api;
use vipline_service_model::arbitrary::NODE;

use super::frontend::protocol;
use super::text;
use crate::world::World;

/// An endpoint of a service port before selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) is_local: bool,
    pub(crate) is_ready: bool,
    /// Whether the endpoint serves and terminates.
    pub(crate) is_leaving: bool,
    is_terminating: bool,
    pub(crate) entry: &'a api::SliceEndpoint,
}

/// Returns the endpoints of a service port.
pub(crate) fn all<'a>(
    world: &'a World,
    service: &api::Service,
    is_v4: bool,
    port: &api::ServicePortSpec,
) -> Vec<Candidate<'a>> {
    let kind = if is_v4 {
        api::AddressType::V4
    } else {
        api::AddressType::V6
    };
    let mut slices: Vec<_> = world
        .slices
        .iter()
        .filter(|slice| is_of(slice, service))
        .collect();
    slices.retain(|slice| slice.address_type == kind);
    slices.sort_by_key(|slice| &slice.metadata.name);
    let mut found: BTreeMap<SocketAddr, Candidate<'a>> = BTreeMap::new();
    for slice in slices {
        let is_same = |each: &&api::EndpointPort| {
            each.name.as_ref() == Some(&port.name)
                && protocol(&each.protocol) == protocol(&port.protocol)
        };
        let numbers = slice
            .ports
            .iter()
            .filter(is_same)
            .filter_map(|each| each.port);
        for number in numbers
            .filter_map(|number| u16::try_from(number).ok())
            .filter(|it| *it > 0)
        {
            let all = slice
                .endpoints
                .iter()
                .filter_map(|entry| candidate(entry, is_v4, number));
            for candidate in all {
                let held = found.entry(candidate.address).or_insert(candidate);
                if !candidate.is_terminating {
                    *held = candidate;
                }
            }
        }
    }
    found.into_values().collect()
}

fn is_of(slice: &api::EndpointSlice, service: &api::Service) -> bool {
    let label = |key: &str| slice.metadata.labels.get(key);
    label("service.kubernetes.io/headless").is_none()
        && slice.metadata.namespace == service.metadata.namespace
        && label("kubernetes.io/service-name") == Some(&service.metadata.name)
}

fn candidate(entry: &api::SliceEndpoint, is_v4: bool, port: u16) -> Option<Candidate<'_>> {
    let ip = text::reachable(entry.addresses.first()?)?;
    let conditions = &entry.conditions;
    let is_terminating = conditions.terminating == Some(true);
    (ip.is_ipv4() == is_v4).then(|| Candidate {
        address: SocketAddr::new(ip, port),
        is_local: entry.node_name.as_deref() == Some(NODE),
        is_ready: conditions.ready != Some(false),
        is_leaving: is_terminating && conditions.serving != Some(false),
        is_terminating,
        entry,
    })
}
