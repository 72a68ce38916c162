//! Detection of changes of the configuration file, by inotify.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// The symbolic link that the kubelet replaces when a ConfigMap changes.
const DATA_LINK: &str = "..data";

/// A watch on a configuration file.
///
/// As in upstream, writing and renaming count, and removal does not. Unlike in
/// upstream, a replacement of the file counts, too.
#[derive(Debug)]
pub struct ConfigWatch {
    inotify: OwnedFd,
    /// Watch descriptor of the file.
    file: i32,
    /// Watch descriptor of the directory, if it is readable.
    directory: Option<i32>,
    /// Name of the file in the directory.
    name: OsString,
}

impl ConfigWatch {
    /// Starts to watch.
    ///
    /// # Errors
    ///
    /// The file does not exist, or inotify has no free watch.
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
            directory: inotify::add_watch(&inotify, folder, replaced).ok(),
            name: path.file_name().unwrap_or_default().to_owned(),
            inotify,
        })
    }

    /// Returns whether the file has changed, or may have changed, since the
    /// last call.
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
                || Some(watch) == self.directory
                    && (name == Some(&self.name) || is_config_map_update(flags, name));
        }
    }
}

/// Returns whether an event is the replacement of a ConfigMap.
fn is_config_map_update(flags: ReadFlags, name: Option<&OsStr>) -> bool {
    flags.contains(ReadFlags::MOVED_TO) && name == Some(OsStr::new(DATA_LINK))
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

    use testkit::scoped::Directory;

    use super::*;

    /// Creates a directory with a watched configuration file.
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
    fn creating_removing_and_changing_the_mode_are_no_changes() {
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
    fn an_update_of_a_config_map_is_a_change() {
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
    fn the_target_of_a_symbolic_link_is_watched() {
        let (folder, elsewhere) = (Directory::new().unwrap(), Directory::new().unwrap());
        let (link, file) = (folder.path().join("link"), elsewhere.path().join("file"));
        fs::write(&file, "a").unwrap();
        symlink(&file, &link).unwrap();
        let mut watch = ConfigWatch::open(&link).unwrap();
        fs::rename(&file, elsewhere.path().join("away")).unwrap();
        assert!(watch.changed());
    }

    #[test]
    fn a_missing_file_cannot_be_watched() {
        let folder = Directory::new().unwrap();
        let error = ConfigWatch::open(&folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
