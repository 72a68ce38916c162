//! A Kubernetes API server for tests, with fault injection.
//!
//! The server accepts HTTPS on loopback and behaves as kube-apiserver does: paginated
//! lists of one version, watches with bookmarks and history, label and field selectors,
//! authentication by certificate or token, and Status objects.
//! It serves Services, EndpointSlices, Nodes, Namespaces, ServiceCIDRs, IPAddresses and
//! Events.
//! It validates client writes of all kinds except Namespaces.
//! It does not set defaults or allocate addresses and ports.
//! [`ApiServer::apply`] stores any object without validation.
//!
//! A test stores objects with [`ApiServer::apply`] and inspects client requests with
//! [`ApiServer::requests`]. It injects faults of network and cluster with
//! [`ApiServer::faults`], or at random with [`Chaos`].
//!
//! ```
//! use std::time::Duration;
//!
//! use apiserver::ApiServer;
//! use serde_json::json;
//!
//! let server = ApiServer::start();
//! server.apply(json!({
//!     "apiVersion": "v1",
//!     "kind": "Service",
//!     "metadata": { "name": "web", "namespace": "default" },
//!     "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] },
//! }));
//! assert!(server.kubeconfig().contains("server: https://127.0.0.1:"));
//! assert_eq!(server.count("list", "services"), 0);
//! ```
//!
//! Not implemented: admission, defaulting, quota, protobuf, persistence.
//!
//! Modules in the order of a request: `listener` (connections, TLS), `link` (fault
//! injection into a connection), `routes`, `query`, then `list`, `watch`, `write` (with
//! `check`) or `delete`. All use `store`, which holds the objects and their history.
#![forbid(unsafe_code)]

mod chaos;
mod check;
mod delete;
mod event;
mod faults;
mod key;
mod kind;
mod kubeconfig;
mod link;
mod list;
mod listener;
mod metadata;
mod query;
mod random;
mod requests;
mod routes;
mod selector;
mod server;
mod state;
mod status;
mod store;
mod tls;
mod tls_terminator;
mod watch;
mod write;

pub use chaos::{Chaos, FaultCounts, FaultKind};
pub use faults::{CutAfter, Disconnect, ErrorResponse, Faults, Layer, Order, WatchListFailure};
pub use requests::Request;
pub use server::ApiServer;
pub use tls_terminator::TlsTerminator;
