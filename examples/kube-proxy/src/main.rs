//! A complete kube-proxy made of the Vipline crates.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use kube_proxy::cli::Cli;

fn main() -> ExitCode {
    kube_proxy::start(&Cli::read())
}
