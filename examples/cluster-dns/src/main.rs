//! A DNS server for Kubernetes Services made of the Vipline crates.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use cluster_dns::cli::Cli;

fn main() -> ExitCode {
    cluster_dns::start(&Cli::read())
}
