//! EndpointSlices (`discovery.k8s.io/v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use vipline_inet::Family;

use super::string_enum::string_enum;
use super::{MetadataKey, ObjectMeta, TransportProtocol};

/// An EndpointSlice: endpoints of a Service in one family.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct EndpointSlice {
    /// Metadata. A label names the Service.
    pub metadata: ObjectMeta,
    /// Address type of the endpoints.
    pub address_type: AddressType,
    /// Ports of each endpoint.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub ports: Vec<EndpointPort>,
    /// The endpoints.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub endpoints: Vec<SliceEndpoint>,
}

impl EndpointSlice {
    /// The API group and version of the kind.
    pub const API_VERSION: &'static str = "discovery.k8s.io/v1";
    /// The name of the kind.
    pub const KIND: &'static str = "EndpointSlice";
    /// Label with the name of the Service.
    pub const SERVICE_NAME_LABEL: &'static str = MetadataKey::ServiceName.as_str();

    /// Returns a slice of a Service, with the name of the Service and without endpoints.
    pub fn of_service(namespace: &str, service: &str) -> Self {
        let mut metadata = ObjectMeta::named(namespace, service);
        let label = Self::SERVICE_NAME_LABEL.to_owned();
        metadata.labels.insert(label, service.to_owned());
        Self {
            metadata,
            ..Self::default()
        }
    }
}

string_enum! {
    /// Address type of the endpoints of a slice.
    AddressType { V4 = "IPv4", V6 = "IPv6", Fqdn = "FQDN" }
}

impl AddressType {
    /// Returns the family of the addresses, or `None` if they are names or of an unknown type.
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::V4 => Some(Family::V4),
            Self::V6 => Some(Family::V6),
            Self::Fqdn | Self::Other(_) => None,
        }
    }
}

/// A port of the endpoints of a slice.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct EndpointPort {
    /// Name of the Service port. The API's default is the empty name. A port with `None`
    /// (null in JSON) is left out with a warning.
    #[cfg_attr(feature = "serde", serde(default = "unnamed"))]
    pub name: Option<String>,
    /// The protocol.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub protocol: TransportProtocol,
    /// Port number. Absent means all ports, which no Service can use.
    ///
    /// The API server does not validate the range of the `int32`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub port: Option<i32>,
}

impl EndpointPort {
    /// Returns a TCP port for the Service port without a name.
    pub fn tcp(port: u16) -> Self {
        Self {
            port: Some(port.into()),
            ..Self::default()
        }
    }
}

fn unnamed() -> Option<String> {
    Some(String::new())
}

impl Default for EndpointPort {
    fn default() -> Self {
        Self {
            name: unnamed(),
            protocol: TransportProtocol::Tcp,
            port: None,
        }
    }
}

/// One endpoint of a slice, `Endpoint` of the API.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct SliceEndpoint {
    /// Addresses. A [`Store`](crate::Store) uses only the first one.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub addresses: Vec<String>,
    /// Conditions.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub conditions: Conditions,
    /// Topology hints.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub hints: Option<Hints>,
    /// Host name of the endpoint in DNS.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub hostname: Option<String>,
    /// Name of the node of the endpoint.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub node_name: Option<String>,
    /// Zone of the endpoint.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub zone: Option<String>,
}

impl SliceEndpoint {
    /// Returns an endpoint that is ready, at an address.
    pub fn at(address: impl Into<String>) -> Self {
        Self {
            addresses: vec![address.into()],
            ..Self::default()
        }
    }
}

/// Conditions of an endpoint, independent of each other.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Conditions {
    /// Whether the endpoint accepts new connections. Absent means true.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub ready: Option<bool>,
    /// Whether the endpoint serves, even while terminating. Absent means true.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub serving: Option<bool>,
    /// Whether the endpoint is terminating. Absent means false.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub terminating: Option<bool>,
}

/// Topology hints of an endpoint.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct Hints {
    /// Zones that should use the endpoint.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub for_zones: Vec<NamedHint>,
    /// Nodes that should use the endpoint.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub for_nodes: Vec<NamedHint>,
}

/// Zone or node of a topology hint.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NamedHint {
    /// Name of the zone or node.
    pub name: String,
}
