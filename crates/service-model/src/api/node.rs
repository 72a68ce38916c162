//! Nodes (`v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::{MetadataKey, ObjectMeta};

/// A Node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Node {
    /// Metadata. A label names the zone.
    pub metadata: ObjectMeta,
    /// Specification.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub spec: NodeSpec,
    /// Status.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub status: NodeStatus,
}

impl Node {
    /// The API group and version of the kind.
    pub const API_VERSION: &'static str = "v1";
    /// The name of the kind.
    pub const KIND: &'static str = "Node";
    /// Label with the name of the zone.
    pub const ZONE_LABEL: &'static str = MetadataKey::Zone.as_str();
}

/// Specification of a Node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NodeSpec {
    /// Pod network.
    #[cfg_attr(feature = "serde", serde(rename = "podCIDR"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub pod_cidr: String,
    /// Pod networks, at most one per family.
    #[cfg_attr(feature = "serde", serde(rename = "podCIDRs"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub pod_cidrs: Vec<String>,
    /// Taints.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub taints: Vec<Taint>,
}

/// Taint of a Node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Taint {
    /// The key.
    pub key: String,
}

/// Status of a Node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NodeStatus {
    /// Addresses.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub addresses: Vec<NodeAddress>,
}

/// Address or host name of a Node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NodeAddress {
    /// Type: `InternalIP`, `ExternalIP`, `Hostname`, …
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: String,
    /// Address or host name.
    pub address: String,
}
