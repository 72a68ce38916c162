//! Builds the initramfs of a guest.
//!
//! The kernel unpacks an archive of format `newc` of `cpio` to memory and runs its `/init`. The
//! format is a header of 110 bytes in hexadecimal digits, a name and the content for each file.
//! So it is written here, and no program for it has to be installed.
//!
//! Files keep the paths that they have on the host, with all symbolic links on the way. For
//! example `/sbin/modprobe` on Debian 12: `/sbin` is a link to `usr/sbin`, `/usr/sbin/modprobe` one
//! to `/bin/kmod`, and `/bin` one to `usr/bin`. So three links and `/usr/bin/kmod` are in the
//! archive, and a test that runs the path of the host finds the same file in the guest.
//!
//! What must stay true: a folder precedes what it contains, because the kernel does not create
//! missing ones. The order of paths in the map does that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};

// Modes of `stat`: type of the file and permissions.

const FOLDER: u32 = 0o040_755;
/// All files are executable. Only some of them must be, and it harms none.
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Files of a guest by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    mode: u32,
    /// Of a link, its target. Of a folder, nothing.
    content: Vec<u8>,
}

impl Archive {
    /// Adds a folder and its parents.
    pub(super) fn folder(&mut self, path: impl AsRef<Path>) {
        for folder in path.as_ref().ancestors() {
            // The root exists, and as a relative path it would be a file without a name.
            if folder != Path::new("/") {
                self.put(folder, FOLDER, Vec::new());
            }
        }
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>) {
        self.parent(path.as_ref());
        self.put(path.as_ref(), PROGRAM, content.into());
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.parent(path.as_ref());
        let target = target.as_ref().to_string_lossy().into_owned();
        self.put(path.as_ref(), LINK, target.into_bytes());
    }

    /// Adds a file of the host, including all symbolic links on its path.
    pub(super) fn copy(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.copy_links(path.as_ref())
            .with_context(|| path.as_ref().display().to_string())
    }

    /// Adds all files of a folder of the host, recursively.
    pub(super) fn copy_all(&mut self, folder: &Path) -> Result<()> {
        for path in files(folder).with_context(|| folder.display().to_string())? {
            self.copy(path)?;
        }
        Ok(())
    }

    /// Encodes the archive in the `newc` format of `cpio`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // The number of an inode: each entry is a file of its own.
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy();
            put_entry(&mut bytes, number, &name, entry);
        }
        // The format marks its end by this name.
        let end = Entry {
            mode: 0,
            content: Vec::new(),
        };
        put_entry(&mut bytes, 0, "TRAILER!!!", &end);
        bytes
    }

    fn copy_links(&mut self, path: &Path) -> io::Result<()> {
        let mut at = PathBuf::new();
        let parts: Vec<Component<'_>> = path.components().collect();
        for (index, part) in parts.iter().enumerate() {
            match part {
                Component::ParentDir => {
                    at.pop();
                }
                // The same folder, so `at` stays.
                Component::CurDir => {}
                _ => at.push(part),
            }
            // The link itself is a file of the archive. Then the search begins anew at its target,
            // which may have links on its way as well.
            if at.is_symlink() {
                let target = fs::read_link(&at)?;
                self.link(&at, &target);
                // A relative target counts from the folder of the link, and an absolute one
                // replaces all of it when it is joined.
                at.pop();
                let rest: PathBuf = parts[index + 1..].iter().collect();
                return self.copy_links(&at.join(target).join(rest));
            }
        }
        if fs::metadata(&at)?.is_dir() {
            self.folder(&at);
        } else {
            self.file(&at, fs::read(&at)?);
        }
        Ok(())
    }

    fn parent(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
    }

    /// Adds an entry unless the path has one, so that a folder does not replace a link: as the
    /// parent of a file, `/sbin` is a folder, but it was copied as a link before.
    fn put(&mut self, path: &Path, mode: u32, content: Vec<u8>) {
        self.entries
            .entry(path.to_owned())
            .or_insert(Entry { mode, content });
    }
}

/// Returns all files of a folder, recursively.
fn files(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Writes a header of 13 numbers, the name and the content.
/// Pads name and content to four bytes, counted from the start of the archive, as the kernel
/// reads it.
fn put_entry(bytes: &mut Vec<u8>, number: u32, name: &str, entry: &Entry) {
    let length = |bytes: usize| u32::try_from(bytes).expect("no file has 4 GiB");
    let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(4), 0);
    let fields = [
        number,
        entry.mode,
        0, // user
        0, // group
        1, // links
        0, // time
        length(entry.content.len()),
        0, // major and minor number of the file system's device
        0,
        0, // major and minor number of a device file
        0,
        length(name.len() + 1), // with the zero byte
        0,                      // checksum
    ];
    bytes.extend(b"070701");
    for field in fields {
        bytes.extend(format!("{field:08x}").bytes());
    }
    bytes.extend(name.bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend(&entry.content);
    pad(bytes);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use testkit::scoped::Directory;

    use super::*;

    fn paths(archive: &Archive) -> Vec<String> {
        let shown = |path: &PathBuf| path.display().to_string();
        archive.entries.keys().map(shown).collect()
    }

    #[test]
    fn an_entry_is_encoded_as_header_name_and_content() {
        let mut archive = Archive::default();
        archive.file("/init", "hello");
        let expected = "070701\
            00000001000081ed00000000000000000000000100000000000000050000000000000000\
            00000000000000000000000500000000init\0\0hello\0\0\0\
            07070100000000000000000000000000000000000000010000000000000000\
            000000000000000000000000000000000000000b00000000TRAILER!!!\0\0\0\0";
        assert_eq!(String::from_utf8(archive.encode()).unwrap(), expected);
    }

    #[test]
    fn folders_precede_their_files() {
        let mut archive = Archive::default();
        archive.file("/usr/bin/nft", "");
        archive.link("/bin", "usr/bin");
        archive.folder("/proc");
        archive.folder("/bin");
        let expected = ["/bin", "/proc", "/usr", "/usr/bin", "/usr/bin/nft"];
        assert_eq!(paths(&archive), expected);
        assert_eq!(archive.entries[Path::new("/bin")].mode, LINK);
    }

    #[test]
    fn links_are_copied_with_their_targets() {
        let directory = Directory::new().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/program-1.2"), "text").unwrap();
        symlink("program-1.2", at("real/program")).unwrap();
        symlink("./real", at("short")).unwrap();
        let mut archive = Archive::default();
        archive.copy(at("short/program")).unwrap();
        let of = |name: &str| &archive.entries[&at(name)];
        assert_eq!(of("short").content, b"./real");
        assert_eq!(of("real").mode, FOLDER);
        assert_eq!(of("real/program").content, b"program-1.2");
        assert_eq!(of("real/program-1.2").content, b"text");
        assert!(archive.copy(at("absent")).is_err());

        let mut all = Archive::default();
        all.copy_all(&at("real")).unwrap();
        assert!(all.entries.contains_key(&at("real/program-1.2")));
    }
}
