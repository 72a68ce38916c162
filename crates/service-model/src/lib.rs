//! Kubernetes Services resolved into service ports: who gets traffic.
#![forbid(unsafe_code)]

pub mod api;

mod event;

mod name;

mod timestamp;

mod address;

mod warning;

mod node_view;

mod service_port;

mod store;

mod changes;

mod frontend;

mod slices;

mod topology;

mod policy;

mod local_traffic;

mod node_ports;

#[cfg(feature = "test-util")]
pub mod arbitrary;

pub use address::{Family, Hazard, parse_address, parse_network};
pub use changes::{Changes, Counts, HealthCheck, WithoutLocal};
pub use event::Event;
pub use frontend::ExternalIps;
pub use local_traffic::{DetectLocal, LocalTraffic};
pub use name::{ObjectName, PortName, Protocol};
pub use node_ports::{NodePortAddresses, NodePortFilter, NodePortMatch};
pub use node_view::NodeView;
pub use service_port::{Endpoint, Resolved, Route, ServicePort};
pub use store::{Config, Store};
pub use timestamp::Timestamp;
pub use warning::{Field, Kind, Problem, Warning};
