//! Which manifests changed, as inotify tells.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::directory::Directory;

/// The link by which the kubelet swaps all files of a ConfigMap at once.
const SWAPPED: &str = "..data";

/// Watches a directory, and the one above it in case it is replaced.
#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
    /// The directory's watch, unless there is no directory at present.
    inner: Option<i32>,
    outer: Option<i32>,
    name: Option<OsString>,
}

/// The names of files about which something was heard.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// They were written, moved or removed.
    pub changed: BTreeSet<OsString>,
    /// They were created, with nothing in them yet, or had their mode changed.
    pub touched: BTreeSet<OsString>,
    /// Anything may have happened.
    pub all: bool,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// The directory cannot be watched, such as when all watches are in use.
    pub fn open(directory: &Directory) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let name = directory.path.file_name().map(OsStr::to_owned);
        let above = directory.path.parent().filter(|_| name.is_some());
        let outer = match above {
            // Who may not look above does not see the directory replaced.
            Some(above) => watch_above(&inotify, above).ok(),
            None => None,
        };
        let mut watch = Self {
            inotify,
            inner: None,
            outer,
            name,
        };
        watch.enter(directory)?;
        Ok(watch)
    }

    /// Watches the directory that is there now.
    fn enter(&mut self, directory: &Directory) -> io::Result<()> {
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
            // It went by itself with a directory that was removed.
            let _ = inotify::remove_watch(&self.inotify, former);
        }
        self.inner = Some(added?);
        Ok(())
    }

    /// Returns what was heard since it was asked last.
    ///
    /// # Errors
    ///
    /// The directory was replaced by something that cannot be watched.
    pub fn heard(&mut self, directory: &Directory) -> io::Result<Heard> {
        let mut heard = Heard::default();
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
                heard.all = true;
            } else if watch == self.outer && watch != self.inner {
                replaced |= name == self.name.as_deref();
            } else if watch == self.inner {
                replaced |= flags.intersects(ReadFlags::MOVE_SELF);
                heard.note(directory, flags, name);
            }
        }
        if replaced {
            heard.all = true;
            self.enter(directory)?;
        }
        Ok(heard)
    }
}

fn watch_above(inotify: &OwnedFd, above: &Path) -> rustix::io::Result<i32> {
    let above = if above.as_os_str().is_empty() {
        Path::new(".")
    } else {
        above
    };
    inotify::add_watch(inotify, above, WatchFlags::CREATE | WatchFlags::MOVED_TO)
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Heard {
    fn note(&mut self, directory: &Directory, flags: ReadFlags, name: Option<&OsStr>) {
        let Some(name) = name else { return };
        if name == SWAPPED {
            self.all |= flags.intersects(ReadFlags::MOVED_TO | ReadFlags::CREATE);
        } else if !directory.has(name) {
            // Nothing of ours.
        } else if flags.intersects(ReadFlags::CREATE | ReadFlags::ATTRIB) {
            self.touched.insert(name.to_owned());
        } else {
            self.changed.insert(name.to_owned());
        }
    }
}
