//! The etcd binary that tests run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::metadata;
use crate::{packages, tools};

/// Debian package with etcd. It is unpacked, because installation would start a service.
const PACKAGE: &str = "etcd-server";

/// Prints the path of etcd, for `ETCD=$(cargo xtask etcd) cargo test …`.
pub(crate) fn run() -> Result<()> {
    println!("{}", fetch(&metadata()?.target_directory)?.display());
    Ok(())
}

/// Returns the path of etcd.
///
/// Without etcd in `PATH`, unpacks Debian's package in the target folder, once.
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
        packages::with_fresh_lists(|| packages::unpack(&[PACKAGE], &folder, |_| Ok(())))
            .with_context(|| {
                format!("etcd is not in PATH, and package {PACKAGE} is unavailable")
            })?;
    }
    let program = folder.join("usr/bin/etcd");
    ensure!(program.is_file(), "{PACKAGE} has no {}", program.display());
    Ok(program)
}
