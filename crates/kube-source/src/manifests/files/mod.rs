//! The manifests at a path: read and watched.

mod directory;

mod watch;

use std::collections::BTreeSet;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::directory::Directory;
use self::watch::Watch;
use super::fault::{Fault, Key};
use super::source::{Batch, Content, Source, Update};

/// Delay of removals and errors.
///
/// Editors and `mv` remove a file for a short time, and most programs truncate
/// a file before they write it.
const GRACE: Duration = Duration::from_millis(40);

/// The manifests at a path, and their changes.
#[derive(Debug)]
pub struct Manifests {
    directory: Directory,
    source: Source,
    watch: Option<Watch>,
    /// Files that must be read.
    due: BTreeSet<Arc<Path>>,
    /// Whether notifications arrived since the last read.
    is_notified: bool,
    /// Time until which removals and errors are delayed.
    deadline: Option<Duration>,
}

impl Manifests {
    /// Reads all manifests at a path, which is a directory or a file. In a directory, the
    /// manifests are the files `*.yaml`, `*.yml` and `*.json` that are not hidden.
    ///
    /// # Errors
    ///
    /// The path does not exist, or the directory cannot be read. Errors of
    /// single files are in the update.
    pub fn load(path: &Path) -> io::Result<(Self, Update)> {
        let directory = Directory::new(path)?;
        let mut manifests = Self {
            directory,
            source: Source::default(),
            watch: None,
            due: BTreeSet::new(),
            is_notified: false,
            deadline: None,
        };
        let update = manifests.load_all()?;
        Ok((manifests, update))
    }

    /// Reads all manifests at a path and starts to watch them. On other systems than Linux,
    /// they are read every 5 s.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), or on Linux, inotify cannot watch the directory.
    pub fn watch(path: &Path) -> io::Result<(Self, Update)> {
        let directory = Directory::new(path)?;
        let watch = Watch::open(&directory)?;
        let (mut manifests, update) = Self::load(path)?;
        manifests.watch = Some(watch);
        Ok((manifests, update))
    }

    fn load_all(&mut self) -> io::Result<Update> {
        let files = self.directory.list()?;
        Ok(self.source.update(files.into_iter().map(read).collect()))
    }

    /// Returns whether a manifest contains the object.
    pub fn holds(&self, key: &Key) -> bool {
        self.source.holds(key)
    }

    /// Returns the changes since the last call. Does not wait for changes.
    ///
    /// `now` is a time since any fixed point, and must never decrease. The caller must
    /// poll at the [next deadline](Self::next_deadline), and on Linux when the descriptor is
    /// readable.
    pub fn poll(&mut self, now: Duration) -> Update {
        let unreadable = self.collect(now);
        let waits = self.deadline.is_some_and(|deadline| now < deadline);
        if self.due.is_empty() || (waits && !self.is_notified) {
            return only(unreadable);
        }
        self.is_notified = false;
        let batch: Batch = self.due.iter().cloned().map(read).collect();
        if self.source.may_be_incomplete(&batch) && (waits || self.deadline.is_none()) {
            self.deadline = self.deadline.or_else(|| now.checked_add(GRACE));
            return only(unreadable);
        }
        self.deadline = None;
        self.due.clear();
        let mut update = self.source.update(batch);
        update.errors.splice(0..0, unreadable);
        update
    }

    /// Returns the time of the next poll if no notification arrives before.
    pub fn next_deadline(&self) -> Option<Duration> {
        let watch = self.watch.as_ref();
        let deadlines = [self.deadline, watch.and_then(Watch::next_deadline)];
        deadlines.into_iter().flatten().min()
    }

    /// Collects the files that must be read. Returns an error if the directory cannot be
    /// read.
    fn collect(&mut self, now: Duration) -> Option<Fault> {
        let watch = self.watch.as_mut()?;
        let changes = match watch.changes(&self.directory, now) {
            Ok(changes) => changes,
            Err(error) => return Some(self.unreadable(&error)),
        };
        let known = self.due.len();
        let file = |name: &_| self.directory.file(name);
        self.due
            .extend(changes.changed.iter().map(|name| file(name)));
        let complete = |file: &Arc<Path>| directory::is_link(file) || self.source.has_errors(file);
        self.due.extend(
            changes
                .maybe_changed
                .iter()
                .map(|name| file(name))
                .filter(complete),
        );
        if changes.all {
            match self.directory.list() {
                Ok(files) => self
                    .due
                    .extend(files.into_iter().chain(self.source.files().cloned())),
                Err(error) => return Some(self.unreadable(&error)),
            }
        }
        self.is_notified |= changes.all || !changes.changed.is_empty() || self.due.len() > known;
        None
    }

    /// Returns the error of a directory that cannot be read. Its objects stay.
    fn unreadable(&self, error: &io::Error) -> Fault {
        let directory = self.directory.openable().into();
        Fault::unplaced(error.to_string()).in_file(directory, None, None)
    }

    /// Returns the descriptor that becomes readable after a change. `None` without a
    /// watch.
    #[cfg(target_os = "linux")]
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(Watch::as_fd)
    }
}

/// Returns an update of at most one error.
fn only(error: Option<Fault>) -> Update {
    Update {
        errors: error.into_iter().collect(),
        ..Update::default()
    }
}

fn read(file: Arc<Path>) -> (Arc<Path>, Content) {
    let content = directory::read(&file);
    (file, content)
}

#[cfg(test)]
mod tests;
