//! Conversions to `k8s-openapi`. Fields that the model lacks are absent.

use ::k8s_openapi::api::core::v1 as core;
use ::k8s_openapi::api::discovery::v1 as discovery;
use ::k8s_openapi::api::networking::v1 as networking;
use ::k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use ::k8s_openapi::jiff::Timestamp;

use super::{ConversionError, List};
use crate::api::{
    ClientIpConfig, EndpointPort, EndpointSlice, Hints, Ingress, NamedHint, Namespace, Node,
    NodeAddress, ObjectMeta, Service, ServiceCidr, ServicePortSpec, ServiceSpec,
    SessionAffinityConfig, SliceEndpoint, Taint,
};

/// Returns `None` for an empty text.
fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Converts the items of a list. An empty list becomes `None`.
fn items<T, U: From<T>>(items: Vec<T>) -> Option<Vec<U>> {
    (!items.is_empty()).then(|| items.into_iter().map(U::from).collect())
}

impl TryFrom<ObjectMeta> for meta::ObjectMeta {
    type Error = ConversionError;

    /// Converts metadata.
    ///
    /// # Errors
    ///
    /// A time is not in the format of RFC 3339.
    fn try_from(meta: ObjectMeta) -> Result<Self, ConversionError> {
        let time = |path: &str, text: Option<String>| {
            let parse = |text: String| match text.parse::<Timestamp>() {
                Ok(time) => Ok(meta::Time(time)),
                Err(error) => Err(ConversionError::new(path, error.to_string())),
            };
            text.map(parse).transpose()
        };
        Ok(Self {
            name: text(meta.name),
            namespace: text(meta.namespace),
            labels: (!meta.labels.is_empty()).then_some(meta.labels),
            annotations: (!meta.annotations.is_empty()).then_some(meta.annotations),
            creation_timestamp: time("metadata.creationTimestamp", meta.creation_timestamp)?,
            deletion_timestamp: time("metadata.deletionTimestamp", meta.deletion_timestamp)?,
            ..Self::default()
        })
    }
}

impl TryFrom<Service> for core::Service {
    type Error = ConversionError;

    /// Converts a Service. Fields that the model lacks are absent.
    ///
    /// # Errors
    ///
    /// A time is not in the format of RFC 3339, or a timeout exceeds `i32::MAX` seconds.
    fn try_from(service: Service) -> Result<Self, ConversionError> {
        let ingress = service.status.load_balancer.ingress;
        Ok(Self {
            metadata: service.metadata.try_into()?,
            spec: Some(service.spec.try_into()?),
            status: Some(core::ServiceStatus {
                load_balancer: Some(core::LoadBalancerStatus {
                    ingress: items(ingress),
                }),
                ..core::ServiceStatus::default()
            }),
        })
    }
}

impl TryFrom<ServiceSpec> for core::ServiceSpec {
    type Error = ConversionError;

    fn try_from(spec: ServiceSpec) -> Result<Self, ConversionError> {
        let affinity = spec.session_affinity_config;
        let affinity = affinity.map(core::SessionAffinityConfig::try_from);
        let health_check = spec.health_check_node_port;
        Ok(Self {
            type_: Some(spec.kind.into()),
            cluster_ip: text(spec.cluster_ip),
            cluster_ips: items(spec.cluster_ips),
            external_name: text(spec.external_name),
            publish_not_ready_addresses: spec.publish_not_ready_addresses.then_some(true),
            ip_families: items(spec.ip_families),
            ports: items(spec.ports),
            session_affinity: Some(spec.session_affinity.into()),
            session_affinity_config: affinity.transpose()?,
            external_ips: items(spec.external_ips),
            load_balancer_source_ranges: items(spec.load_balancer_source_ranges),
            external_traffic_policy: Some(spec.external_traffic_policy.into()),
            internal_traffic_policy: Some(spec.internal_traffic_policy.into()),
            health_check_node_port: (health_check != 0).then(|| health_check.into()),
            ..Self::default()
        })
    }
}

impl From<ServicePortSpec> for core::ServicePort {
    fn from(port: ServicePortSpec) -> Self {
        Self {
            name: text(port.name),
            protocol: Some(port.protocol.into()),
            port: port.port.into(),
            node_port: (port.node_port != 0).then(|| port.node_port.into()),
            ..Self::default()
        }
    }
}

impl TryFrom<SessionAffinityConfig> for core::SessionAffinityConfig {
    type Error = ConversionError;

