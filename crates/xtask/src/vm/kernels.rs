//! Kernels of Debian, downloaded and unpacked without installing them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{display, execute};

/// The series that tests run on; apt has to offer one of them at least.
const SERIES: [&str; 2] = ["6.1", "6.12"];

/// A kernel on the disk.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its series, such as `6.1`.
    pub(super) series: &'static str,
    /// What `uname -r` says on it.
    pub(super) release: String,
    /// The folder that its package was unpacked in.
    folder: PathBuf,
}

impl Kernel {
    /// Returns the file that boots.
    pub(super) fn image(&self) -> PathBuf {
        self.folder
            .join("boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// Returns the folder of its modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }

    /// Returns where its modules would be on a machine that runs it.
    pub(super) fn home(&self) -> Result<PathBuf> {
        // The folder may be a link, and an archive is unpacked without.
        Ok(fs::canonicalize("/lib")?
            .join("modules")
            .join(&self.release))
    }
}

/// Returns the newest kernel of each series that apt offers, downloaded into a
/// folder if it is not there yet.
pub(super) fn fetch(cache: &Path) -> Result<Vec<Kernel>> {
    let mut releases = newest(&offered()?);
    if releases.is_empty() {
        execute(Command::new("apt-get").args(["update", "-q"]))?;
        releases = newest(&offered()?);
    }
    ensure!(!releases.is_empty(), "apt offers no kernel of {SERIES:?}");
    releases
        .into_iter()
        .map(|(series, release)| {
            let folder = cache.join(&release);
            if !folder.exists() {
                unpack(&release, &folder).with_context(|| format!("kernel {release}"))?;
            }
            Ok(Kernel {
                series,
                release,
                folder,
            })
        })
        .collect()
}

/// Asks apt for the names of all packages that are kernels.
fn offered() -> Result<String> {
    let mut command = Command::new("apt-cache");
    command.args(["search", "--names-only", "^linux-image-.*-cloud-amd64$"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the newest release of each series among the names of packages.
fn newest(packages: &str) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    for line in packages.lines() {
        let Some(release) = line
            .split(' ')
            .next()
            .and_then(|name| name.strip_prefix("linux-image-"))
        else {
            continue;
        };
        let numbers = numbers(release);
        for series in SERIES {
            // A package with no more than the series has no kernel in it.
            let inside = release.strip_prefix(series);
            if inside.is_some_and(|rest| rest.starts_with('.')) {
                let best = found.entry(series).or_insert_with(|| (Vec::new(), ""));
                if numbers > best.0 {
                    *best = (numbers.clone(), release);
                }
            }
        }
    }
    found
        .into_iter()
        .map(|(series, (_, release))| (series, release.to_owned()))
        .collect()
}

/// Returns the numbers in a name, by which versions are ordered.
fn numbers(name: &str) -> Vec<u32> {
    name.split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

/// Downloads a kernel and unpacks it; the folder is there when all is done.
fn unpack(release: &str, folder: &Path) -> Result<()> {
    let draft = folder.with_file_name("draft");
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    let (package, tree) = (draft.join("package"), draft.join("tree"));
    fs::create_dir_all(&package)?;
    let name = format!("linux-image-{release}");
    execute(
        Command::new("apt-get")
            .args(["download", "-q", "-o", "APT::Sandbox::User=root", &name])
            .current_dir(&package)
            .stdin(Stdio::null()),
    )?;
    let file = fs::read_dir(&package)?
        .next()
        .context("apt-get downloads a file")??;
    execute(Command::new("dpkg").arg("-x").arg(file.path()).arg(&tree))?;
    // Nothing in the guest can read modules that are compressed.
    execute(
        Command::new("find")
            .arg(tree.join("lib/modules"))
            .args(["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"]),
    )?;
    execute(Command::new("depmod").arg("-b").arg(&tree).arg(release))?;
    fs::rename(&tree, folder)?;
    Ok(fs::remove_dir_all(&draft)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_of_each_series_is_found_by_its_numbers() {
        let packages = "\
            linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n\
            linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n\
            linux-image-6.1.0-48-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)\n\
            linux-image-cloud-amd64 - Linux for x86-64 cloud (meta-package)\n\
            linux-image-6.12-cloud-amd64 - Linux 6.12 for x86-64 cloud (meta-package)\n\
            linux-image-6.12.117+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)\n\
            linux-image-6.12.99+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)\n\
            linux-image-6.13.1-cloud-amd64 - Linux 6.13 for x86-64 cloud (signed)\n";
        let expected = [
            ("6.1", "6.1.0-56-cloud-amd64".to_owned()),
            ("6.12", "6.12.117+deb12-cloud-amd64".to_owned()),
        ];
        assert_eq!(newest(packages), BTreeMap::from(expected));
        assert!(newest("").is_empty());
    }
}
