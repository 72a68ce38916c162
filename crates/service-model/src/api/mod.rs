//! Objects of the Kubernetes API, with the fields that the model uses.
//!
//! The structs have the shape of the API's JSON.
//! They are exhaustive: programs build objects as literals with `..Default::default()`.
//! The enumerations are exhaustive: `Other` holds values that the API may add.
//!
//! Addresses are text. The model parses them and warns about invalid ones.
//! With the feature `serde`, the objects can be read from and written as JSON or
//! YAML. Unknown fields are ignored. An optional field that is missing, null or an
//! empty enumeration value gets the API's default.

mod metadata;

mod metadata_key;

mod string_enum;

mod service;

mod endpoint_slice;

mod node;

mod service_cidr;

pub use endpoint_slice::{
    AddressType, Conditions, Endpoint, EndpointPort, EndpointSlice, Hints, NamedHint,
};
pub use metadata::ObjectMeta;
pub use metadata_key::MetadataKey;
pub use node::{Node, NodeAddress, NodeSpec, NodeStatus, Taint};
pub use service::{
    Affinity, ClientIpConfig, Ingress, IpFamily, IpMode, LoadBalancerStatus, Protocol, Service,
    ServicePort, ServiceSpec, ServiceStatus, ServiceType, SessionAffinityConfig, TrafficPolicy,
};
pub use service_cidr::{ServiceCidr, ServiceCidrSpec};

/// Deserializes a value. Null means the default.
#[cfg(feature = "serde")]
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    use serde::Deserialize;
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
