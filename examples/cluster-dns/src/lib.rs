//! A DNS server for Kubernetes Services made of the Vipline crates.
//!
//! The library contains the parts of the program and is not published.
//!
//! - [`cli`]: flags; [`config`]: configuration file, defaults and validation;
//! - [`source`]: objects from manifests or from an API server, applied to the zone;
//! - [`server`]: DNS over UDP and TCP;
//! - [`forward`]: upstream name servers and the cache;
//! - [`node_local`]: the address and rules of a server beside kube-proxy on a node;
//! - [`telemetry`]: health, readiness, metrics and the query log.

pub mod cli;

pub mod config;

pub mod source;

pub mod server;

pub mod forward;

pub mod node_local;

pub mod telemetry;

use std::process::ExitCode;

use cli::Cli;

/// Runs the command line and returns the exit code.
pub fn start(_cli: &Cli) -> ExitCode {
    ExitCode::SUCCESS
}
