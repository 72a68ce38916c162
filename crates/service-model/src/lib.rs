//! Resolves Kubernetes Services into service ports with their endpoints.
//!
//! ```
//! use vipline_service_model::{Config, Event, Route, Store, api};
//!
//! let mut service = api::Service {
//!     metadata: api::ObjectMeta::named("default", "web"),
//!     ..api::Service::default()
//! };
//! service.spec.cluster_ip = "10.96.0.10".into();
//! service.spec.ports = vec![api::ServicePortSpec { port: 80, ..Default::default() }];
//!
//! let mut store = Store::new(Config::new("node-1"));
//! let warnings = store.apply(Event::ServiceApplied(service));
//! assert!(warnings.is_empty());
//! store.apply(Event::Synced);
//!
//! let node = store.node();
//! let changes = store.resolve(&node);
//! let port = changes[0].port.as_ref().expect("the port is new");
//! assert_eq!(port.to_string(), "10.96.0.10:80/TCP");
//! assert_eq!(port.internal, Route::Reject, "there are no endpoints yet");
//! ```
//!
//! A [`Store`] applies [`Event`]s about Services, EndpointSlices, Nodes and
//! ServiceCIDRs, and resolves them into the [`ServicePort`]s that changed.
//! All policy is already applied to a service port: readiness, terminating
//! endpoints, topology hints and traffic policies. [`Route`] holds the verdict
//! for each kind of traffic.
//! Each proxy mode only translates the service ports into its own rules.
//!
//! - The cost of an event depends on its object only. The cost of resolving
//!   depends on the changed Services only, not on the size of the cluster.
//! - The result is a function of the objects. It does not depend on the order
//!   of events, and is deterministic where upstream kube-proxy is not.
//! - No function fails. An invalid field is left out of the result, and a
//!   [`Warning`] names object and field. Endpoints with loopback, link-local,
//!   multicast, broadcast and unspecified addresses are rejected in this way.
//!
//! The crate does no IO, reads no clock and does not depend on the kernel.
//! It does not select an endpoint for a connection, and does not watch an API
//! server. It does not resolve conflicts between Services that claim the same
//! address, but [`AddressKind`]s and [`PortName`]s sort by precedence.
//!
//! With the feature `serde`, the objects in [`api`] can be read from Kubernetes
//! JSON and YAML. The feature `k8s-openapi` converts them from and to the objects of that
//! crate. The feature `test-util` generates random objects and events.
//!
//! # Source files, in reading order
//!
//! - [`api`]: API objects. `event`: their changes. `name`: names of objects and
//!   ports. `warning`: invalid fields. `counted`:
//!   numbers in sentences.
//! - `node_view`: this node. `service_port`: the result. `address`: its addresses, and
//!   their precedence.
//! - `store`: from events to service ports. `entries`: state and dirty mark of
//!   each Service. `frontend`: a parsed Service. `slices`: its endpoints.
//!   `topology` and `policy`: selection of endpoints.
//! - `limit`: the most that one Service gets, because addresses x ports is a product.
//! - `details` and `unserved`: endpoints with all their properties, and Services and
//!   addresses that the store does not serve, for explanations.
//! - `local_traffic` and `node_ports`: results of the configuration.
#![forbid(unsafe_code)]

pub mod api;

mod event;

mod name;

mod timestamp;

mod special_address;

mod warning;

mod counted;

mod node_view;

mod service_port;

mod address;

mod store;

mod entries;

mod shared_names;

mod limit;

mod location;

mod unserved;

mod details;

mod changes;

mod frontend;

mod slices;

mod slice_ports;

mod topology;

mod policy;

mod local_traffic;

mod node_ports;

#[cfg(feature = "test-util")]
pub mod arbitrary;

pub use address::{Address, AddressKind};
pub use changes::{Changes, Counts, HealthCheck, NoLocalEndpoints};
pub use counted::Counted;
pub use details::EndpointDetails;
pub use event::Event;
pub use frontend::ExternalIps;
pub use ipnet;
pub use limit::{Limit, MAX_ADDRESS_PORT_PAIRS, MAX_SOURCE_CHECKS, OverLimit, PortOverLimit};
pub use local_traffic::{DetectLocal, LocalTraffic};
pub use name::{ObjectName, PortName};
pub use node_ports::{NodePortAddresses, NodePortFilter, NodePortMatch};
pub use node_view::NodeView;
pub use service_port::{Endpoint, PortChange, Route, ServicePort};
pub use special_address::{SpecialAddress, is_of_one_link};
pub use store::{Config, Store};
pub use timestamp::Timestamp;
pub use unserved::{SkipReason, SkippedService, UnservedAddress, UnservedReason};
pub use vipline_inet::{Family, Scheduler, Transport, parse_address, parse_network};
pub use warning::{Field, Kind, Problem, Warning, Warnings};

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
