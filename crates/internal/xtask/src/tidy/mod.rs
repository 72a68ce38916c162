//! Checks conventions of the repository that neither rustc nor clippy checks.
//!
//! Each check reads the files of the workspace as text and returns findings in the
//! format `file:line: sentence`.
//! The checks run as a task and as a test of this crate.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::root;

mod layout;

mod source;

mod manifest;

mod prose;

/// Runs the task.
///
/// Prints every line that breaks a rule for prose if `list_prose` is set.
pub(crate) fn run(list_prose: bool) -> Result<()> {
    let files = read(root())?;
    let prose = prose::check(&files);
    if list_prose {
        prose.hits.iter().for_each(|hit| println!("{hit}"));
    }
    let mut findings = check(&files);
    findings.extend(prose.findings());
    eprintln!("{prose}");
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

/// A file of the workspace.
#[derive(Debug)]
struct Text {
    /// Path from the root of the workspace.
    path: String,
    /// Content.
    text: String,
}

fn check(files: &[Text]) -> Vec<String> {
    let mut findings = layout::check(files);
    for file in files {
        if file.path.ends_with(".rs") {
            source::check(file, &mut findings);
        }
        if file.path.ends_with("Cargo.toml") && !file.path.starts_with("fuzz/") {
            manifest::check(file, &mut findings);
        }
    }
    findings.extend(manifest::check_root(files));
    findings.sort();
    findings
}

/// Reads all text files except hidden files, build artifacts and fuzzing inputs.
fn read(root: &Path) -> Result<Vec<Text>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || ["target", "corpus", "artifacts"].contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if [".rs", ".toml", ".md", ".yaml"]
                .iter()
                .any(|end| name.ends_with(end))
            {
                let text = fs::read_to_string(&path).with_context(|| relative.clone())?;
                files.push(Text {
                    path: relative,
                    text,
                });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let files = read(root()).unwrap();
        let mut findings = check(&files);
        findings.extend(prose::check(&files).findings());
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
