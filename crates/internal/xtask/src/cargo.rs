//! Workspace metadata and cargo commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, str};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{display, execute};

/// Returns the folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .expect("the crate is in crates/internal/xtask")
}

/// Creates a cargo command that runs in the root of the workspace.
pub(crate) fn cargo(arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command.current_dir(root()).stdin(Stdio::null());
    // The cargo that runs this program sets them for this package only.
    for (name, _) in env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR")
        {
            command.env_remove(name);
        }
    }
    command
}

/// Output of `cargo metadata`.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// Members of the workspace.
    pub(crate) packages: Vec<Package>,
    /// Target directory of the workspace.
    pub(crate) target_directory: PathBuf,
}

/// A member of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// Name.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    /// Minimum version of Rust.
    pub(crate) rust_version: Option<String>,
    /// Features, with the features and dependencies that each enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// Libraries, programs, tests and benchmarks.
    targets: Vec<Target>,
    /// Registries to publish to: none, or any if absent.
    publish: Option<Vec<String>>,
}

/// A library, program, test or benchmark.
#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Package {
    /// Returns whether the package may be published.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|to| !to.is_empty())
    }

    /// Returns the names of the benchmarks.
    pub(crate) fn benches(&self) -> Vec<String> {
        let targets = self.targets.iter();
        let benches = targets.filter(|target| target.kind.iter().any(|kind| kind == "bench"));
        benches.map(|target| target.name.clone()).collect()
    }
}

/// Runs `cargo metadata`.
pub(crate) fn metadata() -> Result<Metadata> {
    let mut command = cargo(["metadata", "--format-version", "1", "--no-deps"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")
}

/// Builds a program with the profile of images and returns its path.
pub(crate) fn image_build(package: &str) -> Result<PathBuf> {
    let profile = ["--profile", "image"];
    execute(cargo(["build", "--package", package]).args(profile))?;
    Ok(metadata()?.target_directory.join("image").join(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_lists_the_members_of_the_workspace() {
        let metadata = metadata().unwrap();
        let names: Vec<_> = metadata.packages.iter().map(|each| &*each.name).collect();
        assert!(names.contains(&"xtask") && names.contains(&"proxy-core"));
    }
}
