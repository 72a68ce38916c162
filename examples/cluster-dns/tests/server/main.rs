//! cluster-dns as a process: `dig`, raw packets, manifests, an API server, HTTP, signals and
//! privileges.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

mod stage;

mod answers;

mod hostile;

mod transport;

mod objects;

mod process;
