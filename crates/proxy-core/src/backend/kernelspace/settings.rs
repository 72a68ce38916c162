//! Settings of mode kernelspace, from the configuration and from HNS.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use vipline_hcn::{Endpoint, Features, Network, NetworkPolicy};
use vipline_service_model::Family;

/// Settings of mode kernelspace.
///
/// The default is a network of type `L2Bridge` without Direct Server Return, and a version
/// of HNS that has no optional features.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Whether the network is an overlay network.
    pub is_overlay: bool,
    /// Subnets of other nodes, in overlay networks.
    pub remote_subnets: Arc<[RemoteSubnet]>,
    /// Source address of translated packets, in overlay networks (`--source-vip`).
    pub source_vip: Option<IpAddr>,
    /// MAC address of the node's interface, for VIP endpoints of overlay networks.
    pub host_mac: Arc<str>,
    /// Whether load balancers of cluster IPs use Direct Server Return (`--enable-dsr`).
    pub enable_dsr: bool,
    /// Features of HNS.
    pub features: Features,
    /// Addresses of the endpoint that receives health checks of load balancer IPs. Empty
    /// if health checks are not forwarded (`--forward-healthcheck-vip` and
    /// `--root-hnsendpoint-name`).
    pub gateway: Arc<[IpAddr]>,
    /// Port of the health check of the proxy (`--healthz-bind-address`). 0 without one.
    pub healthz_port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            is_overlay: false,
            remote_subnets: Arc::default(),
            source_vip: None,
            host_mac: "".into(),
            enable_dsr: false,
            features: Features::empty(),
            gateway: Arc::default(),
            healthz_port: 0,
        }
    }
}

/// A subnet of another node.
///
/// Exhaustive: a subnet has these two properties.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemoteSubnet {
    /// Addresses of the pods.
    pub destination: IpNet,
    /// Address of the node.
    pub provider: IpAddr,
}

impl Settings {
    /// Sets type and subnets of a network. Subnets with an invalid prefix or address are
    /// left out.
    #[must_use]
    pub fn with_network(mut self, network: &Network) -> Self {
        let policies = network.policies.iter();
        let subnets = policies.filter_map(|policy| match &policy.settings {
            NetworkPolicy::RemoteSubnetRoute(route) => Some(RemoteSubnet {
                destination: route.destination.parse().ok()?,
                provider: route.provider_address.parse().ok()?,
            }),
            _ => None,
        });
        self.remote_subnets = subnets.collect();
        self.is_overlay = network.network_type().is_overlay();
        self
    }

    /// Sets the endpoint that receives health checks of load balancer IPs.
    #[must_use]
    pub fn with_gateway(mut self, endpoint: &Endpoint) -> Self {
        self.gateway = endpoint.addresses().collect();
        self
    }

    /// Returns the address of the node of an endpoint in an overlay network. `None` if the
    /// endpoint is outside of the cluster.
    ///
    /// As in upstream, the last subnet wins, and the address of a node is its own.
    pub(super) fn provider_of(&self, address: IpAddr) -> Option<IpAddr> {
        let mut subnets = self.remote_subnets.iter().rev();
        let found = subnets.find(|it| it.destination.contains(&address) || it.provider == address);
        found.map(|subnet| subnet.provider)
    }

    /// Returns the address of the gateway in a family.
    pub(super) fn gateway(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.gateway.iter().copied();
        addresses.find(|address| Family::of(*address) == family)
    }
}
