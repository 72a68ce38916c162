//! ServiceCIDRs (`networking.k8s.io/v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::ObjectMeta;

/// A ServiceCIDR: networks that cluster IPs are allocated from.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct ServiceCidr {
    /// The name.
    pub metadata: ObjectMeta,
    /// The networks.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub spec: ServiceCidrSpec,
}

impl ServiceCidr {
    /// The API group and version of the kind.
    pub const API_VERSION: &'static str = "networking.k8s.io/v1";
    /// The name of the kind.
    pub const KIND: &'static str = "ServiceCIDR";
}

/// Specification of a ServiceCIDR.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct ServiceCidrSpec {
    /// The networks, at most one per family.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    pub cidrs: Vec<String>,
}