    fn try_from(config: SessionAffinityConfig) -> Result<Self, ConversionError> {
        let convert = |seconds: u32| {
            i32::try_from(seconds).map_err(|_| {
                let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
                ConversionError::new(path, format!("{seconds} exceeds {}", i32::MAX))
            })
        };
        let client_ip = |config: ClientIpConfig| {
            Ok(core::ClientIPConfig {
                timeout_seconds: config.timeout_seconds.map(convert).transpose()?,
            })
        };
        Ok(Self {
            client_ip: config.client_ip.map(client_ip).transpose()?,
        })
    }
}

impl From<Ingress> for core::LoadBalancerIngress {
    fn from(ingress: Ingress) -> Self {
        Self {
            // Only an ingress point with an address has a mode.
            ip_mode: (!ingress.ip.is_empty()).then(|| ingress.ip_mode.into()),
            ip: text(ingress.ip),
            ..Self::default()
        }
    }
}

impl TryFrom<EndpointSlice> for discovery::EndpointSlice {
    type Error = ConversionError;

    /// Converts a slice. Fields that the model lacks are absent.
    ///
    /// # Errors
    ///
    /// A time is not in the format of RFC 3339.
    fn try_from(slice: EndpointSlice) -> Result<Self, ConversionError> {
        Ok(Self {
            metadata: slice.metadata.try_into()?,
            address_type: slice.address_type.into(),
            ports: items(slice.ports),
            endpoints: List::from_items(slice.endpoints.into_iter().map(Into::into).collect()),
        })
    }
}

impl From<EndpointPort> for discovery::EndpointPort {
    fn from(port: EndpointPort) -> Self {
        Self {
            name: port.name,
            protocol: Some(port.protocol.into()),
            port: port.port,
            ..Self::default()
        }
    }
}

impl From<SliceEndpoint> for discovery::Endpoint {
    fn from(endpoint: SliceEndpoint) -> Self {
        let conditions = endpoint.conditions;
        let hints = |hints: Hints| discovery::EndpointHints {
            for_zones: items(hints.for_zones),
            for_nodes: items(hints.for_nodes),
        };
        Self {
            addresses: endpoint.addresses,
            conditions: Some(discovery::EndpointConditions {
                ready: conditions.ready,
                serving: conditions.serving,
                terminating: conditions.terminating,
            }),
            hints: endpoint.hints.map(hints),
            hostname: endpoint.hostname,
            node_name: endpoint.node_name,
            zone: endpoint.zone,
            ..Self::default()
        }
    }
}

impl From<NamedHint> for discovery::ForZone {
    fn from(hint: NamedHint) -> Self {
        Self { name: hint.name }
    }
}

impl From<NamedHint> for discovery::ForNode {
    fn from(hint: NamedHint) -> Self {
        Self { name: hint.name }
    }
}

impl TryFrom<Namespace> for core::Namespace {
    type Error = ConversionError;

    /// Converts a Namespace. Fields that the model lacks are absent.
    ///
    /// # Errors
    ///
    /// A time is not in the format of RFC 3339.
    fn try_from(namespace: Namespace) -> Result<Self, ConversionError> {
        Ok(Self {
            metadata: namespace.metadata.try_into()?,
            ..Self::default()
        })
    }
}

impl TryFrom<ServiceCidr> for networking::ServiceCIDR {
    type Error = ConversionError;

    /// Converts a ServiceCIDR.
    ///
    /// # Errors
    ///
    /// A time is not in the format of RFC 3339.
    fn try_from(cidr: ServiceCidr) -> Result<Self, ConversionError> {
        Ok(Self {
            metadata: cidr.metadata.try_into()?,
            spec: Some(networking::ServiceCIDRSpec {
                cidrs: items(cidr.spec.cidrs),
            }),
            status: None,
        })
    }
}

impl TryFrom<Node> for core::Node {
    type Error = ConversionError;

    /// Converts a Node. Fields that the model lacks are absent.
    ///
    /// # Errors
    ///
    /// A time is not in the format of RFC 3339.
    fn try_from(node: Node) -> Result<Self, ConversionError> {
        Ok(Self {
            metadata: node.metadata.try_into()?,
            spec: Some(core::NodeSpec {
                pod_cidr: text(node.spec.pod_cidr),
                pod_cidrs: items(node.spec.pod_cidrs),
                taints: items(node.spec.taints),
                ..core::NodeSpec::default()
            }),
            status: Some(core::NodeStatus {
                addresses: items(node.status.addresses),
                ..core::NodeStatus::default()
            }),
        })
    }
}

impl From<Taint> for core::Taint {
    fn from(taint: Taint) -> Self {
        Self {
            key: taint.key,
            ..Self::default()
        }
    }
}

impl From<NodeAddress> for core::NodeAddress {
    fn from(address: NodeAddress) -> Self {
        Self {
            type_: address.kind,
            address: address.address,
        }
    }
}
