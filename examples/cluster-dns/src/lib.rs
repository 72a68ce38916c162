//! A DNS server for Kubernetes Services made of the Vipline crates.
//!
//! The library contains the parts of the program and is not published.
//!
//! - [`cli`]: flags; [`config`]: configuration file, defaults and validation;
//! - [`run`]: threads and signals of the program;
//! - [`source`]: objects from manifests or from an API server, applied to the zone;
//! - [`server`]: DNS over UDP and TCP;
//! - [`forward`]: upstream name servers and the cache;
//! - [`local_addresses`]: addresses of this server, for `NS` records;
//! - [`node_local`]: the address and rules of a server beside kube-proxy on a node;
//! - [`telemetry`]: health, readiness, metrics and the query log;
//! - [`failure`], [`logging`]: exit codes and the log.
#![forbid(unsafe_code)]

pub mod cli;

pub mod config;

pub mod run;

pub mod source;

pub mod server;

pub mod forward;

mod rotation;

mod truncation;

pub mod node_local;

pub mod local_addresses;

pub mod telemetry;

pub mod failure;

pub mod logging;

use std::process::ExitCode;

use tracing::{error, info};

use cli::{Cli, Task};
use config::{Configuration, Logging, Settings};
use failure::Failure;

/// Runs the command line and returns the exit code.
pub fn start(cli: &Cli) -> ExitCode {
    let configuration = Configuration::load(cli);
    let logging = configuration.as_ref().ok();
    let logging = logging.map_or_else(Logging::default, |each| each.logging.clone());
    logging::start(&logging);
    let done = match cli.task {
        Some(Task::Cleanup) => cleanup(),
        None => configuration.and_then(|configuration| run(&configuration)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            for line in failure.to_string().lines() {
                error!("{line}");
            }
            failure.code()
        }
    }
}

fn run(configuration: &Configuration) -> Result<(), Failure> {
    run::run(&Settings::new(configuration)?)
}

/// Removes what a killed process left on this node.
fn cleanup() -> Result<(), Failure> {
    match node_local::cleanup().map_err(Failure::machine)? {
        true => info!("node-local interface, addresses and rules removed"),
        false => info!("there are no node-local interface, addresses and rules"),
    }
    Ok(())
}
