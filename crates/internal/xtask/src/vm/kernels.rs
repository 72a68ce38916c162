//! Kernels of Debian, downloaded and unpacked without installing them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::process::{display, execute};

/// A kernel on the disk.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its series, such as `6.1`.
    pub(super) series: String,
    /// What `uname -r` says on it.
    pub(super) release: String,
    /// The folder that its package was unpacked in.
    folder: PathBuf,
}

impl Kernel {
    /// Returns one that is on no disk.
    #[cfg(test)]
    pub(super) fn of_series(series: &str) -> Self {
        Self {
            series: series.to_owned(),
            release: format!("{series}.0-cloud"),
            folder: PathBuf::new(),
        }
    }

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

/// Returns the kernels that apt offers, of the oldest series and of the newest,
/// downloaded into a folder if they are not there yet.
pub(super) fn fetch(cache: &Path) -> Result<Vec<Kernel>> {
    packages::updating(|| fetch_offered(cache))
}

fn fetch_offered(cache: &Path) -> Result<Vec<Kernel>> {
    let mut series = newest(&offered()?);
    ensure!(!series.is_empty(), "apt offers no cloud kernel");
    let between = series.len().saturating_sub(1).max(1);
    series.drain(1..between);
    series
        .into_iter()
        .map(|(series, release)| {
            eprintln!("of series {series}: {release}");
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

/// Returns each series among the names of packages, with its newest release.
fn newest(packages: &str) -> Vec<(String, String)> {
    let mut found: BTreeMap<[u32; 2], (Vec<u32>, &str)> = BTreeMap::new();
    for line in packages.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let Some(release) = name.strip_prefix("linux-image-") else {
            continue;
        };
        // A package with no more than the series has no kernel in it.
        let mut version = release.split(|one: char| !one.is_ascii_digit() && one != '.');
        let version = numbers(version.next().unwrap_or_default());
        let [major, minor, _, ..] = version[..] else {
            continue;
        };
        let best = found.entry([major, minor]).or_default();
        let numbers = numbers(release);
        if numbers > best.0 {
            *best = (numbers, release);
        }
    }
    found
        .into_iter()
        .map(|([major, minor], (_, release))| (format!("{major}.{minor}"), release.to_owned()))
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
    packages::unpack(&format!("linux-image-{release}"), folder, |tree| {
        // Nothing in the guest can read modules that are compressed.
        execute(
            Command::new("find")
                .arg(tree.join("lib/modules"))
                .args(["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"]),
        )?;
        execute(Command::new("depmod").arg("-b").arg(tree).arg(release))
    })
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
            ("6.1", "6.1.0-56-cloud-amd64"),
            ("6.12", "6.12.117+deb12-cloud-amd64"),
            ("6.13", "6.13.1-cloud-amd64"),
        ];
        let expected = expected.map(|(series, release)| (series.to_owned(), release.to_owned()));
        assert_eq!(newest(packages), expected);
        assert!(newest("").is_empty());
    }
}
