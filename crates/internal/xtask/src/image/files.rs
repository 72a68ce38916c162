//! Files of an image layer or an archive, encoded as tar.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use tar::{Builder, EntryType, Header};

/// PAX record with the file capabilities of an entry. Container runtimes set the extended
/// attribute when they unpack a layer.
const CAPABILITY_RECORD: &str = "SCHILY.xattr.security.capability";

/// `VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE` of linux/capability.h.
const CAPABILITY_REVISION: u32 = 0x0200_0001;

/// Files by path, without a leading slash. The owner of all files is root.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Folder,
    Link(String),
    File {
        mode: u32,
        content: Vec<u8>,
        /// Bits of the permitted and effective file capabilities.
        capabilities: u32,
    },
}

impl Files {
    /// Adds a file that is not executable, and its parent folders.
    pub(super) fn add(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.put(path, file(0o644, content.into(), 0));
    }

    /// Adds a program with file capabilities, and its parent folders.
    pub(super) fn add_program(
        &mut self,
        path: &str,
        content: impl Into<Vec<u8>>,
        capabilities: u32,
    ) {
        self.put(path, file(0o755, content.into(), capabilities));
    }

    /// Adds a symbolic link, and its parent folders.
    pub(super) fn add_link(&mut self, path: &str, target: &str) {
        self.put(path, Entry::Link(target.to_owned()));
    }

    /// Encodes the files as tar, sorted by path, with `time` as modification time in
    /// seconds since 1970.
    pub(super) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            entry
                .append(&mut builder, path, time)
                .with_context(|| path.clone())?;
        }
        Ok(builder.into_inner()?)
    }

    /// Calls `each` with the path and content of every file.
    pub(super) fn each(&self, mut each: impl FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
        for (path, entry) in &self.entries {
            if let Entry::File { content, .. } = entry {
                each(path, content)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &str, entry: Entry) {
        for parent in Path::new(path).ancestors().skip(1) {
            if let Some(parent) = parent.to_str().filter(|parent| !parent.is_empty()) {
                self.entries
                    .entry(parent.to_owned())
                    .or_insert(Entry::Folder);
            }
        }
        self.entries.insert(path.to_owned(), entry);
    }
}

impl Entry {
    fn append(&self, builder: &mut Builder<Vec<u8>>, path: &str, time: u64) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match self {
            Self::Folder => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                builder.append_data(&mut header, format!("{path}/"), &[][..])?;
            }
            Self::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                builder.append_link(&mut header, path, target)?;
            }
            Self::File {
                mode,
                content,
                capabilities,
            } => {
                if *capabilities != 0 {
                    let value = capability_attribute(*capabilities);
                    builder.append_pax_extensions([(CAPABILITY_RECORD, &value[..])])?;
                }
                header.set_entry_type(EntryType::Regular);
                header.set_mode(*mode);
                header.set_size(u64::try_from(content.len())?);
                builder.append_data(&mut header, path, &content[..])?;
            }
        }
        Ok(())
    }
}

fn file(mode: u32, content: Vec<u8>, capabilities: u32) -> Entry {
    Entry::File {
        mode,
        content,
        capabilities,
    }
}

/// Encodes the extended attribute `security.capability` as `setcap …+ep` does: struct
/// `vfs_cap_data` of linux/capability.h.
fn capability_attribute(capabilities: u32) -> Vec<u8> {
    let words = [CAPABILITY_REVISION, capabilities, 0, 0, 0].map(u32::to_le_bytes);
    words.as_flattened().to_vec()
}

#[cfg(test)]
mod tests {
    use tar::Archive;

    use super::*;

    fn example() -> Files {
        let mut files = Files::default();
        files.add_program("bin/tool", "#!", 1 << 12);
        files.add_link("usr/bin", "../bin");
        files.add("etc/ssl/certs.crt", "text");
        files.add("etc/a", "");
        files
    }

    /// Returns one line for each entry: type, mode, owner, time, size, path and target.
    fn list(bytes: &[u8]) -> Vec<String> {
        let mut archive = Archive::new(bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let target = entry.link_name().unwrap();
            format!(
                "{:?} {:o} {}:{} {} {} {} {}",
                header.entry_type(),
                header.mode().unwrap(),
                header.uid().unwrap(),
                header.gid().unwrap(),
                header.mtime().unwrap(),
                entry.size(),
                entry.path().unwrap().display(),
                target.unwrap_or_default().display(),
            )
        });
        entries.collect()
    }

    #[test]
    fn entries_are_sorted_and_have_fixed_times_and_owners() {
        let expected = [
            "Directory 755 0:0 77 0 bin/ ",
            "Regular 755 0:0 77 2 bin/tool ",
            "Directory 755 0:0 77 0 etc/ ",
            "Regular 644 0:0 77 0 etc/a ",
            "Directory 755 0:0 77 0 etc/ssl/ ",
            "Regular 644 0:0 77 4 etc/ssl/certs.crt ",
            "Directory 755 0:0 77 0 usr/ ",
            "Symlink 777 0:0 77 0 usr/bin ../bin",
        ];
        assert_eq!(list(&example().tar(77).unwrap()), expected);
    }

    #[test]
    fn a_program_has_its_file_capabilities_as_an_extended_attribute() {
        let bytes = example().tar(0).unwrap();
        let mut archive = Archive::new(&bytes[..]);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let Some(records) = entry.pax_extensions().unwrap() else {
                continue;
            };
            for record in records {
                let record = record.unwrap();
                let (key, value) = (record.key().unwrap(), record.value_bytes());
                found.push((path.clone(), key.to_owned(), value.to_owned()));
            }
        }
        // The value that `getfattr` prints after `setcap cap_net_admin+ep`.
        let mut value = [0; 20];
        (value[0], value[3], value[5]) = (1, 2, 0x10);
        let key = "SCHILY.xattr.security.capability";
        assert_eq!(found, [("bin/tool".into(), key.into(), value.to_vec())]);
    }

    #[test]
    fn only_files_have_content() {
        let mut paths = Vec::new();
        let each = |path: &str, _: &[u8]| {
            paths.push(path.to_owned());
            Ok(())
        };
        example().each(each).unwrap();
        assert_eq!(paths, ["bin/tool", "etc/a", "etc/ssl/certs.crt"]);
    }
}
