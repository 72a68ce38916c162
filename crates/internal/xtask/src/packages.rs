//! Packages of Debian, downloaded and unpacked without installing them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result};

use crate::process::execute;

/// Does what needs packages that apt offers; once more if its lists may be the
/// reason that it did not work.
pub(crate) fn updating<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    work().or_else(|error| {
        // There are no lists of packages yet, or they are of another day.
        eprintln!("{error:#}");
        // What a task prints may be read by another program.
        execute(
            Command::new("apt-get")
                .args(["update", "-q"])
                .stdout(io::stderr()),
        )?;
        work()
    })
}

/// Downloads a package and unpacks it; the folder is there when all is done,
/// which `finish` does with what was unpacked.
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
        .context("apt-get downloads a file")??;
    execute(Command::new("dpkg").arg("-x").arg(file.path()).arg(&tree))?;
    finish(&tree)?;
    fs::rename(&tree, folder)?;
    Ok(fs::remove_dir_all(&draft)?)
}
