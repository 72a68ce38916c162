//! The etcd that tests run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::metadata;
use crate::{packages, tools};

/// The package that brings it; installed, it would start a service.
const PACKAGE: &str = "etcd-server";

/// Prints where etcd is, for `ETCD=$(cargo xtask etcd) cargo test …`.
pub(crate) fn run() -> Result<()> {
    println!("{}", fetch(&metadata()?.target_directory)?.display());
    Ok(())
}

/// Returns the program etcd: the one in PATH, or else that of Debian, which is
/// downloaded into the target folder if it is not there yet.
pub(crate) fn fetch(target: &Path) -> Result<PathBuf> {
    match tools::find("etcd") {
        Some(found) => Ok(found),
        None => download(&target.join("etcd")),
    }
}

fn download(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(PACKAGE);
    if !folder.exists() {
        fs::create_dir_all(cache)?;
        packages::updating(|| packages::unpack(PACKAGE, &folder, |_| Ok(())))
            .context("etcd is not in PATH, and its package cannot be had")?;
    }
    let program = folder.join("usr/bin/etcd");
    ensure!(program.is_file(), "{PACKAGE} has no {}", program.display());
    Ok(program)
}
