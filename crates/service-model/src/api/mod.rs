//! Objects of the Kubernetes API, as far as they decide who gets traffic.
//!
//! Plain structs in the shape of the API's JSON.
//! Addresses stay text: the model reads them, and warns where they are odd.
//! With the feature `serde` they are read from and written as JSON or YAML:
//! fields unknown here are ignored, and a field that is missing, null or an
//! empty word gets the API's own default.

mod metadata;

mod metadata_key;

mod word;

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

/// Reads a value for which null means the default.
#[cfg(feature = "serde")]
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    use serde::Deserialize;
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
