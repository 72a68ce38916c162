//! Services (`v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use vipline_inet::{Family, Transport};

use super::ObjectMeta;
use super::string_enum::string_enum;

/// A Service.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Service {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// Specification.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub spec: ServiceSpec,
    /// Status.
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

/// Specification of a Service.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ServiceSpec {
    /// Type.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub kind: ServiceType,
    /// First cluster IP. The text `None` in a headless Service.
    #[cfg_attr(feature = "serde", serde(rename = "clusterIP"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub cluster_ip: String,
    /// Cluster IPs, one per family.
    #[cfg_attr(feature = "serde", serde(rename = "clusterIPs"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub cluster_ips: Vec<String>,
    /// Domain name that a Service of type `ExternalName` is an alias of.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub external_name: String,
    /// Whether DNS publishes endpoints that are not ready.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_false"))]
    pub publish_not_ready_addresses: bool,
    /// Families of the cluster IPs, in the same order.
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
    pub ports: Vec<ServicePortSpec>,
    /// Session affinity.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub session_affinity: Affinity,
    /// Session affinity configuration.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Additional addresses whose routing to the nodes is not managed by Kubernetes.
    #[cfg_attr(feature = "serde", serde(rename = "externalIPs"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub external_ips: Vec<String>,
    /// Networks that may use the load balancer's addresses. Empty means all networks.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub load_balancer_source_ranges: Vec<String>,
    /// Policy for traffic to node ports and external addresses.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub external_traffic_policy: TrafficPolicy,
    /// Policy for traffic to the cluster IPs.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub internal_traffic_policy: TrafficPolicy,
    /// Health check node port, 0 for none.
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

#[cfg(feature = "serde")]
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// A port of a Service, `ServicePort` of the API.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ServicePortSpec {
    /// Name, referred to by EndpointSlices. Empty for a single unnamed port.
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
    pub protocol: TransportProtocol,
    /// Port at the addresses of the Service.
    pub port: u16,
    /// Node port, 0 for none.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub node_port: u16,
}

impl ServicePortSpec {
    /// Returns a TCP port without a name and without a node port.
    pub fn tcp(port: u16) -> Self {
        Self {
            port,
            ..Self::default()
        }
    }
}

string_enum! {
/// Type of a Service.
    ServiceType {
        ClusterIp = "ClusterIP",
        NodePort = "NodePort",
        LoadBalancer = "LoadBalancer",
        ExternalName = "ExternalName",
    }
}

string_enum! {
    /// IP family.
    IpFamily { V4 = "IPv4", V6 = "IPv6" }
}

impl IpFamily {
    /// Returns the family, or `None` for an unknown value.
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::V4 => Some(Family::V4),
            Self::V6 => Some(Family::V6),
            Self::Other(_) => None,
        }
    }
}

string_enum! {
    /// Transport protocol, `Protocol` of the API.
    TransportProtocol { Tcp = "TCP", Udp = "UDP", Sctp = "SCTP" }
}

impl TransportProtocol {
    /// Returns the transport protocol, or `None` for an unknown value.
    pub fn transport(&self) -> Option<Transport> {
        match self {
            Self::Tcp => Some(Transport::Tcp),
            Self::Udp => Some(Transport::Udp),
            Self::Sctp => Some(Transport::Sctp),
            Self::Other(_) => None,
        }
    }
}

string_enum! {
    /// Session affinity.
    Affinity { None = "None", ClientIp = "ClientIP" }
}

string_enum! {
    /// Traffic policy: all endpoints of the cluster, or the endpoints on the node.
    TrafficPolicy { Cluster = "Cluster", Local = "Local" }
}

string_enum! {
    /// Mode of a load balancer IP: whether packets keep it as destination (`VIP`) or not
    /// (`Proxy`).
    IpMode { Vip = "VIP", Proxy = "Proxy" }
}

/// Session affinity configuration.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct SessionAffinityConfig {
    /// Configuration of affinity by client IP.
    #[cfg_attr(feature = "serde", serde(rename = "clientIP"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub client_ip: Option<ClientIpConfig>,
}

/// Configuration of affinity by client IP.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ClientIpConfig {
    /// Session timeout in seconds.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub timeout_seconds: Option<u32>,
}

/// Status of a Service.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ServiceStatus {
    /// Status of the load balancer.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub load_balancer: LoadBalancerStatus,
}

/// Status of a load balancer.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
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

/// Ingress point of a load balancer.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct Ingress {
    /// Address, empty if the ingress point has only a host name.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub ip: String,
    /// Mode of the address.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub ip_mode: IpMode,
}
