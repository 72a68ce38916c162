//! Runs kube-proxy for a long time under load, kills, foreign flushes and API outages.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use testkit::privilege::become_root;

use crate::binaries::Artifacts;
use crate::cargo::{cargo, image_build, root};
use crate::process::{LIMIT, execute_within};
use crate::tools;

/// The build of the test.
///
/// Like the build of the tests, it selects the whole workspace, so the dependencies have the
/// same features and are compiled once.
const BUILD: [&str; 3] = ["build", "--workspace", "--test=soak"];

/// Proxy mode of a soak.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// Mode nftables.
    Nftables,
    /// Mode iptables with the backend `netlink`.
    Iptables,
}

/// Runs the task.
///
/// The test `soak` of this package runs for seconds in CI, and prints its figures. Here it
/// measures the memory of kube-proxy as built for images.
pub(crate) fn run(minutes: u64, mode: Mode) -> Result<()> {
    tools::install(tools::KERNEL_TOOLS)?;
    let artifacts = Artifacts::build(&mut cargo(BUILD))?;
    let program = image_build("kube-proxy")?;
    become_root().context("network namespaces need root or a user namespace")?;
    let package = root().join("crates/internal/xtask");
    let test = artifacts.find(&package, "test", "soak");
    let seconds = 60 * minutes;
    let mut soak = Command::new(test.context("cargo did not build the test")?);
    let name = match mode {
        Mode::Nftables => "in_mode_nftables",
        Mode::Iptables => "in_mode_iptables",
    };
    soak.args([name, "--nocapture"])
        .current_dir(package)
        .env("SOAK_SECONDS", seconds.to_string())
        .env("KUBE_PROXY", program);
    execute_within(LIMIT + Duration::from_secs(seconds), &mut soak)
}
