//! Objects of HNS, with addresses instead of identifiers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_hcn::{Distribution, LoadBalancerFlags, PortMappingFlags};
use vipline_reconcile::Keyed;
use vipline_service_model::Transport;

/// An object of HNS.
///
/// Exhaustive: these are the kinds of objects that mode kernelspace programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// An endpoint.
    Endpoint(Arc<Endpoint>),
    /// A load balancer.
    LoadBalancer(Arc<LoadBalancer>),
}

/// Key of an [`Object`].
///
/// Exhaustive: each kind of object has one key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Key {
    /// Address of an endpoint.
    Endpoint(IpAddr),
    /// Frontend of a load balancer: address, or the family if it serves all addresses of
    /// the host, with protocol and port.
    LoadBalancer(Option<IpAddr>, bool, Transport, u16),
}

/// Kind of an [`Endpoint`].
///
/// Exhaustive: mode kernelspace makes these kinds of endpoints.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum EndpointKind {
    /// An endpoint of another node, or a VIP endpoint.
    Remote,
    /// The source of translated packets.
    SourceVip,
}

/// An endpoint.
///
/// Exhaustive: a planner fills in every field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Address.
    pub address: IpAddr,
    /// Kind.
    pub kind: EndpointKind,
    /// MAC address.
    pub mac: Arc<str>,
    /// Address of the node, in overlay networks.
    pub provider: Option<IpAddr>,
}

/// A load balancer.
///
/// Exhaustive: a planner fills in every field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadBalancer {
    /// Address of the frontend. `None`: all addresses of the host.
    pub frontend: Option<IpAddr>,
    /// Protocol.
    pub protocol: Transport,
    /// Port of the frontend.
    pub external_port: u16,
    /// Port of the endpoints.
    pub internal_port: u16,
    /// Addresses of the endpoints.
    ///
    /// Invariant: sorted, not empty, without duplicates.
    pub endpoints: Vec<IpAddr>,
    /// Addresses of the endpoints of a service port: the load balancer is not created if
    /// HNS has none of them. Empty without this condition.
    pub depends_on: Vec<IpAddr>,
    /// Source address of translated packets.
    pub source_vip: Option<IpAddr>,
    /// Flags of the load balancer.
    pub flags: LoadBalancerFlags,
    /// Flags of the port.
    pub port_flags: PortMappingFlags,
    /// Session affinity.
    pub distribution: Distribution,
}

impl From<Endpoint> for Object {
    fn from(endpoint: Endpoint) -> Self {
        Self::Endpoint(Arc::new(endpoint))
    }
}

impl From<LoadBalancer> for Object {
    fn from(load_balancer: LoadBalancer) -> Self {
        Self::LoadBalancer(Arc::new(load_balancer))
    }
}

impl Keyed for Object {
    type Key<'a> = Key;

    fn key(&self) -> Key {
        match self {
            Self::Endpoint(endpoint) => Key::Endpoint(endpoint.address),
            Self::LoadBalancer(it) => {
                // A health check has an IPv6 address and not the flag, as in upstream.
                let is_ipv6 = it.flags.contains(LoadBalancerFlags::IPV6) && it.frontend.is_none();
                Key::LoadBalancer(it.frontend, is_ipv6, it.protocol, it.external_port)
            }
        }
    }

    /// An endpoint is never modified: HNS keeps its MAC address and its node.
    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Endpoint(left), Self::Endpoint(right)) => left.kind == right.kind,
            (left, right) => left == right,
        }
    }

    fn is_common(&self) -> bool {
        matches!(self, Self::Endpoint(_))
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint) => endpoint.fmt(f),
            Self::LoadBalancer(load_balancer) => load_balancer.fmt(f),
        }
    }
}

/// Displays as `remote endpoint 10.244.2.3 provider 10.0.0.12`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            EndpointKind::Remote => write!(f, "remote endpoint {}", self.address)?,
            EndpointKind::SourceVip => write!(f, "source VIP {}", self.address)?,
        }
        match self.provider {
            Some(provider) => write!(f, " provider {provider}"),
            None => Ok(()),
        }
    }
}

/// Displays as `load balancer 10.96.0.10:80/TCP to port 8080 of 10.244.2.3 source
/// 10.244.1.2 affinity DSR USE_MUX`.
impl fmt::Display for LoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.external_port;
        match self.frontend {
            Some(address) => write!(f, "load balancer {}", SocketAddr::new(address, port))?,
            None => write!(f, "load balancer *:{port}")?,
        }
        let endpoints: Vec<_> = self.endpoints.iter().map(IpAddr::to_string).collect();
        let endpoints = endpoints.join(" ");
        write!(
            f,
            "/{} to port {} of {endpoints}",
            self.protocol, self.internal_port
        )?;
        if let Some(source) = self.source_vip {
            write!(f, " source {source}")?;
        }
        if self.distribution == Distribution::SOURCE_IP {
            f.write_str(" affinity")?;
        }
        for (name, _) in self.flags.iter_names() {
            write!(f, " {name}")?;
        }
        for (name, _) in self.port_flags.iter_names() {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}
