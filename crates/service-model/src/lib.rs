//! Kubernetes Services resolved into service ports: who gets traffic.
//!
//! A [`Store`] takes in [`Event`]s about Services, EndpointSlices, Nodes and
//! ServiceCIDRs. Resolving it gives the [`ServicePort`]s that changed, with
//! everything decided that is policy: which endpoints are ready or at least
//! still serving, which are near by, what the traffic policies allow, and what
//! becomes of traffic that nobody takes ([`Route`]).
//! A proxy only has to translate them, each mode in its own way.
//!
//! - An event costs what its object costs and resolving costs what the
//!   Services concerned cost, however many others there are.
//! - The result depends on the objects alone: not on the order of events, and
//!   not on chance where the reference implementation leaves it to chance.
//! - Nothing here can fail: what is odd about an object is left out, and a
//!   [`Warning`] beside the result names object and field.
//!   Endpoints at loopback, link-local, multicast, broadcast and unspecified
//!   addresses are refused in that way.
//!
//! The crate does no IO, reads no clock, and does not know that there is a
//! kernel. It does not choose an endpoint for a connection, does not settle
//! which of two Services has an address (but [`PortName`]s sort by who should),
//! and does not watch an API server.
//!
//! ```
//! use vipline_service_model::{Config, Event, Route, Store, api};
//!
//! let mut service = api::Service {
//!     metadata: api::ObjectMeta::named("default", "web"),
//!     ..api::Service::default()
//! };
//! service.spec.cluster_ip = "10.96.0.10".into();
//! service.spec.ports = vec![api::ServicePort { port: 80, ..Default::default() }];
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
//! With the feature `serde` the objects in [`api`] are read from Kubernetes
//! JSON and YAML; `test-util` adds objects and events by chance.
//!
//! To read the source, follow the modules: the objects ([`api`]), what happens
//! to them (`event`), what they are called (`name`), what is odd about them
//! (`warning`), this node (`node_view`), the result (`service_port`), and the
//! `store` that leads from one to the other, with `entries` (what is known of a
//! Service and what waits), `frontend` (a Service read once), `slices` (its endpoints), `topology` and `policy` (which of
//! them). `local_traffic` and `node_ports` decide from configuration.
#![forbid(unsafe_code)]

pub mod api;

mod event;

mod name;

mod timestamp;

mod address;

mod warning;

mod node_view;

mod scheduler;

mod service_port;

mod store;

mod entries;

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

pub use address::{Family, SpecialAddress, parse_address, parse_network};
pub use changes::{Changes, Counts, HealthCheck, NoLocalEndpoints};
pub use event::Event;
pub use frontend::ExternalIps;
pub use local_traffic::{DetectLocal, LocalTraffic};
pub use name::{ObjectName, PortName, Protocol};
pub use node_ports::{NodePortAddresses, NodePortFilter, NodePortMatch};
pub use node_view::NodeView;
pub use scheduler::Scheduler;
pub use service_port::{Endpoint, PortChange, Route, ServicePort};
pub use store::{Config, Store};
pub use timestamp::Timestamp;
pub use warning::{Field, Kind, Problem, Warning};
