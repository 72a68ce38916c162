//! Whether the configuration file was changed, as inotify tells.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// The link by which the kubelet swaps all files of a ConfigMap at once.
const SWAPPED: &str = "..data";

/// Why the process ends when the file was changed: it has no other way to read it.
pub const CHANGED: &str = "content of the proxy server's configuration file was updated";

/// Watches a configuration file.
///
/// Like upstream it minds only that the file is written or renamed, not that
/// it is removed; unlike it, it minds that another takes its place.
#[derive(Debug)]
pub struct ConfigWatch {
    inotify: OwnedFd,
    /// The watch of the file itself.
    file: i32,
    /// The watch of the folder that it is in, if that may be read.
    folder: Option<i32>,
    /// Its name there.
    name: OsString,
}

impl ConfigWatch {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// The file is not there, or cannot be watched, such as when all watches
    /// are in use.
    pub fn open(path: &Path) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let written = WatchFlags::MODIFY | WatchFlags::MOVE_SELF;
        let file = inotify::add_watch(&inotify, path, written)?;
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let replaced = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::ONLYDIR;
        Ok(Self {
            file,
            folder: inotify::add_watch(&inotify, folder, replaced).ok(),
            name: path.file_name().unwrap_or_default().to_owned(),
            inotify,
        })
    }

    /// Tells whether the file was changed since it was asked last, or may have been.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return changed,
                Err(Errno::INTR) => continue,
                Err(_) => return true,
            };
            let flags = event.events();
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let watch = event.wd();
            changed |= flags.contains(ReadFlags::QUEUE_OVERFLOW)
                || watch == self.file && flags.intersects(ReadFlags::MODIFY | ReadFlags::MOVE_SELF)
                || Some(watch) == self.folder && (name == Some(&self.name) || swapped(flags, name));
        }
    }
}

/// Tells whether all files of a ConfigMap were swapped.
fn swapped(flags: ReadFlags, name: Option<&OsStr>) -> bool {
    flags.contains(ReadFlags::MOVED_TO) && name == Some(OsStr::new(SWAPPED))
}

impl AsFd for ConfigWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use testkit::leftovers::Directory;

    use super::*;

    /// A folder with a configuration file, watched.
    fn watched() -> (Directory, ConfigWatch) {
        let folder = Directory::new().unwrap();
        fs::write(folder.path().join("config.yaml"), "a").unwrap();
        let mut watch = ConfigWatch::open(&folder.path().join("config.yaml")).unwrap();
        assert!(!watch.changed());
        (folder, watch)
    }

    #[test]
    fn writing_and_renaming_are_changes() {
        let (folder, mut watch) = watched();
        let file = folder.path().join("config.yaml");
        fs::write(&file, "b").unwrap();
        assert!(watch.changed());
        assert!(!watch.changed());
        fs::rename(&file, folder.path().join("away")).unwrap();
        assert!(watch.changed());

        let (folder, mut watch) = watched();
        let other = folder.path().join("other");
        fs::write(&other, "b").unwrap();
        assert!(!watch.changed());
        fs::rename(&other, folder.path().join("config.yaml")).unwrap();
        assert!(watch.changed());
    }

    #[test]
    fn creating_removing_and_changing_the_mode_are_none() {
        let (folder, mut watch) = watched();
        let file = folder.path().join("config.yaml");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(folder.path().join("other.yaml"), "b").unwrap();
        fs::remove_file(&file).unwrap();
        assert!(!watch.changed());
        fs::write(&file, "").unwrap();
        assert!(!watch.changed());
    }

    #[test]
    fn the_swap_of_a_config_map_is_a_change() {
        let folder = Directory::new().unwrap();
        let swap = |version: &str| {
            fs::create_dir(folder.path().join(version)).unwrap();
            fs::write(folder.path().join(version).join("config.conf"), version).unwrap();
            symlink(version, folder.path().join("..data_tmp")).unwrap();
            let data = folder.path().join("..data");
            fs::rename(folder.path().join("..data_tmp"), data).unwrap();
        };
        swap("..1");
        let file = folder.path().join("config.conf");
        symlink("..data/config.conf", &file).unwrap();
        let mut watch = ConfigWatch::open(&file).unwrap();
        assert!(!watch.changed());
        swap("..2");
        assert!(watch.changed());
    }

    #[test]
    fn what_a_link_leads_to_is_watched() {
        let (folder, elsewhere) = (Directory::new().unwrap(), Directory::new().unwrap());
        let (link, file) = (folder.path().join("link"), elsewhere.path().join("file"));
        fs::write(&file, "a").unwrap();
        symlink(&file, &link).unwrap();
        let mut watch = ConfigWatch::open(&link).unwrap();
        fs::rename(&file, elsewhere.path().join("away")).unwrap();
        assert!(watch.changed());
    }

    #[test]
    fn a_file_that_is_not_there_cannot_be_watched() {
        let folder = Directory::new().unwrap();
        let error = ConfigWatch::open(&folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
