//! Allocation from a store that other processes also change.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::counters::{Outcome, Requests};
use crate::{
    AllocationError, Change, CommitError, Counters, Draft, OwnerRef, Pool, Random, RepairReason,
    Reservations, Snapshot, Store, StoreError, Usage,
};

/// Maximum number of attempts of a change after conflicts.
const ATTEMPTS: usize = 100;

/// A store with its last known state.
///
/// A change is planned on a snapshot and committed only if the store still has the
/// version of the snapshot. After a conflict the change is planned again, in up to 100
/// attempts. Methods block for the requests of the store.
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

/// Errors of a change.
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
}

impl<P: Pool, S: Store<P>> Registry<P, S> {
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
        // Whether the snapshot was read during this call.
        let mut is_fresh = false;
        for attempts in 1..=ATTEMPTS {
            let snapshot = match self.last.take() {
                Some(snapshot) => snapshot,
                None => {
                    is_fresh = true;
                    self.store.load()?
                }
            };
            if let Some(reason) = repair_required(by, &snapshot) {
                // Another process may have repaired it since it was read.
                if is_fresh {
                    return Err(Error::RepairRequired(reason));
                }
                continue;
            }
            let planned = Planned::new(snapshot, &self.reservations, &mut plan);
            if planned.requires_commit() {
                match self.commit(planned)? {
                    Commit::Applied(value) => return Ok(value),
                    Commit::Conflict { has_newer } => is_fresh = has_newer,
                }
                self.wait(attempts);
            } else if is_fresh {
                return self.conclude(planned);
            }
            // Otherwise the snapshot may be outdated: decide on a fresh one only.
        }
        Err(Error::Contended { attempts: ATTEMPTS })
    }

    /// Commits a planned change, and keeps the latest snapshot.
    fn commit<T>(&mut self, planned: Planned<P, T>) -> Result<Commit<T>, Error> {
        let Planned {
            mut snapshot,
            change,
            requests,
            result,
        } = planned;
        let committed = self.store.commit(snapshot.version, &change, &snapshot);
        let outcome = match committed {
            Ok(_) => Outcome::Committed,
            Err(_) => Outcome::Failed,
        };
        requests.count(outcome, &mut self.counters);
        match committed {
            Ok(version) => {
                snapshot.version = version;
                snapshot.repair_reason = None;
                self.last = Some(snapshot);
                Ok(Commit::Applied(result?))
            }
            Err(CommitError::Conflict { now }) => {
                // A snapshot of the same version has not been read from the store.
                let is_newer = |now: &Snapshot<P>| now.version != snapshot.version;
                let has_newer = now.as_deref().is_some_and(is_newer);
                self.last = now.map(|now| *now);
                Ok(Commit::Conflict { has_newer })
            }
            Err(CommitError::Failed(error)) => Err(error.into()),
            Err(CommitError::Unknown(error)) => Err(Error::Unknown(error)),
        }
    }

    /// Waits after a conflict, if the registry has a backoff.
    fn wait(&mut self, attempts: usize) {
        if let Some(backoff) = &mut self.backoff {
            (backoff.0)(attempts);
            // The snapshot is outdated after the wait.
            self.last = None;
        }
    }

    /// Ends a change that edits nothing.
    fn conclude<T>(&mut self, planned: Planned<P, T>) -> Result<T, Error> {
        let outcome = match planned.result {
            Ok(_) => Outcome::Committed,
            Err(_) => Outcome::Rejected,
        };
        planned.requests.count(outcome, &mut self.counters);
        self.last = Some(planned.snapshot);
        Ok(planned.result?)
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

/// The caller of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum By {
    Anyone,
    Repair,
}

/// A change that was planned on a snapshot.
struct Planned<P: Pool, T> {
    /// Snapshot with the change, or without it if the plan failed.
    snapshot: Snapshot<P>,
    change: Change<P::Item>,
    requests: Requests,
    /// Result of the plan.
    result: Result<T, AllocationError>,
}

/// Result of a commit that did not fail.
enum Commit<T> {
    /// The store applied the change.
    Applied(T),
    /// Another process changed the store before.
    Conflict {
        /// Whether the store returned a snapshot of another version.
        has_newer: bool,
    },
}

impl<P: Pool, T> Planned<P, T> {
    /// Plans a change on a snapshot.
    fn new(
        mut snapshot: Snapshot<P>,
        reservations: &Reservations<P::Item>,
        plan: impl FnOnce(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Self {
        let mut draft = Draft::new(&mut snapshot, reservations);
        let result = plan(&mut draft);
        if result.is_err() {
            draft.undo();
        }
        let (change, requests) = draft.into_change();
        Self {
            snapshot,
            change,
            requests,
            result,
        }
    }

    /// Returns whether the store has to change: also after a repair without edits.
    fn requires_commit(&self) -> bool {
        let is_unchanged = self.change.is_empty() && self.snapshot.repair_reason.is_none();
        self.result.is_ok() && !is_unchanged
    }
}

/// Returns the reason why the caller must not change the store before a repair pass.
fn repair_required<P: Pool>(by: By, snapshot: &Snapshot<P>) -> Option<RepairReason> {
    snapshot.repair_reason.clone().filter(|_| by != By::Repair)
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
