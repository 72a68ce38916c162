//! Objects from files: read, checked, merged, watched.
//!
//! - [`parse`]: the text of one file becomes objects, or faults with a place;
//! - [`validate`]: what an API server would refuse;
//! - [`source`]: all files together, and the events when some of them change;
//! - [`directory`]: which files there are, and what is in them;
//! - [`watch`]: which of them changed.
//!
//! The last two do IO, the others are pure.

pub mod parse;

pub mod object;

pub mod fault;

pub mod tree;

pub(crate) mod typed;

pub mod validate;

pub mod source;

pub mod directory;

pub mod watch;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use directory::Directory;
use fault::{Fault, Key, ManifestError};
use source::{Batch, Content, Source, Update};
use watch::Watch;

/// How long it takes before objects are given up, or files called broken.
///
/// Editors and `mv` make a file vanish for a moment, and who writes a file
/// empties it first.
const DOUBT: Duration = Duration::from_millis(40);

/// The manifests at a path, and how they change.
#[derive(Debug)]
pub struct Manifests {
    directory: Directory,
    source: Source,
    watch: Option<Watch>,
    /// Files to be read.
    due: BTreeSet<Arc<Path>>,
    /// Whether something was heard since they were read last.
    heard: bool,
    /// Until when it is waited for them to get better.
    deadline: Option<Duration>,
}

impl Manifests {
    /// Reads all manifests at a path, that of a directory or of one file.
    ///
    /// # Errors
    ///
    /// The path cannot be looked up, or the directory not be read.
    /// What is wrong with single files is in the update.
    pub fn load(path: &Path) -> io::Result<(Self, Update)> {
        let directory = Directory::new(path)?;
        let mut manifests = Self {
            directory,
            source: Source::default(),
            watch: None,
            due: BTreeSet::new(),
            heard: false,
            deadline: None,
        };
        let update = manifests.load_all()?;
        Ok((manifests, update))
    }

    /// Does the same and watches the manifests from then on.
    ///
    /// # Errors
    ///
    /// The same, or the directory cannot be watched.
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

    /// Tells whether an object is in some manifest.
    pub fn holds(&self, key: &Key) -> bool {
        self.source.holds(key)
    }

    /// Returns what changed; may be called any time.
    ///
    /// Times are counted from any fixed point.
    pub fn poll(&mut self, now: Duration) -> Update {
        let mut update = self.listen();
        let waits = self.deadline.is_some_and(|deadline| now < deadline);
        if self.due.is_empty() || (waits && !self.heard) {
            return update;
        }
        self.heard = false;
        let batch: Batch = self.due.iter().cloned().map(read).collect();
        if self.source.doubts(&batch) && (waits || self.deadline.is_none()) {
            self.deadline = self.deadline.or_else(|| now.checked_add(DOUBT));
            return update;
        }
        self.deadline = None;
        self.due.clear();
        let Update {
            events,
            errors,
            ignored,
        } = self.source.update(batch);
        update.events.extend(events);
        update.errors.extend(errors);
        update.ignored.extend(ignored);
        update
    }

    /// Returns when to poll although nothing is heard.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Notes which files are due to be read.
    fn listen(&mut self) -> Update {
        let Some(watch) = &mut self.watch else {
            return Update::default();
        };
        let heard = match watch.heard(&self.directory) {
            Ok(heard) => heard,
            Err(error) => return self.lost(&error),
        };
        let known = self.due.len();
        let file = |name: &_| self.directory.file(name);
        self.due.extend(heard.changed.iter().map(|name| file(name)));
        let complete = |file: &Arc<Path>| directory::is_link(file) || self.source.is_broken(file);
        self.due
            .extend(heard.touched.iter().map(|name| file(name)).filter(complete));
        if heard.all {
            match self.directory.list() {
                Ok(files) => self
                    .due
                    .extend(files.into_iter().chain(self.source.files().cloned())),
                Err(error) => return self.lost(&error),
            }
        }
        self.heard |= heard.all || !heard.changed.is_empty() || self.due.len() > known;
        Update::default()
    }

    /// Says that the directory is out of reach; its objects stay.
    fn lost(&self, error: &io::Error) -> Update {
        let error = ManifestError {
            file: self.directory.openable().into(),
            document: None,
            object: None,
            fault: Fault::unplaced(error.to_string()),
        };
        Update {
            errors: vec![error],
            ..Update::default()
        }
    }
}

impl Manifests {
    /// Returns what becomes readable when there is something to poll for.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(Watch::as_fd)
    }
}

fn read(file: Arc<Path>) -> (Arc<Path>, Content) {
    let content = directory::read(&file);
    (file, content)
}

#[cfg(test)]
mod tests;
