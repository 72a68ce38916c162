//! Objects of the Kubernetes API, with the fields that the model uses.
//!
//! The structs have the shape of the API's JSON, and the names of the API, except where
//! the crate has a resolved type of this name: [`ServicePortSpec`], [`SliceEndpoint`] and
//! [`TransportProtocol`].
//! They are exhaustive: programs build objects as literals with `..Default::default()`.
//! The enumerations are exhaustive: `Other` holds values that the API may add.
//!
//! Addresses are text. The model parses them and warns about invalid ones.
//! With the feature `serde`, the objects can be read from and written as JSON or
//! YAML. Unknown fields are ignored. An optional field that is missing, null or an
//! empty enumeration value gets the API's default.
//!
//! With the feature `k8s-openapi`, the objects convert from and to those of the crate
//! `k8s-openapi`, and so of `kube`. The version of the Kubernetes API is a feature of
//! `k8s-openapi`, which the program enables.
//! The conversions from `k8s-openapi` are `From` or `TryFrom`, of values and of references.
//! They keep only the fields that the model uses.
//!
#![cfg_attr(feature = "k8s-openapi", doc = "```")]
#![cfg_attr(not(feature = "k8s-openapi"), doc = "```ignore")]
//! use k8s_openapi::api::core::v1 as k8s;
//! use vipline_service_model::{Config, Store, api};
//!
//! let service = k8s::Service {
//!     spec: Some(k8s::ServiceSpec {
//!         cluster_ip: Some("10.96.0.10".to_owned()),
//!         ports: Some(vec![k8s::ServicePort { port: 80, ..Default::default() }]),
//!         ..Default::default()
//!     }),
//!     ..Default::default()
//! };
//! let mut store = Store::new(Config::new("node-1"));
//! let warnings = store.apply(api::Service::try_from(&service)?.into());
//! assert!(warnings.is_empty());
//! # Ok::<(), api::ConversionError>(())
//! ```

mod metadata;

mod metadata_key;

mod string_enum;

mod service;

mod endpoint_slice;

mod node;

mod namespace;

mod service_cidr;

#[cfg(feature = "k8s-openapi")]
mod k8s_openapi;

pub use endpoint_slice::{
    AddressType, Conditions, EndpointPort, EndpointSlice, Hints, NamedHint, SliceEndpoint,
};
#[cfg(feature = "k8s-openapi")]
pub use k8s_openapi::ConversionError;
pub use metadata::ObjectMeta;
pub use metadata_key::MetadataKey;
pub use namespace::Namespace;
pub use node::{Node, NodeAddress, NodeSpec, NodeStatus, Taint};
pub use service::{
    Affinity, ClientIpConfig, Ingress, IpFamily, IpMode, LoadBalancerStatus, Service,
    ServicePortSpec, ServiceSpec, ServiceStatus, ServiceType, SessionAffinityConfig, TrafficPolicy,
    TransportProtocol,
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
