//! Allocation from a store that other processes also change.

use std::collections::BTreeMap;
use std::error;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use attempts::{Attempts, By, Step};

use crate::{
    AllocationError, Counters, Draft, OwnerRef, Pool, Random, RepairReason, Reservations, Snapshot,
    Store, StoreError, Usage,
};

mod asynchronous;

mod attempts;

/// A store with its last known state.
///
/// A change is planned on a snapshot and committed only if the store still has the
/// version of the snapshot. After a conflict the change is planned again, in up to 100
/// attempts.
///
/// Methods block for the requests of a [`Store`]. Methods whose names end with `_async` are
/// for an [`AsyncStore`](crate::AsyncStore).
#[derive(Debug)]
pub struct Registry<P: Pool, S> {
    store: S,
    /// Last known state. `None` if unknown.
    last: Option<Snapshot<P>>,
    counters: BTreeMap<Box<str>, Counters>,
    backoff: Option<Backoff>,
    reservations: Reservations<P::Item>,
}

/// Function to call before a change is planned again.
struct Backoff(Box<dyn FnMut(usize) + Send>);

/// Errors of a change of one or several registries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ranges do not allow the change.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The store failed. Nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store requires a [`Repair`] pass before any change.
    ///
    /// [`Repair`]: crate::Repair
    #[error("{0}: a repair pass is required first")]
    RepairRequired(RepairReason),
    /// Other processes changed the store before every attempt. Nothing has changed.
    #[error("conflict with other processes in each of {attempts} attempts")]
    Contended {
        /// Number of attempts.
        attempts: usize,
    },
    /// It is unknown whether the store applied the change.
    ///
    /// The commit may have succeeded. Do not release the items again: another Service
    /// may own them already. Items that no Service uses are released by the next repair.
    #[error("it is unknown whether the store applied the change")]
    Unknown(#[source] StoreError),
    /// The allocation of an address of a Service failed. Earlier allocations of
    /// [`ServiceAddresses::assign`](crate::ServiceAddresses::assign) were reverted.
    #[error("{owner}: failed to allocate {wanted}")]
    Assign {
        /// The Service.
        owner: Box<OwnerRef>,
        /// The request: a specific address, or any address of a family.
        wanted: Box<str>,
        /// Errors of the reverted allocations, each [`Self::Release`]. Repair releases these
        /// addresses.
        not_released: Vec<Self>,
        /// The cause.
        source: Box<Self>,
    },
    /// The release of an address of a Service failed.
    ///
    /// The address may still be allocated, or may already belong to another Service. Do not
    /// release it again.
    #[error("release {address}")]
    Release {
        /// The address.
        address: IpAddr,
        /// The cause.
        source: Box<Self>,
    },
    /// The Services of a [`Repair`] pass cannot be listed. Nothing has changed.
    ///
    /// [`Repair`]: crate::Repair
    #[error("cannot list the Services")]
    Services(#[source] Box<dyn error::Error + Send + Sync>),
}

impl<P: Pool, S> Registry<P, S> {
    /// Returns the registry of a store. Does not access the store.
    #[must_use]
    pub const fn new(store: S) -> Self {
        Self {
            store,
            last: None,
            counters: BTreeMap::new(),
            backoff: None,
            reservations: Reservations::new(),
        }
    }

    /// Returns the store.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Returns the store, for changes of its settings.
    #[must_use]
    pub const fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Sets a function that waits before a change is planned again after a conflict.
    ///
    /// `backoff` receives the number of attempts so far, and should wait for a random
    /// time that grows with the number.
    /// Processes that change a store continuously need a backoff: otherwise one of the
    /// processes may never succeed.
    #[must_use]
    pub fn with_backoff(mut self, backoff: impl FnMut(usize) + Send + 'static) -> Self {
        self.backoff = Some(Backoff(Box::new(backoff)));
        self
    }

    /// Sets the reserved and the excluded items.
    ///
    /// They are a rule of this registry: other processes need the same ones.
    #[must_use]
    pub fn with_reservations(mut self, reservations: Reservations<P::Item>) -> Self {
        self.reservations = reservations;
        self
    }

    /// Replaces the reserved and the excluded items. Allocated items stay allocated.
    pub fn set_reservations(&mut self, reservations: Reservations<P::Item>) {
        self.reservations = reservations;
    }

    /// Returns the last known state, without access to the store.
    ///
    /// `None` before the first access and after a failed one. [`Self::refresh`] loads the
    /// current state.
    #[must_use]
    pub const fn last_known(&self) -> Option<&Snapshot<P>> {
        self.last.as_ref()
    }

    /// Returns the usage of each range by the last known state, without access to the
    /// store.
    ///
    /// Without a known state the result is empty.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let last = self.last.as_ref();
        last.map(|last| last.pool.usage()).unwrap_or_default()
    }

    /// Returns the counters of each range. Dry runs are not counted.
    #[must_use]
    pub const fn counters(&self) -> &BTreeMap<Box<str>, Counters> {
        &self.counters
    }

    /// Records the duration of an allocation. Has no effect before the store has been
    /// loaded.
    pub fn observe(&mut self, item: P::Item, took: Duration) {
        let ranges = self
            .last
            .iter()
            .flat_map(|last| last.pool.counted_ranges(Some(item)));
        for range in ranges {
            let counters = self.counters.entry(range).or_default();
            counters.durations.observe(took);
        }
    }
}

