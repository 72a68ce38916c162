//! A Kubernetes API server for tests: lists, watches, and what goes wrong.
//!
//! It speaks HTTPS on loopback, and a client cannot tell it from a real one: it
//! lists in chunks of one version, watches with bookmarks and history, selects
//! by labels and fields, wants a certificate or a token, and answers with
//! Status objects.
//! It serves Services, EndpointSlices, Nodes, Namespaces, ServiceCIDRs,
//! IPAddresses and Events. It validates all but Namespaces when a client writes them, and
//! neither fills in defaults nor allocates; [`ApiServer::apply`] stores anything.
//!
//! A test puts objects in with [`ApiServer::apply`] and sees what was asked in
//! [`ApiServer::requests`]. What a network and a cluster do to a client is
//! switched on and off in [`ApiServer::faults`], or played at random by
//! [`Chaos`].
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
//! There is no admission, no defaulting, no quota, no protobuf, and nothing is
//! kept on disk.
//!
//! Map, in the order of a request: `listener` (connections, TLS), `link` (a
//! connection that can be cut), `routes`, `query`, then `list`, `watch`,
//! `write` (with `check`) or `delete`, all on `store`, which has the objects and
//! their history.
#![forbid(unsafe_code)]

mod chaos;
mod check;
mod delete;
mod faults;
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

pub use chaos::{Chaos, Counts, Mishap};
pub use faults::{Answer, CutAfter, Ending, Faults, Layer, NoWatchLists, Order};
pub use requests::Request;
pub use server::ApiServer;
pub use tls_terminator::TlsTerminator;
