//! Conversions from `k8s-openapi`, which keep the fields that the model uses.
//!
//! Conversions of references clone only these fields, so they suit the objects of an
//! informer.

use std::fmt::Display;

use ::k8s_openapi::api::core::v1 as core;
use ::k8s_openapi::api::discovery::v1 as discovery;
use ::k8s_openapi::api::networking::v1 as networking;
use ::k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::{ConversionError, List};
use crate::api::{
    ClientIpConfig, Conditions, EndpointPort, EndpointSlice, Hints, Ingress, LoadBalancerStatus,
    NamedHint, Namespace, Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta, Service,
    ServiceCidr, ServiceCidrSpec, ServicePortSpec, ServiceSpec, ServiceStatus,
    SessionAffinityConfig, SliceEndpoint, Taint,
};

/// Converts a number of the API to an unsigned number. Absent means 0.
fn unsigned<T>(path: impl Display, value: Option<i32>, max: u32) -> Result<T, ConversionError>
where
    T: TryFrom<i32> + Default,
{
    let Some(value) = value else {
        return Ok(T::default());
    };
    T::try_from(value).map_err(|_| {
        let reason = format!("{value} is not in the range 0-{max}");
        ConversionError::new(path.to_string(), reason)
    })
}

/// Converts a port number. Absent means 0.
fn port(path: impl Display, value: Option<i32>) -> Result<u16, ConversionError> {
    unsigned(path, value, u16::MAX.into())
}

/// Converts an optional text to a value. Absent means the API's default.
fn word<T: for<'a> From<&'a str>>(text: Option<&String>) -> T {
    T::from(text.map_or("", |text| text))
}

/// Converts the items of an optional list.
fn list<T, U>(items: Option<&Vec<T>>, convert: impl Fn(&T) -> U) -> Vec<U> {
    items.into_iter().flatten().map(convert).collect()
}

/// Implements the conversion of an owned object by that of its reference.
macro_rules! owned {
    ($($theirs:path => $ours:ident),+ $(,)?) => {
        $(impl From<$theirs> for $ours {
            fn from(object: $theirs) -> Self {
                Self::from(&object)
            }
        })+
    };
}

owned! {
    meta::ObjectMeta => ObjectMeta,
    discovery::EndpointSlice => EndpointSlice,
    core::Namespace => Namespace,
    core::Node => Node,
    networking::ServiceCIDR => ServiceCidr,
}

impl From<&meta::ObjectMeta> for ObjectMeta {
    fn from(meta: &meta::ObjectMeta) -> Self {
        let time = |time: &meta::Time| time.0.to_string();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            creation_timestamp: meta.creation_timestamp.as_ref().map(time),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(time),
        }
    }
}

impl TryFrom<core::Service> for Service {
    type Error = ConversionError;

    /// Converts a Service.
    ///
    /// # Errors
    ///
    /// A port or the timeout of the session affinity is out of range. The API server
    /// rejects such a Service.
    fn try_from(service: core::Service) -> Result<Self, ConversionError> {
        Self::try_from(&service)
    }
}

impl TryFrom<&core::Service> for Service {
    type Error = ConversionError;

    /// Converts a Service.
    ///
    /// # Errors
    ///
    /// A port or the timeout of the session affinity is out of range. The API server
    /// rejects such a Service.
    fn try_from(service: &core::Service) -> Result<Self, ConversionError> {
        let spec = service.spec.as_ref().map(ServiceSpec::try_from);
        let status = service.status.as_ref().map(ServiceStatus::from);
        Ok(Self {
            metadata: (&service.metadata).into(),
            spec: spec.transpose()?.unwrap_or_default(),
            status: status.unwrap_or_default(),
        })
    }
}

impl TryFrom<&core::ServiceSpec> for ServiceSpec {
    type Error = ConversionError;

    fn try_from(spec: &core::ServiceSpec) -> Result<Self, ConversionError> {
        let ports = spec.ports.iter().flatten().enumerate();
        let ports = ports.map(|(index, port)| service_port(index, port));
        let affinity = spec.session_affinity_config.as_ref();
        Ok(Self {
            kind: word(spec.type_.as_ref()),
            cluster_ip: spec.cluster_ip.clone().unwrap_or_default(),
            cluster_ips: spec.cluster_ips.clone().unwrap_or_default(),
            external_name: spec.external_name.clone().unwrap_or_default(),
            publish_not_ready_addresses: spec.publish_not_ready_addresses.unwrap_or_default(),
            ip_families: list(spec.ip_families.as_ref(), |family| family.as_str().into()),
            ports: ports.collect::<Result<_, _>>()?,
            session_affinity: word(spec.session_affinity.as_ref()),
            session_affinity_config: affinity.map(session_affinity).transpose()?,
            external_ips: spec.external_ips.clone().unwrap_or_default(),
            load_balancer_source_ranges: spec
                .load_balancer_source_ranges
                .clone()
                .unwrap_or_default(),
            external_traffic_policy: word(spec.external_traffic_policy.as_ref()),
            internal_traffic_policy: word(spec.internal_traffic_policy.as_ref()),
            health_check_node_port: port("spec.healthCheckNodePort", spec.health_check_node_port)?,
        })
    }
}

