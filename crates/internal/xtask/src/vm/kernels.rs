//! Downloads and unpacks Debian kernels without installing them.
//!
//! Cloud kernels, because they are small (a download has 30 MB) and have the modules that the
//! tests need. The oldest and the newest series that apt offers are tested, and of each the newest
//! release: with 6.1, 6.12 and 6.13 these are 6.1.0-56 and 6.13.1. What works on both ends is
//! taken to work between them.
//!
//! What must stay true: a folder of the cache is complete or does not exist, because later runs
//! only look whether it is there. `packages::unpack` gives it its name at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::process::{display, execute};

/// An unpacked kernel package.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Release series, such as `6.1`.
    pub(super) series: String,
    /// Release as reported by `uname -r`.
    pub(super) release: String,
    /// Folder of the unpacked package.
    folder: PathBuf,
}

impl Kernel {
    /// Returns the path of the kernel image.
    pub(super) fn image(&self) -> PathBuf {
        self.folder
            .join("boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// Returns the folder of the modules on the host.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }

    /// Returns the folder of the modules in the guest.
    pub(super) fn guest_modules(&self) -> Result<PathBuf> {
        // `/lib` may be a link on the host, which the archive contains.
        Ok(fs::canonicalize("/lib")?
            .join("modules")
            .join(&self.release))
    }
}

/// Returns the newest kernel of the oldest and of the newest series that apt offers.
/// Downloads missing ones into `cache`.
pub(super) fn fetch(cache: &Path) -> Result<Vec<Kernel>> {
    packages::with_fresh_lists(|| fetch_available(cache))
}

fn fetch_available(cache: &Path) -> Result<Vec<Kernel>> {
    let mut series = newest(&available()?);
    ensure!(!series.is_empty(), "apt offers no cloud kernel");
    // All but the first and the last. The maximum is for one series, which is both.
    let between = series.len().saturating_sub(1).max(1);
    series.drain(1..between);
    series
        .into_iter()
        .map(|(series, release)| {
            eprintln!("kernel series {series}: {release}");
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

/// Lists the packages of cloud kernels that apt offers.
fn available() -> Result<String> {
    let mut command = Command::new("apt-cache");
    command.args(["search", "--names-only", "^linux-image-.*-cloud-amd64$"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the newest release of each series in a list of packages.
fn newest(packages: &str) -> Vec<(String, String)> {
    let mut found: BTreeMap<[u32; 2], (Vec<u32>, &str)> = BTreeMap::new();
    for line in packages.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let Some(release) = name.strip_prefix("linux-image-") else {
            continue;
        };
        // A name without a patch level is a meta-package, which contains no kernel.
        let mut version = release.split(|one: char| !one.is_ascii_digit() && one != '.');
        let version = numbers(version.next().unwrap_or_default());
        let [major, minor, _, ..] = version[..] else {
            continue;
        };
        let best = found.entry([major, minor]).or_default();
        // All numbers, because those of Debian's revision differ: 6.1.0-9 and 6.1.0-56.
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

/// Returns the numbers in a name, to compare versions. As text, 9 would be after 56.
fn numbers(name: &str) -> Vec<u32> {
    name.split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

/// Downloads and unpacks a kernel, and prepares its modules.
fn unpack(release: &str, folder: &Path) -> Result<()> {
    packages::unpack(&[format!("linux-image-{release}")], folder, |tree| {
        // The guest has no program that decompresses modules.
        execute(
            Command::new("find")
                .arg(tree.join("lib/modules"))
                .args(["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"]),
        )?;
        // The package has no `modules.dep`: its installation would write it. After the
        // decompression, which changes the names of the files.
        execute(Command::new("depmod").arg("-b").arg(tree).arg(release))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_a_series_are_compared_as_numbers() {
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
