//! Tests of the store in etcd with a real etcd.
//!
//! Each test starts etcd in a separate network namespace.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "etcd/server.rs"]
mod server;

#[path = "etcd/values.rs"]
mod values;

#[path = "etcd/migration.rs"]
mod migration;

#[path = "etcd/lost.rs"]
mod lost;

#[path = "etcd/tls.rs"]
mod tls;

#[path = "etcd/history.rs"]
mod history;

#[path = "etcd/worker.rs"]
mod worker;

#[path = "etcd/linearizability.rs"]
mod linearizability;

#[path = "etcd/shell.rs"]
mod shell;

#[allow(dead_code, reason = "the tests do not call the main function")]
#[path = "../../service-ip-kube/examples/ipam/main.rs"]
mod ipam;

#[allow(dead_code, reason = "the tests do not call the main function")]
#[path = "../examples/three-processes.rs"]
mod three_processes;
