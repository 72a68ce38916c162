//! Compiles the published crates with parts of their features, and with the minimum
//! version of Rust. Checks that tokio is a dependency only of those that enable it.

use std::process::{Command, Stdio};
use std::str;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{Metadata, Package, cargo, root};
use crate::process::{display, execute};

/// Feature sets to compile, for each published package with features.
///
/// Other steps build the workspace with all features.
const SETS: &[(&str, &[&str])] = &[
    ("proxy-core", &["", "nftables", "iptables", "ipvs"]),
    ("proxy-engine", &["", "evaluate"]),
    ("vipline-conntrack", &[""]),
    ("vipline-evaluate", &["", "iptables", "ipvs"]),
    ("vipline-kube-source", &["", "manifests"]),
    ("vipline-hcn", &["", "memory"]),
    ("vipline-iptables", &["", "client", "nfacct", "nft"]),
    ("vipline-netlink", &[""]),
    ("vipline-nftables", &[""]),
    ("vipline-reconcile", &[""]),
    ("vipline-service-ip", &[""]),
    ("vipline-service-model", &["", "serde", "test-util"]),
];

/// Packages whose default features are not compiled with the minimum version of Rust,
/// because their dependencies alone take a minute.
/// Clippy finds library functions that are too new in all packages.
const EXCLUDED: [&str; 2] = ["vipline-kube-source", "vipline-service-ip-kube"];

/// Packages that need tokio: the clients of the Kubernetes API.
const WITH_TOKIO: [&str; 2] = ["vipline-kube-source", "vipline-service-ip-kube"];

/// Feature of packages that adds tokio.
const TOKIO: &str = "tokio";

/// Runs the task.
///
/// Prints a warning and uses the current version of Rust if rustup cannot install the
/// minimum version.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    check_tokio(metadata)?;
    let compiler = Compiler::new(metadata)?;
    let published = metadata.packages.iter().filter(|it| it.is_published());
    let mut defaults = compiler.check(metadata);
    for package in published {
        for set in sets(package)? {
            let mut check = compiler.check(metadata);
            check.args(["--package", &package.name]);
            execute(check.args(["--no-default-features", "--features", set]))?;
        }
        if !EXCLUDED.contains(&&*package.name) {
            defaults.args(["--package", &package.name]);
        }
    }
    execute(&mut defaults)
}

/// Returns the feature sets of a package.
fn sets(package: &Package) -> Result<&'static [&'static str]> {
    match SETS.iter().find(|(name, _)| *name == package.name) {
        Some((_, sets)) => Ok(sets),
        None if package.features.is_empty() => Ok(&[]),
        None => bail!("{}: SETS lacks the package", package.name),
    }
}

/// Checks that published packages depend on tokio only with their feature of this name.
fn check_tokio(metadata: &Metadata) -> Result<()> {
    let published = metadata.packages.iter().filter(|it| it.is_published());
    for package in published.filter(|it| !WITH_TOKIO.contains(&&*it.name)) {
        let (name, features) = (&package.name, package.features.keys());
        let others: Vec<&str> = features
            .map(String::as_str)
            .filter(|feature| !["default", TOKIO].contains(feature))
            .collect();
        ensure!(
            !depends_on_tokio(name, &others.join(","))?,
            "{name}: depends on tokio without its feature {TOKIO}"
        );
        // Otherwise the feature has no effect, or this function does not find the dependency.
        ensure!(
            !package.features.contains_key(TOKIO) || depends_on_tokio(name, TOKIO)?,
            "{name}: does not depend on tokio with its feature {TOKIO}"
        );
    }
    Ok(())
}

/// Returns whether tokio is a dependency of a package, also an indirect one, with features.
fn depends_on_tokio(package: &str, features: &str) -> Result<bool> {
    let mut tree = cargo(["tree", "--locked", "--quiet", "--package", package]);
    tree.args(["--no-default-features", "--features", features]);
    tree.args(["--edges", "normal,build", "--prefix", "none"]);
    let output = tree.stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "{}: {}",
        display(&tree),
        output.status
    );
    let packages = str::from_utf8(&output.stdout)?;
    Ok(packages.lines().any(|line| line.starts_with("tokio v")))
}

/// The version of Rust that compiles the packages.
enum Compiler {
    /// The minimum version, which is a toolchain of rustup.
    Minimum(String),
    /// The version that compiled this program.
    Current,
}

impl Compiler {
    /// Installs the minimum version.
    fn new(metadata: &Metadata) -> Result<Self> {
        let version = metadata.packages[0].rust_version.as_deref();
        let version = version.context("rust-version is missing")?;
        let mut rustup = Command::new("rustup");
        rustup.args(["toolchain", "install", version, "--profile", "minimal"]);
        rustup.stderr(Stdio::null()).stdout(Stdio::null());
        Ok(match execute(&mut rustup) {
            Ok(()) => Self::Minimum(version.to_owned()),
            Err(error) => {
                eprintln!("warning: Rust {version} is not used: {error:#}");
                Self::Current
            }
        })
    }

    /// Returns a command that compiles libraries in a target folder of its own. Warnings
    /// are errors.
    fn check(&self, metadata: &Metadata) -> Command {
        let mut command = match self {
            Self::Minimum(version) => {
                let mut rustup = Command::new("rustup");
                rustup.args(["run", version, "cargo"]);
                rustup.current_dir(root()).stdin(Stdio::null());
                rustup
            }
            Self::Current => cargo([""; 0]),
        };
        command.args(["check", "--lib", "--quiet"]);
        command.env("RUSTFLAGS", "--deny=warnings");
        command.env("CARGO_TARGET_DIR", metadata.target_directory.join("msrv"));
        command
    }
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

    #[test]
    fn tokio_is_a_dependency_only_with_the_feature_of_this_name() {
        check_tokio(&metadata().unwrap()).unwrap();
        assert!(depends_on_tokio(WITH_TOKIO[1], "").unwrap());
    }

    #[test]
    fn every_published_package_with_features_has_sets() {
        let metadata = metadata().unwrap();
        let published = metadata.packages.iter().filter(|it| it.is_published());
        let names: Vec<_> = published
            .filter(|package| !sets(package).unwrap().is_empty())
            .map(|package| &*package.name)
            .collect();
        assert!(
            SETS.iter().all(|(name, _)| names.contains(name)),
            "{names:?}"
        );
    }
}
