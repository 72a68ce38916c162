//! The workspace, and cargo commands in it.

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

/// Makes a cargo command that runs in the workspace.
pub(crate) fn cargo(arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command.current_dir(root()).stdin(Stdio::null());
    // Set by the cargo that runs this program, for this package alone.
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

/// What `cargo metadata` tells.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// The members of the workspace.
    pub(crate) packages: Vec<Package>,
    /// Where builds go.
    pub(crate) target_directory: PathBuf,
}

/// A member of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its features, with what each one enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// Asks cargo about the workspace.
pub(crate) fn metadata() -> Result<Metadata> {
    let mut command = cargo(["metadata", "--format-version", "1", "--no-deps"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    serde_json::from_slice(&output.stdout).context("what cargo metadata prints")
}

/// Builds the kube-proxy for release and returns where it is.
pub(crate) fn release_build() -> Result<PathBuf> {
    execute(&mut cargo([
        "build",
        "--release",
        "--package",
        "kube-proxy",
    ]))?;
    Ok(metadata()?.target_directory.join("release/kube-proxy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tells_the_members_of_the_workspace() {
        let metadata = metadata().unwrap();
        let names: Vec<_> = metadata.packages.iter().map(|each| &*each.name).collect();
        assert!(names.contains(&"xtask") && names.contains(&"proxy-core"));
    }
}
