//! Files of a manifest directory.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use crate::manifests::source::Content;

/// A directory of manifests, or a single file in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// The directory.
    pub(crate) path: PathBuf,
    /// The name of the single file, if the path is a file.
    only: Option<OsString>,
}

impl Directory {
    /// Determines whether a path is a directory or a file.
    ///
    /// # Errors
    ///
    /// The path does not exist, or has no file name.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        if fs::metadata(path)?.is_dir() {
            return Ok(Self {
                path: path.to_owned(),
                only: None,
            });
        }
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        Ok(Self {
            path: parent.to_owned(),
            only: Some(name.to_owned()),
        })
    }

    /// Returns the path for system calls: an empty path becomes `.`.
    pub(crate) fn openable(&self) -> &Path {
        if self.path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.path
        }
    }

    /// Returns whether a file with this name is a manifest.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        if let Some(only) = &self.only {
            return only == name;
        }
        let hidden = name.as_encoded_bytes().first() == Some(&b'.');
        let extension = Path::new(name).extension().and_then(OsStr::to_str);
        !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn file(&self, name: &OsStr) -> Arc<Path> {
        self.path.join(name).into()
    }

    /// Lists the manifests, sorted by name.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub(crate) fn list(&self) -> io::Result<Vec<Arc<Path>>> {
        if let Some(only) = &self.only {
            return Ok(vec![self.file(only)]);
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(self.openable())? {
            let name = entry?.file_name();
            if self.has(&name) {
                files.push(self.file(&name));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Reads a file. A missing file, a dangling link and a special file are
/// [`Content::Gone`].
pub(crate) fn read(file: &Path) -> Content {
    let bytes = match fs::metadata(file) {
        Ok(metadata) if !metadata.is_file() => return Content::Gone,
        Ok(_) => fs::read(file),
        Err(error) => Err(error),
    };
    match bytes.map(String::from_utf8) {
        Ok(Ok(text)) => Content::Text(text),
        Ok(Err(error)) => {
            let place = error.utf8_error().valid_up_to();
            Content::Unreadable(format!("not UTF-8 text: invalid byte at offset {place}"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Content::Gone,
        Err(error) => Content::Unreadable(error.to_string()),
    }
}

/// Returns whether a file is a symbolic or hard link, and so complete when it
/// is created.
#[cfg(unix)]
pub(crate) fn is_link(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|metadata| metadata.is_symlink() || metadata.nlink() > 1)
}

/// Returns whether a file is a symbolic link.
#[cfg(not(unix))]
pub(crate) fn is_link(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|metadata| metadata.is_symlink())
}
