//! Services (`v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::ObjectMeta;
use super::word::words;

/// A Service: an address that stands for a set of endpoints.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Service {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub spec: ServiceSpec,
    /// What the load balancer's controller made of it.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub status: ServiceStatus,
}

impl Service {
    /// The API group and version of the kind.
    pub const API_VERSION: &'static str = "v1";
    /// The name of the kind.
    pub const KIND: &'static str = "Service";
}

/// What a Service asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ServiceSpec {
    /// How the Service is reached.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub kind: ServiceType,
    /// The first cluster IP; `None` in a headless Service.
    #[cfg_attr(feature = "serde", serde(rename = "clusterIP"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub cluster_ip: String,
    /// The cluster IPs, one per family.
    #[cfg_attr(feature = "serde", serde(rename = "clusterIPs"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub cluster_ips: Vec<String>,
    /// The families of the cluster IPs, in their order.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub ip_families: Vec<IpFamily>,
    /// The ports.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub ports: Vec<ServicePort>,
    /// Whether a client stays with its endpoint.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub session_affinity: Affinity,
    /// For how long it does.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Further addresses, routed to the nodes by somebody else.
    #[cfg_attr(feature = "serde", serde(rename = "externalIPs"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub external_ips: Vec<String>,
    /// The networks that may use the load balancer's addresses; empty is all.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub load_balancer_source_ranges: Vec<String>,
    /// Which endpoints take traffic from outside of the cluster.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub external_traffic_policy: TrafficPolicy,
    /// Which endpoints take traffic to the cluster IPs.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub internal_traffic_policy: TrafficPolicy,
    /// Where load balancers ask whether the node has endpoints, 0 for nowhere.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub health_check_node_port: u16,
}

#[cfg(feature = "serde")]
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// A port of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ServicePort {
    /// The name that EndpointSlices refer to, empty for an only port.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub name: String,
    /// The protocol.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub protocol: Protocol,
    /// The port on the Service's addresses.
    pub port: u16,
    /// The port on the nodes' addresses, 0 for none.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub node_port: u16,
}

words! {
    /// How a Service is reached.
    ServiceType {
        ClusterIp = "ClusterIP",
        NodePort = "NodePort",
        LoadBalancer = "LoadBalancer",
        ExternalName = "ExternalName",
    }
}

words! {
    /// An IP family.
    IpFamily { V4 = "IPv4", V6 = "IPv6" }
}

words! {
    /// A transport protocol.
    Protocol { Tcp = "TCP", Udp = "UDP", Sctp = "SCTP" }
}

words! {
    /// Whether a client stays with its endpoint.
    Affinity { None = "None", ClientIp = "ClientIP" }
}

words! {
    /// Which endpoints take traffic: those of the cluster or of the node.
    TrafficPolicy { Cluster = "Cluster", Local = "Local" }
}

words! {
    /// Whether nodes see packets to a load balancer's address as such.
    IpMode { Vip = "VIP", Proxy = "Proxy" }
}

/// How session affinity is set up.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct SessionAffinityConfig {
    /// For affinity by the client's address.
    #[cfg_attr(feature = "serde", serde(rename = "clientIP"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub client_ip: Option<ClientIpConfig>,
}

/// How affinity by the client's address is set up.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ClientIpConfig {
    /// For how many seconds without a connection a client is remembered.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub timeout_seconds: Option<u32>,
}

/// What the load balancer's controller made of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ServiceStatus {
    /// The load balancer.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub load_balancer: LoadBalancerStatus,
}

/// A load balancer's addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct LoadBalancerStatus {
    /// The addresses.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub ingress: Vec<Ingress>,
}

/// One address of a load balancer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct Ingress {
    /// The address, empty if there is only a host name.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub ip: String,
    /// Whether nodes see packets to it as such.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub ip_mode: IpMode,
}
