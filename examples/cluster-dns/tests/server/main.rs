//! cluster-dns as a process: `dig`, raw packets, upstreams, manifests, an API server, metrics,
//! signals, privileges and invalid input.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

mod stage;

#[path = "../upstreams/scripted.rs"]
#[allow(dead_code, reason = "the tests of upstreams use the rest")]
mod scripted;

#[path = "../upstreams/external.rs"]
mod external;

#[path = "../lab/objects.rs"]
#[allow(dead_code, reason = "the tests in labs use the rest")]
mod api_objects;

mod upstream;

mod answers;

mod listeners;

mod hostile;

mod transport;

mod objects;

mod process;

mod api;

mod forward;

mod metrics;

mod input;
