//! Compiles the published crates with the minimum version of Rust.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cargo::{Metadata, root};
use crate::process::execute;

/// Crates that are not compiled, because their dependencies alone take a minute.
/// Clippy finds library functions that are too new in all crates.
const EXCLUDED: [&str; 2] = ["vipline-kube-source", "vipline-service-ip-kube"];

/// Runs the task.
///
/// Prints a warning and checks nothing if rustup cannot install the version.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    let members = metadata.packages.iter().filter(|it| it.is_published());
    let version = metadata.packages[0]
        .rust_version
        .as_deref()
        .context("rust-version is missing")?;
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", version, "--profile", "minimal"]);
    rustup.stderr(Stdio::null()).stdout(Stdio::null());
    if let Err(error) = execute(&mut rustup) {
        eprintln!("warning: not checked: {error:#}");
        return Ok(());
    }
    let mut check = Command::new("rustup");
    check.args(["run", version, "cargo", "check", "--lib", "--quiet"]);
    check.current_dir(root()).stdin(Stdio::null());
    check.env("CARGO_TARGET_DIR", metadata.target_directory.join("msrv"));
    for member in members.filter(|it| !EXCLUDED.contains(&&*it.name)) {
        check.args(["--package", &member.name]);
    }
    execute(&mut check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::metadata;

    #[test]
    fn all_members_have_one_minimum_version_and_the_exclusions_exist() {
        let metadata = metadata().unwrap();
        let first = &metadata.packages[0].rust_version;
        assert!(first.is_some());
        assert!(metadata.packages.iter().all(|it| it.rust_version == *first));
        for name in EXCLUDED {
            assert!(metadata.packages.iter().any(|it| it.name == name), "{name}");
        }
    }
}
