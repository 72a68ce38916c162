//! Text files of the workspace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A file of the workspace.
#[derive(Debug)]
pub(super) struct Text {
    /// Path from the root of the workspace.
    pub(super) path: String,
    /// Content of the file.
    pub(super) text: String,
}

/// Reads all text files except hidden files, build artifacts and fuzzing inputs.
pub(super) fn read(root: &Path) -> Result<Vec<Text>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || ["target", "corpus"].contains(&&*name) {
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
