//! Packages of the published crates, built as crates.io receives them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use testkit::privilege::become_root;

use crate::binaries::Artifacts;
use crate::cargo::{Metadata, Package, cargo, metadata, root};
use crate::process::execute;

mod programs;

pub(crate) use programs::{BuiltProgram, run as run_programs};

/// Source of the program that uses every published crate.
const CONSUMER: &str = include_str!("consumer.rs");

/// Name of this program.
const CONSUMER_NAME: &str = "consumer";

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

/// Packages all published crates, checks the packages, and runs their programs.
pub(crate) fn dry_run() -> Result<()> {
    let programs = check_packages()?;
    become_root().context("programs need root or a user namespace")?;
    let count = run_programs(&programs)?;
    println!("{count} programs ran from the packages");
    Ok(())
}

/// Packages all published crates, unpacks the packages into a workspace outside of this one,
/// and checks their examples there. Also builds and runs a [program](CONSUMER) that depends on
/// every package. So no example needs what only the repository has.
///
/// Returns those examples that [run](run_programs) as programs.
pub(crate) fn check_packages() -> Result<Vec<BuiltProgram>> {
    run(true, false)?;
    let metadata = metadata()?;
    let folder = unpack(&metadata)?;
    let in_folder = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", &metadata.target_directory)
            .arg("--offline");
        command
    };
    execute(&mut in_folder(&[
        "check",
        "--workspace",
        "--examples",
        "--all-features",
    ]))?;
    // One command, so that each package is built once, with the features that all need.
    let consumer = ["build", "--package", CONSUMER_NAME, "--bin", CONSUMER_NAME];
    let mut build = in_folder(&consumer);
    let built = Artifacts::build(build.args(programs::arguments()))?;
    for program in built.programs(&folder.join(CONSUMER_NAME)) {
        // It reads its folder.
        execute(Command::new(program).current_dir(&folder))?;
    }
    programs::find(&built, |package| {
        let mut packages = metadata.packages.iter();
        let package = packages.find(|it| it.name == package);
        folder.join(package.map(folder_name).unwrap_or_default())
    })
}

/// Unpacks the packages into a workspace. Returns its folder.
fn unpack(metadata: &Metadata) -> Result<PathBuf> {
    let folder = metadata.target_directory.join("unpacked");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("remove the unpacked packages of the last run")?;
    }
    fs::create_dir_all(folder.join(CONSUMER_NAME).join("src"))?;
    let published: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|it| it.is_published())
        .collect();
    for member in &published {
        let file = format!("package/{}.crate", folder_name(member));
        let mut tar = Command::new("tar");
        // With the time of now: cargo gives all files of a package one time, by which the next
        // run would not see that they changed.
        tar.arg("xmf").arg(metadata.target_directory.join(file));
        execute(tar.arg("-C").arg(&folder))?;
    }
    fs::write(folder.join("Cargo.toml"), workspace(&published)?)?;
    // The versions of this workspace, which are downloaded.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let consumer = folder.join(CONSUMER_NAME);
    write_consumer(&consumer, &published)?;
    Ok(folder)
}

/// Returns the manifest of a workspace of unpacked packages, which depend on each other.
fn workspace(published: &[&Package]) -> Result<String> {
    let mut text = format!("[workspace]\nresolver = \"3\"\nmembers = [\"{CONSUMER_NAME}\"");
    for member in published {
        write!(text, ", \"{}\"", folder_name(member))?;
    }
    text.push_str("]\n\n[patch.crates-io]\n");
    for member in published {
        let (name, folder) = (&member.name, folder_name(member));
        writeln!(text, "{name} = {{ path = \"{folder}\" }}")?;
    }
    Ok(text)
}

/// Returns the name of the folder in a package.
fn folder_name(member: &Package) -> String {
    format!("{}-{}", member.name, member.version)
}

fn write_consumer(folder: &Path, published: &[&Package]) -> Result<()> {
    let mut manifest = format!(
        "[package]\nname = \"{CONSUMER_NAME}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n"
    );
    for Package { name, version, .. } in published {
        writeln!(manifest, "{name} = \"{version}\"")?;
    }
    fs::write(folder.join("Cargo.toml"), manifest)?;
    Ok(fs::write(folder.join("src/main.rs"), CONSUMER)?)
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
