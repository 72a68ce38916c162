//! Downloads and unpacks Debian packages without installing them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result};

use crate::process::execute;

/// Runs `work`, which uses apt's package lists.
/// If it fails, updates the lists and runs it once more.
pub(crate) fn with_fresh_lists<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    work().or_else(|error| {
        // The package lists may be absent or outdated.
        eprintln!("{error:#}; updating the package lists");
        // Standard output belongs to the result of the task.
        execute(
            Command::new("apt-get")
                .args(["update", "-q"])
                .stdout(io::stderr()),
        )?;
        work()
    })
}

/// Downloads a package, unpacks it, and calls `finish` with the unpacked tree.
///
/// Creates `folder` only after all steps have succeeded.
pub(crate) fn unpack(
    name: &str,
    folder: &Path,
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let draft = folder.with_file_name("draft");
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    let (package, tree) = (draft.join("package"), draft.join("tree"));
    fs::create_dir_all(&package)?;
    execute(
        Command::new("apt-get")
            .args(["download", "-q", "-o", "APT::Sandbox::User=root", name])
            .current_dir(&package)
            .stdin(Stdio::null())
            .stdout(io::stderr()),
    )?;
    let file = fs::read_dir(&package)?
        .next()
        .context("apt-get downloaded no file")??;
    execute(Command::new("dpkg").arg("-x").arg(file.path()).arg(&tree))?;
    finish(&tree)?;
    fs::rename(&tree, folder)?;
    Ok(fs::remove_dir_all(&draft)?)
}
