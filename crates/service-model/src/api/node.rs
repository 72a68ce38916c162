//! Nodes (`v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::{MetadataKey, ObjectMeta};

/// A Node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Node {
    /// Name and labels, one of which names the zone.
    pub metadata: ObjectMeta,
    /// What is wanted of it.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub spec: NodeSpec,
    /// What it is.
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
    /// The label that names the zone.
    pub const ZONE_LABEL: &'static str = MetadataKey::Zone.as_str();
}

/// What is wanted of a Node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NodeSpec {
    /// The network of its pods.
    #[cfg_attr(feature = "serde", serde(rename = "podCIDR"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub pod_cidr: String,
    /// The networks of its pods, at most one per family.
    #[cfg_attr(feature = "serde", serde(rename = "podCIDRs"))]
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub pod_cidrs: Vec<String>,
    /// What keeps pods away.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub taints: Vec<Taint>,
}

/// What keeps pods away from a Node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Taint {
    /// The key.
    pub key: String,
}

/// What a Node is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NodeStatus {
    /// Its addresses.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub addresses: Vec<NodeAddress>,
}

/// An address or name of a Node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct NodeAddress {
    /// What it is: `InternalIP`, `ExternalIP`, `Hostname`, …
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: String,
    /// The address or name.
    pub address: String,
}
