//! The trait of stores for the allocation state.

use std::collections::BTreeMap;
use std::error;
use std::fmt;

use crate::{InvalidValue, OwnerRef, Pool};

/// A store for the allocation state, for one process or several.
///
/// A change is applied atomically, and only if the store still has the version of the
/// snapshot that the change was planned on.
pub trait Store<P: Pool> {
    /// Loads the allocation state.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`]: the store cannot be read.
    /// - [`StoreError::Snapshot`]: the stored value is not valid for the range.
    fn load(&mut self) -> Result<Snapshot<P>, StoreError>;

    /// Applies a change to the version `base`. `after` is the resulting state.
    ///
    /// Returns the new version.
    ///
    /// # Errors
    ///
    /// - [`CommitError::Conflict`]: the store has another version. Nothing has changed.
    /// - [`CommitError::Failed`]: the store failed. Nothing has changed.
    /// - [`CommitError::Unknown`]: it is unknown whether the change was applied.
    fn commit(
        &mut self,
        base: Version,
        change: &Change<P::Item>,
        after: &Snapshot<P>,
    ) -> Result<Version, CommitError<P>>;
}

/// A [`Store`] for async code.
///
/// The methods have the contract of [`Store`].
pub trait AsyncStore<P: Pool> {
    /// Loads the allocation state.
    ///
    /// # Errors
    ///
    /// As for [`Store::load`].
    fn load(&mut self) -> impl Future<Output = Result<Snapshot<P>, StoreError>> + Send;

    /// Applies a change to the version `base`. `after` is the resulting state.
    ///
    /// Returns the new version.
    ///
    /// # Errors
    ///
    /// As for [`Store::commit`].
    fn commit(
        &mut self,
        base: Version,
        change: &Change<P::Item>,
        after: &Snapshot<P>,
    ) -> impl Future<Output = Result<Version, CommitError<P>>> + Send;

    /// Waits before a change is planned again after a conflict. Default: does not wait.
    ///
    /// `attempts` is the number of attempts so far.
    fn wait(&mut self, attempts: usize) -> impl Future<Output = ()> + Send {
        let _ = attempts;
        async {}
    }
}

/// The allocation state of one version.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot<P: Pool> {
    /// Allocator.
    pub pool: P,
    /// Owners of items, as far as the store records them.
    pub owners: BTreeMap<P::Item, OwnerRef>,
    /// Version of the store.
    pub version: Version,
    /// Reason why the store requires a repair pass before any change, if it does.
    pub repair_reason: Option<RepairReason>,
}

/// Reason why a store requires a [`Repair`] pass before any change.
///
/// Until then the items of existing Services are unknown, and could be allocated a
/// second time.
///
/// [`Repair`]: crate::Repair
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RepairReason {
    /// The object does not exist or has no range.
    Uninitialized {
        /// Key or name of the object.
        object: Box<str>,
    },
    /// The object has another range than the store.
    OtherRange {
        /// Key or name of the object.
        object: Box<str>,
        /// The range of the object.
        found: Box<str>,
        /// The range of the store.
        expected: Box<str>,
    },
}

impl fmt::Display for RepairReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uninitialized { object } => write!(f, "{object} is not initialized"),
            Self::OtherRange {
                object,
                found,
                expected,
            } => write!(f, "{object} has the range {found}, not {expected}"),
        }
    }
}

impl<P: Pool> Snapshot<P> {
    /// Returns a snapshot without owners.
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

/// A version of a store. Every change increases it.
///
/// Exhaustive: a version is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u64);

/// Items to release and to allocate atomically.
///
/// Exhaustive: a store must apply every part of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change<I> {
    /// Items to release, with their former owners if known. Applied first.
    pub freed: BTreeMap<I, Option<OwnerRef>>,
    /// Items to allocate, with their owners.
    pub taken: BTreeMap<I, OwnerRef>,
}

impl<I: Ord> Change<I> {
    /// Returns whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.freed.is_empty()
    }

    pub(crate) fn take(&mut self, item: I, owner: OwnerRef) {
        self.taken.insert(item, owner);
    }

    /// Releases an item. An item that this change allocates was free before.
    pub(crate) fn free(&mut self, item: I, former: Option<OwnerRef>) {
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

/// Errors of a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The stored value is not valid for the range.
    Snapshot {
        /// Key or name of the object.
        object: Box<str>,
        /// The problem.
        source: Box<InvalidValue>,
    },
    /// The store did not respond, or sent an error or an invalid response.
    Unavailable {
        /// The operation.
        operation: &'static str,
        /// Key or name of the object.
        object: Box<str>,
        /// The cause.
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// Any other error, which names the operation and the object itself.
    Other(Box<dyn error::Error + Send + Sync>),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot { object, .. } => f.write_str(object),
            Self::Unavailable {
                operation, object, ..
            } => write!(f, "{operation} {object}"),
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl error::Error for StoreError {
    /// Returns the [`InvalidValue`] itself. thiserror would return its box, in which
    /// `downcast_ref` does not find it.
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Snapshot { source, .. } => Some(&**source),
            Self::Unavailable { source, .. } => Some(&**source),
            Self::Other(error) => error.source(),
        }
    }
}

/// Errors of a commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitError<P: Pool> {
    /// Another process changed the store before. The change was not applied.
    Conflict {
        /// The current state, if the store returned it.
        ///
        /// The snapshot has the version of the base if it adds only the conflicting item
        /// and has not been read from the store.
        now: Option<Box<Snapshot<P>>>,
    },
    /// The change was not applied.
    Failed(StoreError),
    /// It is unknown whether the change was applied.
    Unknown(StoreError),
}
