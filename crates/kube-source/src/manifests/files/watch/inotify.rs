//! Detection of changed manifests, by inotify.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::Changes;
use crate::manifests::files::directory::Directory;

/// The symbolic link that the kubelet replaces when a ConfigMap changes.
const DATA_LINK: &str = "..data";

/// Watches a directory, and its parent to detect its replacement.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: OwnedFd,
    /// Watch descriptor of the directory, if it exists.
    inner: Option<i32>,
    outer: Option<i32>,
    name: Option<OsString>,
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    ///
    /// The directory cannot be watched, for example because all watches are in
    /// use.
    pub(crate) fn open(directory: &Directory) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let name = directory.path.file_name().map(OsStr::to_owned);
        let parent = directory.path.parent().filter(|_| name.is_some());
        let outer = match parent {
            // Without access to the parent, a replacement is not detected.
            Some(parent) => watch_parent(&inotify, parent).ok(),
            None => None,
        };
        let mut watch = Self {
            inotify,
            inner: None,
            outer,
            name,
        };
        watch.watch_directory(directory)?;
        Ok(watch)
    }

    /// Watches the current directory at the path.
    fn watch_directory(&mut self, directory: &Directory) -> io::Result<()> {
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let former = self.inner.take();
        let added = inotify::add_watch(&self.inotify, directory.openable(), flags);
        if let Some(former) = former.filter(|&former| added != Ok(former)) {
            // The kernel may have removed the watch together with the
            // directory.
            let _ = inotify::remove_watch(&self.inotify, former);
        }
        self.inner = Some(added?);
        Ok(())
    }

    /// Returns the changes since the last call, at any time.
    ///
    /// # Errors
    ///
    /// The directory was replaced, and the new one cannot be watched.
    pub(crate) fn changes(&mut self, directory: &Directory, _: Duration) -> io::Result<Changes> {
        let mut changes = Changes::default();
        let mut replaced = false;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let (flags, watch) = (event.events(), Some(event.wd()));
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.all = true;
            } else if watch == self.outer && watch != self.inner {
                replaced |= name == self.name.as_deref();
            } else if watch == self.inner {
                replaced |= flags.intersects(ReadFlags::MOVE_SELF);
                changes.record(directory, flags, name);
            }
        }
        if replaced {
            changes.all = true;
            self.watch_directory(directory)?;
        }
        Ok(changes)
    }

    /// Returns no time: a change makes the descriptor readable.
    #[allow(clippy::unused_self, reason = "other systems need a time")]
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        None
    }
}

fn watch_parent(inotify: &OwnedFd, parent: &Path) -> rustix::io::Result<i32> {
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    inotify::add_watch(inotify, parent, WatchFlags::CREATE | WatchFlags::MOVED_TO)
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Changes {
    fn record(&mut self, directory: &Directory, flags: ReadFlags, name: Option<&OsStr>) {
        let Some(name) = name else { return };
        if name == DATA_LINK {
            self.all |= flags.intersects(ReadFlags::MOVED_TO | ReadFlags::CREATE);
        } else if !directory.has(name) {
            // Not a manifest.
        } else if flags.intersects(ReadFlags::CREATE | ReadFlags::ATTRIB) {
            self.maybe_changed.insert(name.to_owned());
        } else {
            self.changed.insert(name.to_owned());
        }
    }
}
