//! A complete kube-proxy made of the Vipline crates.
//!
//! The library contains the parts of the program and is not published.
//!
//! - [`cli`]: upstream's flags; [`config`]: configuration file, defaults and
//!   validation;
//! - [`settings`]: the configuration in the types of the other modules;
//! - [`setup`]: engine and object source ([`vipline_kube_source`]); [`tasks`]: background
//!   tasks;
//! - [`telemetry`]: health and metrics; [`server`]: both over HTTP;
//! - `command`: runs the command line; `linux`: the commands of the modes of Linux: [`run`], [`oneshot`], [`diff`],
//!   [`explain`];
//! - [`kernelspace`]: the commands of mode kernelspace; `windows`: the service;
//! - [`flow_search`]: the thread that searches for stale flows;
//! - [`flows`], [`rejections`], [`rejectedz`], [`field_problems`]: reports about stale
//!   flows, rejected objects and refused addresses;
//! - [`node`], [`families`]: the node and its IP families;
//! - [`process`], [`sysctl`], [`cleanup`]: preparation of the node, and removal
//!   of all rules;
//! - [`failure`], [`logging`], [`output`], [`signals`], [`stop`], [`wait`], [`version`]:
//!   exit codes, log, stdout and smaller parts; [`allocator`], [`free_memory`]: return of
//!   free memory.

pub mod allocator;

#[cfg(target_os = "linux")]
pub mod free_memory;

mod command;

pub mod cli;

pub mod config;

pub mod settings;

pub mod tasks;

#[cfg(target_os = "linux")]
pub mod families;

pub mod node;

pub mod field_problems;

pub mod bound_addresses;

pub mod rejectedz;

pub mod setup;

pub mod run;

pub mod stop;

#[cfg(target_os = "linux")]
pub mod flows;

#[cfg(target_os = "linux")]
pub mod flow_search;

pub mod telemetry;

pub mod server;

#[cfg(target_os = "linux")]
pub mod signals;

#[cfg(target_os = "linux")]
pub mod wait;

#[cfg(target_os = "linux")]
pub mod oneshot;

#[cfg(target_os = "linux")]
pub mod diff;

#[cfg(target_os = "linux")]
pub mod explain;

pub mod kernelspace;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub mod process;

pub mod rejections;

#[cfg(target_os = "linux")]
pub mod sysctl;

#[cfg(target_os = "linux")]
pub mod cleanup;

pub mod output;

pub mod logging;

pub mod version;

pub mod failure;

/// Runs the command line and returns the exit code.
pub fn start(cli: &cli::Cli) -> std::process::ExitCode {
    #[cfg(windows)]
    return windows::start(cli);
    #[cfg(not(windows))]
    command::start(cli)
}