fn service_port(index: usize, it: &core::ServicePort) -> Result<ServicePortSpec, ConversionError> {
    Ok(ServicePortSpec {
        name: it.name.clone().unwrap_or_default(),
        protocol: word(it.protocol.as_ref()),
        port: port(format_args!("spec.ports[{index}].port"), Some(it.port))?,
        node_port: port(format_args!("spec.ports[{index}].nodePort"), it.node_port)?,
    })
}

fn session_affinity(
    config: &core::SessionAffinityConfig,
) -> Result<SessionAffinityConfig, ConversionError> {
    let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let client_ip = |config: &core::ClientIPConfig| {
        let timeout = config.timeout_seconds;
        let timeout = timeout.map(|it| unsigned(path, Some(it), i32::MAX.cast_unsigned()));
        Ok(ClientIpConfig {
            timeout_seconds: timeout.transpose()?,
        })
    };
    Ok(SessionAffinityConfig {
        client_ip: config.client_ip.as_ref().map(client_ip).transpose()?,
    })
}

impl From<&core::ServiceStatus> for ServiceStatus {
    fn from(status: &core::ServiceStatus) -> Self {
        let ingress = |it: &core::LoadBalancerIngress| Ingress {
            ip: it.ip.clone().unwrap_or_default(),
            ip_mode: word(it.ip_mode.as_ref()),
        };
        let points = status.load_balancer.as_ref();
        let points = points.and_then(|status| status.ingress.as_ref());
        Self {
            load_balancer: LoadBalancerStatus {
                ingress: list(points, ingress),
            },
        }
    }
}

/// Converts a slice. A port without a name gets the API's default, the empty name.
impl From<&discovery::EndpointSlice> for EndpointSlice {
    fn from(slice: &discovery::EndpointSlice) -> Self {
        let port = |port: &discovery::EndpointPort| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            protocol: word(port.protocol.as_ref()),
            port: port.port,
        };
        Self {
            metadata: (&slice.metadata).into(),
            address_type: slice.address_type.as_str().into(),
            ports: list(slice.ports.as_ref(), port),
            endpoints: slice
                .endpoints
                .items()
                .iter()
                .map(SliceEndpoint::from)
                .collect(),
        }
    }
}

impl From<&discovery::Endpoint> for SliceEndpoint {
    fn from(endpoint: &discovery::Endpoint) -> Self {
        let conditions = |it: &discovery::EndpointConditions| Conditions {
            ready: it.ready,
            serving: it.serving,
            terminating: it.terminating,
        };
        let hint = |name: &String| NamedHint { name: name.clone() };
        let hints = |it: &discovery::EndpointHints| Hints {
            for_zones: list(it.for_zones.as_ref(), |zone| hint(&zone.name)),
            for_nodes: list(it.for_nodes.as_ref(), |node| hint(&node.name)),
        };
        let present = endpoint.conditions.as_ref();
        Self {
            addresses: endpoint.addresses.clone(),
            conditions: present.map(conditions).unwrap_or_default(),
            hints: endpoint.hints.as_ref().map(hints),
            hostname: endpoint.hostname.clone(),
            node_name: endpoint.node_name.clone(),
            zone: endpoint.zone.clone(),
        }
    }
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let spec = |spec: &core::NodeSpec| NodeSpec {
            pod_cidr: spec.pod_cidr.clone().unwrap_or_default(),
            pod_cidrs: spec.pod_cidrs.clone().unwrap_or_default(),
            taints: list(spec.taints.as_ref(), |taint| Taint {
                key: taint.key.clone(),
            }),
        };
        let address = |address: &core::NodeAddress| NodeAddress {
            kind: address.type_.clone(),
            address: address.address.clone(),
        };
        let status = |status: &core::NodeStatus| NodeStatus {
            addresses: list(status.addresses.as_ref(), address),
        };
        Self {
            metadata: (&node.metadata).into(),
            spec: node.spec.as_ref().map(spec).unwrap_or_default(),
            status: node.status.as_ref().map(status).unwrap_or_default(),
        }
    }
}

impl From<&core::Namespace> for Namespace {
    fn from(namespace: &core::Namespace) -> Self {
        Self {
            metadata: (&namespace.metadata).into(),
        }
    }
}

impl From<&networking::ServiceCIDR> for ServiceCidr {
    fn from(cidr: &networking::ServiceCIDR) -> Self {
        let spec = cidr.spec.as_ref();
        Self {
            metadata: (&cidr.metadata).into(),
            spec: ServiceCidrSpec {
                cidrs: spec.and_then(|it| it.cidrs.clone()).unwrap_or_default(),
            },
        }
    }
}