impl<P: Pool, S: Store<P>> Registry<P, S> {
    /// Loads the current state of the store.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]: the store cannot be read.
    pub fn refresh(&mut self) -> Result<&Snapshot<P>, Error> {
        self.last = None;
        Ok(self.last.insert(self.store.load()?))
    }

    /// Allocates a specific item for a Service (static allocation).
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change`].
    pub fn reserve(&mut self, item: P::Item, owner: &OwnerRef) -> Result<(), Error> {
        self.change(|draft| draft.reserve(item, owner))
    }

    /// Allocates any item for a Service (dynamic allocation).
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change`].
    pub fn allocate(
        &mut self,
        owner: &OwnerRef,
        random: &mut Random<'_>,
    ) -> Result<P::Item, Error> {
        self.change(|draft| draft.allocate(owner, random))
    }

    /// Releases an item of a Service. Returns whether it was allocated.
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change`].
    pub fn release(&mut self, item: P::Item, owner: &OwnerRef) -> Result<bool, Error> {
        self.change(|draft| draft.release(item, owner))
    }

    /// Applies several allocations and releases atomically.
    ///
    /// Calls `plan` again after a conflict with another process.
    ///
    /// # Errors
    ///
    /// - [`Error::Allocation`]: `plan` failed. Nothing has changed.
    /// - [`Error::Contended`]: every attempt failed with a conflict.
    /// - [`Error::RepairRequired`]: the store requires a repair pass.
    /// - [`Error::Store`]: the store failed. Nothing has changed.
    /// - [`Error::Unknown`]: it is unknown whether the change was applied.
    pub fn change<T>(
        &mut self,
        plan: impl FnMut(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        self.change_as(By::Anyone, plan)
    }

    /// Applies several changes, even if the store requires a repair pass.
    pub(crate) fn repair<T>(
        &mut self,
        plan: impl FnMut(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        self.change_as(By::Repair, plan)
    }

    fn change_as<T>(
        &mut self,
        by: By,
        mut plan: impl FnMut(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new(by);
        loop {
            match self.next_step(&mut attempts, &mut plan) {
                Step::Load => {
                    let snapshot = self.store.load()?;
                    self.loaded(&mut attempts, snapshot);
                }
                Step::Commit(planned) => {
                    let committed = planned.commit(&mut self.store);
                    if let Some(value) = self.committed(&mut attempts, planned, committed)? {
                        return Ok(value);
                    }
                    self.wait(&attempts);
                }
                Step::End(result) => return result,
            }
        }
    }

    /// Waits after a conflict, if the registry has a backoff.
    fn wait(&mut self, attempts: &Attempts) {
        if let Some(backoff) = &mut self.backoff {
            (backoff.0)(attempts.number);
            // The snapshot is outdated after the wait.
            self.last = None;
        }
    }

    /// Runs `plan` on the current state of the store without a change.
    ///
    /// # Errors
    ///
    /// [`Error::Allocation`], [`Error::RepairRequired`] and [`Error::Store`], as for
    /// [`Self::change`].
    pub fn dry_run<T>(
        &mut self,
        plan: impl FnOnce(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        self.refresh()?;
        let snapshot = self.last.as_mut().expect("the store was just read");
        if let Some(reason) = &snapshot.repair_reason {
            return Err(Error::RepairRequired(reason.clone()));
        }
        let mut draft = Draft::new(snapshot, &self.reservations);
        let planned = plan(&mut draft);
        draft.undo();
        Ok(planned?)
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
