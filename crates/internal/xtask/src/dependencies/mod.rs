//! Checks dependencies: licenses, sources, duplicate versions, and use.
//!
//! `deny.toml` has the rules, in the format of cargo-deny. This task checks the same rules
//! with the output of `cargo metadata`, because a build of cargo-deny takes longer than all
//! steps of CI. Only this task finds unused dependencies.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cargo::{cargo, root};
use crate::process::display;
use rules::Rules;

mod rules;

mod unused;

/// Platform whose dependencies are checked; `deny.toml` names the same.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Runs the task.
pub(crate) fn run() -> Result<()> {
    let rules = Rules::parse(&fs::read_to_string(root().join("deny.toml"))?)?;
    let graph = metadata()?;
    let mut findings = rules.check(&graph);
    findings.extend(unused::check(&graph)?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    eprintln!("{} packages", graph.packages.len());
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} findings"),
    }
}

/// Packages of the workspace and all their dependencies.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Registry or repository; [`None`] for packages of this repository.
    source: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

/// A dependency that a manifest declares.
#[derive(Debug, Deserialize)]
struct Dependency {
    /// Name of the package.
    name: String,
    /// Name in source code, if it is not that of the package.
    rename: Option<String>,
    /// `dev`, `build`, or [`None`] for a normal dependency.
    kind: Option<String>,
}

/// A library, program, test, example, benchmark or build script.
#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

fn metadata() -> Result<Metadata> {
    let mut command = cargo([
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
        "--filter-platform",
        PLATFORM,
    ]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dependencies_of_the_workspace_obey_the_rules() {
        run().unwrap();
    }
}
