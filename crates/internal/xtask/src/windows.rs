//! Checks the types of crates for Windows.
//!
//! The compilers and the sources of the standard library are those of Debian. They are
//! unpacked in the target folder, and the standard library is built from its sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, metadata};
use crate::packages;
use crate::process::{display, execute};

/// Target of the checks.
const TARGET: &str = "x86_64-pc-windows-gnu";

/// Checks: packages, targets and features.
const CHECKS: &[&[&str]] = &[
    &[
        "--package=vipline-hcn",
        "--lib",
        "--examples",
        "--features=memory",
    ],
    &[
        "--package=proxy-core",
        "--lib",
        "--examples",
        "--no-default-features",
        "--features=kernelspace",
    ],
    &[
        "--package=vipline-kube-source",
        "--lib",
        "--features=k8s-openapi/v1_37",
    ],
    &["--package=kube-proxy", "--lib", "--bins"],
    // Without sockets.
    &[
        "--package=vipline-ipset",
        "--package=vipline-iptables",
        "--package=vipline-ipvs",
        "--package=vipline-nftables",
        "--package=vipline-service-dns",
        "--package=vipline-service-ip",
        "--lib",
        "--no-default-features",
        "--features=vipline-iptables/nft",
    ],
];

/// Debian packages: the compiler, its libraries, the sources of the standard library, and
/// the C compiler of crates that contain C, with the tool that creates import libraries.
const COMPILER: &str = "rustc-web";
const LIBRARIES: &str = "libstd-rust-web-dev";
const SOURCES: &str = "rust-web-src";
const C_COMPILER: &str = "gcc-mingw-w64-x86-64-win32";

/// Folder of shared libraries in a package.
const SHARED: &str = "usr/lib/x86_64-linux-gnu";

/// Runs all checks, or prints why they cannot run.
pub(crate) fn run() -> Result<()> {
    let target = metadata()?.target_directory;
    match fetch(&target) {
        Ok(tree) => CHECKS
            .iter()
            .try_for_each(|arguments| execute(&mut check(&target, &tree, arguments))),
        Err(error) => {
            println!("no crate was checked for Windows: {error:#}");
            Ok(())
        }
    }
}

/// Returns the folder of the compilers, which are downloaded once.
///
/// # Errors
/// If apt does not offer the packages.
pub(crate) fn fetch(target: &Path) -> Result<PathBuf> {
    let folder = target.join("windows").join("compilers");
    if !folder.exists() {
        fs::create_dir_all(target.join("windows"))?;
        packages::with_fresh_lists(|| download(&folder))
            .with_context(|| format!("package {COMPILER} is unavailable"))?;
    }
    Ok(folder)
}

fn download(folder: &Path) -> Result<()> {
    let mut names = packages::with_missing_dependencies(LIBRARIES)?;
    names.extend(packages::with_missing_dependencies(C_COMPILER)?);
    names.extend([COMPILER, SOURCES].map(str::to_owned));
    packages::unpack(&names, folder, check_version)
}

/// Checks that the compiler runs, and supports the crates.
fn check_version(tree: &Path) -> Result<()> {
    let mut rustc = Command::new(tree.join("usr/bin/rustc"));
    rustc
        .arg("--version")
        .env("LD_LIBRARY_PATH", tree.join(SHARED));
    let output = rustc.output().with_context(|| display(&rustc))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {error}", display(&rustc));
    let version = String::from_utf8(output.stdout)?;
    let packages = metadata()?.packages;
    let needed = packages.iter().find_map(|it| it.rust_version.as_deref());
    let needed = needed.context("rust-version is missing")?;
    let is_supported = minor(&version) >= minor(needed);
    ensure!(is_supported, "{} is older than {needed}", version.trim());
    Ok(())
}

/// Returns the minor version in text such as `rustc 1.96.0`.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// Returns the command of a check.
fn check(target: &Path, tree: &Path, arguments: &[&str]) -> Command {
    let programs = tree.join("usr/bin");
    let tool = |name: &str| programs.join(format!("x86_64-w64-mingw32-{name}"));
    let dlltool = tool("dlltool");
    let mut command = cargo(["check", "--target", TARGET, "-Zbuild-std=std,panic_abort"]);
    command
        .args(arguments)
        // Unlike `--deny=warnings`, it does not apply to the standard library.
        .arg("-Zwarnings")
        .env("CARGO_BUILD_WARNINGS", "deny")
        .env("RUSTC", programs.join("rustc"))
        .env("CC_x86_64_pc_windows_gnu", tool("gcc-win32"))
        .env("AR_x86_64_pc_windows_gnu", tool("ar"))
        // Permits `-Z`.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("LD_LIBRARY_PATH", tree.join(SHARED))
        .env("RUSTFLAGS", format!("-Cdlltool={}", dlltool.display()))
        // The other steps use another compiler, and would build everything again.
        .env("CARGO_TARGET_DIR", target.join("windows").join("out"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_versions_are_compared_as_numbers() {
        assert_eq!(minor("rustc 1.96.0 (ac68faa20 2026-08-17)"), Some(96));
        assert_eq!(minor("1.89"), Some(89));
        assert!(minor("rustc 1.100.0") > minor("1.89"));
        assert_eq!(minor("rustc"), None);
    }
}
