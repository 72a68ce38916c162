//! Packages of the published crates, built as crates.io would receive them.

use anyhow::{Result, bail};

use crate::cargo::{cargo, metadata};
use crate::process::execute;

/// Runs the task.
///
/// Packages all published crates in dependency order. `verify` also builds each package
/// with the packages of the other crates.
pub(crate) fn run(dry_run: bool, verify: bool) -> Result<()> {
    if !dry_run {
        bail!("only --dry-run is supported: a release is published by `cargo publish --workspace`");
    }
    let metadata = metadata()?;
    let mut package = cargo(["package", "--workspace", "--allow-dirty", "--quiet"]);
    for member in metadata.packages.iter().filter(|it| !it.is_published()) {
        package.args(["--exclude", &member.name]);
    }
    if !verify {
        package.arg("--no-verify");
    }
    execute(&mut package)?;
    for member in metadata.packages.iter().filter(|it| it.is_published()) {
        println!("{}: packaged", member.name);
    }
    Ok(())
}
