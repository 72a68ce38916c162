//! Checks conventions of the repository that neither rustc nor clippy checks.
//!
//! Each check reads the files of the workspace as text and returns findings in the
//! format `file:line: sentence`.
//! The checks run as a task and as a test of this crate.

use anyhow::{Result, bail};

use crate::cargo::root;
use text::{Text, read};

pub(crate) use manifest::entries;
pub(crate) use source::{before_tests, has_word};

mod circles;

mod layout;

mod source;

mod manifest;

mod text;

/// Runs the task.
pub(crate) fn run() -> Result<()> {
    let files = read(root())?;
    let findings = check(&files);
    for finding in &findings {
        eprintln!("{finding}");
    }
    eprintln!(
        "{} files; proxy-core has {} lines without tests",
        files.len(),
        source::lines_without_tests(&files, "crates/proxy-core/src/")
    );
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} findings"),
    }
}

fn check(files: &[Text]) -> Vec<String> {
    let mut findings = layout::check(files);
    for file in files {
        if file.path.ends_with(".rs") {
            source::check(file, &mut findings);
        }
        if file.path.ends_with("Cargo.toml") {
            manifest::check(file, &mut findings);
        }
    }
    findings.extend(manifest::check_root(files));
    findings.extend(circles::check(files));
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let files = read(root()).unwrap();
        let findings = check(&files);
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    #[test]
    fn files_of_the_workspace_are_read_without_build_artifacts() {
        let files = read(root()).unwrap();
        let seen = |path: &str| files.iter().any(|file| file.path == path);
        assert!(seen("Cargo.toml") && seen("crates/internal/xtask/src/tidy/mod.rs"));
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }
}
