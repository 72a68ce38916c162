//! Where it is kept what is allocated.

use std::collections::BTreeMap;
use std::error;

use thiserror::Error;

use crate::{Pool, ServiceRef, SnapshotError};

/// Keeps what is allocated, for one process or for many.
///
/// A change is made all at once, and only if nobody else has made one since
/// the snapshot that it was planned with.
pub trait Store<P: Pool> {
    /// Reads what is allocated.
    ///
    /// # Errors
    ///
    /// A [`StoreError`]; nothing is made up for what cannot be read.
    fn load(&mut self) -> Result<Snapshot<P>, StoreError>;

    /// Makes a change that leads from a version to what `after` has.
    ///
    /// # Errors
    ///
    /// A [`CommitError`], that tells whether the change may have been made.
    fn commit(
        &mut self,
        base: Version,
        change: &Change<P::Item>,
        after: &Snapshot<P>,
    ) -> Result<Version, CommitError<P>>;
}

/// What is allocated at a time.
#[derive(Clone, Debug)]
pub struct Snapshot<P: Pool> {
    /// What is taken.
    pub pool: P,
    /// Who has what, as far as the store knows.
    pub owners: BTreeMap<P::Item, ServiceRef>,
    /// The time, in the store's own count.
    pub version: Version,
    /// Why nothing is allocated or released before a repair pass, if that is so.
    pub repair_reason: Option<RepairReason>,
}

/// Reason why a store gives and frees nothing before a [`Repair`] pass.
///
/// The items of existing Services are unknown until then: an allocation might
/// take such an item.
///
/// [`Repair`]: crate::Repair
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RepairReason {
    /// The object does not exist, or has no range yet.
    #[error("{object} is not initialized")]
    Uninitialized {
        /// A key, or an object's name.
        object: Box<str>,
    },
    /// The object is of another range: that of the store has changed.
    #[error("{object} is of the range {found}, not of {expected}")]
    OtherRange {
        /// A key, or an object's name.
        object: Box<str>,
        /// The range of the object.
        found: Box<str>,
        /// The range of the store.
        expected: Box<str>,
    },
}

impl<P: Pool> Snapshot<P> {
    /// Returns what a pool has, of which it is not known who has it.
    #[must_use]
    pub const fn new(pool: P, version: Version) -> Self {
        Self {
            pool,
            owners: BTreeMap::new(),
            version,
            repair_reason: None,
        }
    }
}

/// A version of what a store keeps; each change makes a later one.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u64);

/// Items that are freed and taken together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change<I> {
    /// What is freed, and who had it if that is known: done first.
    pub freed: BTreeMap<I, Option<ServiceRef>>,
    /// What is taken, and by whom.
    pub taken: BTreeMap<I, ServiceRef>,
}

impl<I: Ord> Change<I> {
    /// Tells whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.freed.is_empty()
    }

    pub(crate) fn take(&mut self, item: I, owner: ServiceRef) {
        self.taken.insert(item, owner);
    }

    /// What this change itself has taken was nobody's before.
    pub(crate) fn free(&mut self, item: I, former: Option<ServiceRef>) {
        if self.taken.remove(&item).is_none() {
            self.freed.insert(item, former);
        }
    }
}

impl<I> Default for Change<I> {
    fn default() -> Self {
        Self {
            freed: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }
}

/// Why a store could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It has something that is not what is allocated from the range.
    #[error("{object}")]
    Snapshot {
        /// What was read: a key, or an object's name.
        object: Box<str>,
        /// What is wrong with it.
        source: SnapshotError,
    },
    /// It did not answer, or not what it should.
    #[error("{operation} {object}")]
    Unavailable {
        /// What was being done.
        operation: &'static str,
        /// What was read or written: a key, or an object's name.
        object: Box<str>,
        /// Why.
        source: Box<dyn error::Error + Send + Sync>,
    },
}

/// Why a change was not made, or may have been.
#[derive(Debug)]
pub enum CommitError<P: Pool> {
    /// Somebody else has made a change before: not made.
    Conflict {
        /// What is allocated now, if the store told.
        ///
        /// It has the version of the base if the store has only told what kept
        /// the change from being made, and nothing else has been read.
        now: Option<Box<Snapshot<P>>>,
    },
    /// Not made.
    Failed(StoreError),
    /// The store was asked, and did not say whether it made the change.
    Unknown(StoreError),
}
