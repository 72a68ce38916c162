//! Settings of mode kernelspace, from the configuration and from HNS.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use vipline_hcn::{Endpoint, Features, Network, NetworkPolicy, RemoteSubnetRoutePolicy};
use vipline_service_model::Family;

use proxy_engine::Error;

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

/// Type of the policies for subnets of other nodes.
const TYPE: &str = "RemoteSubnetRoute";

impl TryFrom<&RemoteSubnetRoutePolicy> for RemoteSubnet {
    type Error = String;

    fn try_from(route: &RemoteSubnetRoutePolicy) -> Result<Self, String> {
        fn parse<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, String> {
            let parsed = text.parse();
            parsed.map_err(|error| format!("{name} {text:?}: {error}"))
        }
        Ok(Self {
            destination: parse("DestinationPrefix", &route.destination)?,
            provider: parse("ProviderAddress", &route.provider_address)?,
        })
    }
}

/// Returns the subnet of a policy. `None` if the policy has another type.
fn remote_subnet(policy: &NetworkPolicy) -> Result<Option<RemoteSubnet>, String> {
    match policy {
        NetworkPolicy::RemoteSubnetRoute(route) => route.try_into().map(Some),
        NetworkPolicy::Other(other) if other.policy_type == TYPE => {
            let route: RemoteSubnetRoutePolicy = other.parse().map_err(|it| it.to_string())?;
            (&route).try_into().map(Some)
        }
        _ => Ok(None),
    }
}

impl Settings {
    /// Sets type and subnets of a network.
    ///
    /// # Errors
    ///
    /// A policy `RemoteSubnetRoute` has another form, or an invalid prefix or address:
    /// `network vxlan0: Policies[0] (RemoteSubnetRoute): DestinationPrefix "10.244.2.0": invalid
    /// IP address syntax`.
    pub fn with_network(mut self, network: &Network) -> Result<Self, Error> {
        let subnets = network.policies.iter().enumerate();
        let subnets = subnets.map(|(index, policy)| {
            remote_subnet(&policy.settings).map_err(|reason| {
                let network = &network.name;
                Error::custom_permanent(format!(
                    "network {network}: Policies[{index}] ({TYPE}): {reason}"
                ))
            })
        });
        self.remote_subnets = subnets
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        self.is_overlay = network.network_type().is_overlay();
        Ok(self)
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
