//! Downloads and unpacks Debian packages without installing them.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Result, ensure};

use crate::process::{display, execute};

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

/// Returns the packages that a package depends on and that are not installed, and the
/// package itself.
///
/// # Errors
/// If apt does not offer the package.
pub(crate) fn with_missing_dependencies(name: &str) -> Result<Vec<String>> {
    let all = output("apt-cache", &["depends", "--important", "--recurse", name])?;
    let installed = output("dpkg-query", &["-W", "-f", "${Package}\\n"])?;
    let installed: HashSet<&str> = installed.lines().collect();
    // Dependencies are indented, and virtual packages are in angle brackets.
    let names = all.lines().filter(|line| !line.starts_with([' ', '<']));
    let missing = names.filter(|line| *line == name || !installed.contains(line));
    Ok(missing.map(str::to_owned).collect())
}

/// Runs a command and returns its standard output.
fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "{}: {}",
        display(&command),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Downloads packages, unpacks them to one tree, and calls `finish` with the tree.
///
/// Creates `folder` only after all steps have succeeded.
pub(crate) fn unpack(
    names: &[impl AsRef<str>],
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
            .args(["download", "-q", "-o", "APT::Sandbox::User=root"])
            .args(names.iter().map(AsRef::as_ref))
            .current_dir(&package)
            .stdin(Stdio::null())
            .stdout(io::stderr()),
    )?;
    for file in fs::read_dir(&package)? {
        execute(Command::new("dpkg").arg("-x").arg(file?.path()).arg(&tree))?;
    }
    finish(&tree)?;
    fs::rename(&tree, folder)?;
    Ok(fs::remove_dir_all(&draft)?)
}
