//! EndpointSlices (`discovery.k8s.io/v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::word::words;
use super::{MetadataKey, ObjectMeta, Protocol};

/// An EndpointSlice: some of the endpoints of a Service, of one family.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct EndpointSlice {
    /// Name, labels (one of which names the Service) and annotations.
    pub metadata: ObjectMeta,
    /// What kind of addresses the endpoints have.
    pub address_type: AddressType,
    /// The ports that each of the endpoints serves.
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
    pub endpoints: Vec<Endpoint>,
}

impl EndpointSlice {
    /// The API group and version of the kind.
    pub const API_VERSION: &'static str = "discovery.k8s.io/v1";
    /// The name of the kind.
    pub const KIND: &'static str = "EndpointSlice";
    /// The label that names the Service.
    pub const SERVICE_NAME_LABEL: &'static str = MetadataKey::ServiceName.as_str();
}

words! {
    /// What kind of addresses the endpoints of a slice have.
    AddressType { V4 = "IPv4", V6 = "IPv6", Fqdn = "FQDN" }
}

/// A port that the endpoints of a slice serve.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct EndpointPort {
    /// The name of the Service's port; the API's default is the empty name.
    #[cfg_attr(feature = "serde", serde(default = "unnamed"))]
    pub name: Option<String>,
    /// The protocol.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub protocol: Protocol,
    /// The port number; absent means all ports, which no Service can use.
    ///
    /// The API server does not validate it: any `int32` occurs.
    #[cfg_attr(feature = "serde", serde(default))]
    pub port: Option<i32>,
}

fn unnamed() -> Option<String> {
    Some(String::new())
}

impl Default for EndpointPort {
    fn default() -> Self {
        Self {
            name: unnamed(),
            protocol: Protocol::Tcp,
            port: None,
        }
    }
}

/// One endpoint of a slice.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct Endpoint {
    /// The addresses, of which only the first counts.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub addresses: Vec<String>,
    /// How the endpoint is doing.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub conditions: Conditions,
    /// Whom the endpoint is meant for.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub hints: Option<Hints>,
    /// The node that the endpoint is on.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub node_name: Option<String>,
}

/// How an endpoint is doing; each condition stands for itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Conditions {
    /// Whether it takes new connections; absent means yes.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub ready: Option<bool>,
    /// Whether it still answers, terminating or not; absent means yes.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub serving: Option<bool>,
    /// Whether it is going away; absent means no.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub terminating: Option<bool>,
}

/// Whom an endpoint is meant for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct Hints {
    /// The zones whose nodes should use it.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub for_zones: Vec<NamedHint>,
    /// The nodes that should use it.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub for_nodes: Vec<NamedHint>,
}

/// A zone or a node that an endpoint is meant for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NamedHint {
    /// The name of the zone or node.
    pub name: String,
}
