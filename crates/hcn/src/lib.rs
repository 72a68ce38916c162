//! The Host Compute Network API of Windows: networks, endpoints, load balancers, SDN
//! routes and policies.
//!
//! ```
//! use vipline_hcn::{Endpoint, LoadBalancer, LoadBalancerFlags, Memory, Network};
//! use vipline_hcn::{NetworkType, PortMapping, Protocol, Service};
//!
//! // On Windows: `let mut hns = vipline_hcn::Client::new();`
//! let mut hns = Memory::new();
//! let overlay = Network::new("overlay", NetworkType::Overlay)
//!     .with_subnet("10.244.1.0/24", "10.244.1.1");
//! let network = hns.create_network(&overlay)?;
//!
//! let remote = Endpoint::remote("10.244.2.7".parse()?, "02-11-0a-f4-02-07");
//! let remote = hns.create_endpoint(&network.id, &remote)?;
//!
//! let mapping = PortMapping::new(Protocol::TCP, 80, 8080);
//! let web = LoadBalancer::new(Some("10.96.0.10".parse()?), mapping, [remote.id])
//!     .with_flags(LoadBalancerFlags::DSR);
//! let web = hns.create_load_balancer(&web)?;
//! println!("{}", serde_json::to_string(&web)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The Host Networking Service (HNS) has the networks of containers on Windows nodes, and
//! the load balancers of the Virtual Filtering Platform. Its documents are JSON. This
//! crate reads and writes the documents on every system, and calls HNS on Windows.
//!
//! - [`Network`], [`Endpoint`], [`LoadBalancer`], [`SdnRoute`]: the documents of version 2
//!   of the schema. Unknown members are kept in the field `other`.
//! - [`Policy`], [`NetworkPolicy`], [`SubnetPolicy`], [`EndpointPolicy`]: policies with
//!   typed settings. Other types are kept as [`OtherPolicy`].
//! - [`Query`], [`Filter`], [`ModifyRequest`]: queries and changes.
//! - [`Service`]: the operations of HNS.
//! - `Client`: the client, on Windows only.
//! - `Memory`: a double of HNS for tests, with the feature `memory`.
//! - [`Version`], [`Features`]: versions of HNS and their features.
//! - [`Notification`]: notifications; `Watch` receives them, on Windows only.
//! - [`Error`], [`HResult`]: errors, with the names of codes.
#![cfg_attr(not(any(windows, test)), forbid(unsafe_code))]

mod document;

mod id;

mod version;

mod features;

mod load_balancer;

mod policy;

mod network;

mod endpoint;

mod route;

mod query;

mod request;

mod hresult;

mod error;

mod notification;

mod service;

#[cfg(any(windows, test))]
mod text;

#[cfg(feature = "memory")]
mod memory;

// On other systems the unit tests compile the client, so that its types are checked.
#[cfg(any(windows, test))]
mod client;

#[cfg(any(windows, test))]
mod functions;

#[cfg(windows)]
pub use client::{Client, Watch};
pub use document::Other;
pub use endpoint::{Endpoint, EndpointFlags, IpConfig};
pub use error::Error;
pub use features::Features;
pub use hresult::HResult;
pub use id::Id;
pub use load_balancer::{
    Distribution, LoadBalancer, LoadBalancerFlags, PortMapping, PortMappingFlags, Protocol,
};
#[cfg(feature = "memory")]
pub use memory::{Call, Memory};
pub use network::{
    Dns, Ipam, MacPool, MacRange, Network, NetworkFlags, NetworkType, Route, Subnet, SubnetFlags,
};
pub use notification::Notification;
pub use policy::*;
pub use query::{Filter, Query, QueryFlags};
pub use request::{ModifyRequest, RequestType, ResourceType};
pub use route::SdnRoute;
pub use service::Service;
pub use version::Version;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
