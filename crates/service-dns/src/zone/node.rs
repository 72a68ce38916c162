//! The node of a name in the tree of names.

use std::net::IpAddr;

use vipline_service_model::Transport;
use vipline_service_model::ipnet::IpNet;

use super::question::Folded;
use super::reverse::ReverseName;
use crate::index::{Endpoint, Found, Hosts, Index, Port, ServiceKind, Slice, pod_address};

/// The node of a name.
pub(super) enum Node<'a> {
    /// Neither the name nor a name below it exists.
    Missing,
    /// Names below it exist, but no record.
    Empty,
    /// The name of a zone.
    Apex,
    /// `ns.dns.ZONE`.
    NameServer,
    /// `dns-version.ZONE`.
    SchemaVersion,
    /// `SERVICE.NAMESPACE.svc.ZONE`.
    Service(Found<'a>),
    /// `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE`.
    Port(Found<'a>, PortHosts<'a>),
    /// `HOSTNAME.SERVICE.NAMESPACE.svc.ZONE`.
    Endpoint(Found<'a>, Vec<(&'a Slice, &'a Endpoint)>),
    /// `ADDRESS.NAMESPACE.pod.ZONE`.
    Pod(IpAddr),
    /// Name of an address in `in-addr.arpa` or `ip6.arpa`.
    Address {
        /// Address.
        addr: IpAddr,
        /// Whether the name is that of a zone.
        is_apex: bool,
    },
}

/// Hosts and numbers of a named port.
pub(super) enum PortHosts<'a> {
    /// The Service, with these ports.
    Service(&'a [Port]),
    /// Endpoints.
    Endpoints(Hosts<'a>),
}

impl<'a> Node<'a> {
    /// Returns the node of a name with `depth` labels in front of the zone.
    pub(super) fn of_service(index: &'a Index, name: &Folded, depth: usize, pods: bool) -> Self {
        // No name has more labels.
        let mut labels = [""; 5];
        let Some(labels) = labels.get_mut(..depth) else {
            return Self::Missing;
        };
        for (position, place) in labels.iter_mut().enumerate() {
            match name.label(position) {
                Some(label) => *place = label,
                None => return Self::Missing,
            }
        }
        match &*labels {
            [] => Self::Apex,
            ["dns-version"] => Self::SchemaVersion,
            ["ns", "dns"] => Self::NameServer,
            ["dns" | "svc" | "pod"] => Self::Empty,
            [namespace, "svc"] if index.has_namespace(namespace) => Self::Empty,
            [rest @ .., service, namespace, "svc"] => match index.service(namespace, service) {
                Some(found) => Self::below_service(found, rest),
                None => Self::Missing,
            },
            [namespace, "pod"] if pods && index.has_namespace(namespace) => Self::Empty,
            [address, namespace, "pod"] if pods && index.has_namespace(namespace) => {
                pod_address(address).map_or(Self::Missing, Self::Pod)
            }
            _ => Self::Missing,
        }
    }

    fn below_service(found: Found<'a>, labels: &[&str]) -> Self {
        match labels {
            [] => Self::Service(found),
            [label] => Self::endpoint(found, label),
            [port, label] => match (port.strip_prefix('_'), protocol(label)) {
                (Some(port), Some(protocol)) if !port.is_empty() => {
                    Self::port(found, port, protocol)
                }
                _ => Self::Missing,
            },
            _ => Self::Missing,
        }
    }

    fn endpoint(found: Found<'a>, label: &str) -> Self {
        if let Some(protocol) = protocol(label) {
            return match found.has_protocol(protocol) {
                true => Self::Empty,
                false => Self::Missing,
            };
        }
        let endpoints = found.endpoints_named(label);
        match endpoints.is_empty() {
            true => Self::Missing,
            false => Self::Endpoint(found, endpoints),
        }
    }

    fn port(found: Found<'a>, name: &str, protocol: Transport) -> Self {
        let (hosts, is_empty) = match &found.service.kind {
            ServiceKind::Cluster { ports, .. } => {
                let ports = ports.named(name, protocol);
                (PortHosts::Service(ports), ports.is_empty())
            }
            ServiceKind::Headless => {
                let hosts = found.hosts_of(name, protocol);
                let is_empty = hosts.is_empty();
                (PortHosts::Endpoints(hosts), is_empty)
            }
            ServiceKind::External(_) => return Self::Missing,
        };
        match is_empty {
            true => Self::Missing,
            false => Self::Port(found, hosts),
        }
    }

    /// Returns the node of an address or a network with `depth` labels in front of the zone.
    pub(super) fn of_address(index: &'a Index, name: ReverseName, depth: usize) -> Self {
        let is_apex = depth == 0;
        let (first, last) = bounds(name.network);
        let exists = name.extra == 0 && (is_apex || index.has_between(first, last));
        match name.address() {
            _ if !exists => Self::Missing,
            Some(addr) => Self::Address { addr, is_apex },
            None if is_apex => Self::Apex,
            None => Self::Empty,
        }
    }
}

/// Returns the first and the last address of a network.
fn bounds(network: IpNet) -> (IpAddr, IpAddr) {
    (network.network(), network.broadcast())
}

/// Returns the protocol of a label such as `_tcp`.
fn protocol(label: &str) -> Option<Transport> {
    let name = label.strip_prefix('_')?;
    Transport::ALL.into_iter().find(|it| it.name() == name)
}
