//! Packages of the published crates, built as crates.io receives them.

use std::process::Command;

use anyhow::Result;

use crate::cargo::{Metadata, cargo, metadata};
use crate::process::execute;

/// Runs the task.
///
/// Packages all published crates in dependency order, and uploads the packages unless
/// `dry_run` is set. `verify` also builds each package with the packages of the other
/// crates. Packages are not uploaded without that.
pub(crate) fn run(dry_run: bool, verify: bool) -> Result<()> {
    let metadata = metadata()?;
    execute(&mut command(&metadata, dry_run, verify))?;
    let done = if dry_run { "packaged" } else { "published" };
    for member in metadata.packages.iter().filter(|it| it.is_published()) {
        println!("{}: {done}", member.name);
    }
    Ok(())
}

/// Returns the command. An upload requires a clean work tree and a token for crates.io.
fn command(metadata: &Metadata, dry_run: bool, verify: bool) -> Command {
    let mut command = if dry_run {
        cargo(["package", "--workspace", "--allow-dirty", "--quiet"])
    } else {
        cargo(["publish", "--workspace"])
    };
    for member in metadata.packages.iter().filter(|it| !it.is_published()) {
        command.args(["--exclude", &member.name]);
    }
    if dry_run && !verify {
        command.arg("--no-verify");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::display;

    #[test]
    fn an_upload_is_verified_and_excludes_internal_crates() {
        let metadata = metadata().unwrap();
        let upload = display(&command(&metadata, false, false));
        assert!(upload.contains("publish --workspace"), "{upload}");
        assert!(upload.contains("--exclude xtask"), "{upload}");
        assert!(!upload.contains("--no-verify"), "{upload}");
        assert!(!upload.contains("--allow-dirty"), "{upload}");
        assert!(!upload.contains("vipline-netlink"), "{upload}");
    }

    #[test]
    fn a_dry_run_only_packages() {
        let metadata = metadata().unwrap();
        for (verify, count) in [(true, 0), (false, 1)] {
            let package = display(&command(&metadata, true, verify));
            assert!(package.contains(" package "), "{package}");
            assert_eq!(package.matches("--no-verify").count(), count, "{package}");
        }
    }
}
