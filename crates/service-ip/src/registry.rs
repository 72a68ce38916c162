//! Allocation from a store that other processes also change.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::counters::{Outcome, Requests};
use crate::{
    AllocationError, Change, CommitError, Counters, Draft, Pool, Random, RepairReason, ServiceRef,
    Snapshot, Store, StoreError,
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
    pub fn reserve(&mut self, item: P::Item, owner: &ServiceRef) -> Result<(), Error> {
        self.change(|draft| draft.reserve(item, owner))
    }

    /// Allocates any item for a Service (dynamic allocation).
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change`].
    pub fn allocate(
        &mut self,
        owner: &ServiceRef,
        random: &mut Random<'_>,
    ) -> Result<P::Item, Error> {
        self.change(|draft| draft.allocate(owner, random))
    }

    /// Releases an item of a Service. Returns whether it was allocated.
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change`].
    pub fn release(&mut self, item: P::Item, owner: &ServiceRef) -> Result<bool, Error> {
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
            let planned = Planned::new(snapshot, &mut plan);
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
        let mut draft = Draft::new(snapshot);
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
        plan: impl FnOnce(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Self {
        let mut draft = Draft::new(&mut snapshot);
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
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{AddressRange, Allocator, Memory, Version};

    type Addresses = Allocator<AddressRange>;

    /// A store that another process changes before each of the first commits.
    struct Busy {
        store: Memory<Addresses>,
        conflicts: usize,
        loads: Arc<Mutex<usize>>,
    }

    impl Store<Addresses> for Busy {
        fn load(&mut self) -> Result<Snapshot<Addresses>, StoreError> {
            *self.loads.lock().unwrap() += 1;
            self.store.load()
        }

        fn commit(
            &mut self,
            base: Version,
            change: &Change<<Addresses as Pool>::Item>,
            after: &Snapshot<Addresses>,
        ) -> Result<Version, CommitError<Addresses>> {
            if self.conflicts > 0 {
                self.conflicts -= 1;
                let mut other = Registry::new(self.store.clone());
                let allocated = other.allocate(&ServiceRef::new("other", "other"), &mut || 0);
                allocated.expect("the range is not full");
            }
            self.store.commit(base, change, after)
        }
    }

    fn busy(network: &str, conflicts: usize) -> (Registry<Addresses, Busy>, Arc<Mutex<usize>>) {
        let loads = Arc::new(Mutex::new(0));
        let store = Busy {
            store: Memory::new(Allocator::new(network.parse().unwrap())),
            conflicts,
            loads: Arc::clone(&loads),
        };
        (Registry::new(store), loads)
    }

    #[test]
    fn the_snapshot_of_a_conflict_is_used_without_another_load() {
        let owner = ServiceRef::new("default", "web");
        let (mut registry, loads) = busy("10.0.0.0/29", 3);
        let address = registry.allocate(&owner, &mut || 0).unwrap();
        assert_eq!(
            address.to_string(),
            "10.0.0.4",
            "other processes allocated 3"
        );
        assert_eq!(*loads.lock().unwrap(), 1);
        // An exhausted range in the snapshot is final as well.
        let (mut registry, loads) = busy("10.0.0.0/30", 0);
        registry.refresh().unwrap();
        registry.store.conflicts = 2;
        let error = registry.allocate(&owner, &mut || 0).unwrap_err();
        assert!(matches!(
            error,
            Error::Allocation(AllocationError::Full { .. })
        ));
        assert_eq!(*loads.lock().unwrap(), 1);
    }

    /// A store that returns given snapshots for the first conflicts.
    struct Partial(Memory<Addresses>, Vec<Snapshot<Addresses>>);

    impl Store<Addresses> for Partial {
        fn load(&mut self) -> Result<Snapshot<Addresses>, StoreError> {
            self.0.load()
        }

        fn commit(
            &mut self,
            base: Version,
            change: &Change<<Addresses as Pool>::Item>,
            after: &Snapshot<Addresses>,
        ) -> Result<Version, CommitError<Addresses>> {
            match self.1.pop() {
                Some(now) => Err(CommitError::Conflict {
                    now: Some(Box::new(now)),
                }),
                None => self.0.commit(base, change, after),
            }
        }
    }

    #[test]
    fn a_rejection_by_an_old_snapshot_is_verified_with_a_fresh_one() {
        let owner = ServiceRef::new("default", "web");
        let mut store = Memory::new(Addresses::new("10.0.0.0/30".parse().unwrap()));
        let mut known = store.load().unwrap();
        for _ in 0..2 {
            known.pool.allocate(&mut || 0).unwrap();
        }
        let mut registry = Registry::new(Partial(store, vec![known]));
        // Both addresses were allocated, but one has been released meanwhile.
        let address = registry.allocate(&owner, &mut || 0).unwrap();
        assert_eq!(address.to_string(), "10.0.0.1");
    }

    #[test]
    fn the_backoff_receives_the_number_of_attempts() {
        let owner = ServiceRef::new("default", "web");
        let (registry, loads) = busy("10.0.0.0/24", 3);
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&pauses);
        let mut registry =
            registry.with_backoff(move |attempts| noted.lock().unwrap().push(attempts));
        registry.allocate(&owner, &mut || 0).unwrap();
        assert_eq!(*pauses.lock().unwrap(), [1, 2, 3]);
        // The store is read again after each wait.
        assert_eq!(*loads.lock().unwrap(), 4);
    }

    #[test]
    fn a_change_that_always_conflicts_fails_without_effect() {
        let owner = ServiceRef::new("default", "web");
        let (mut registry, _) = busy("10.0.0.0/24", usize::MAX);
        let error = registry.allocate(&owner, &mut || 0).unwrap_err();
        assert!(matches!(error, Error::Contended { attempts: ATTEMPTS }));
        let snapshot = registry.refresh().unwrap();
        assert!(!snapshot.owners.values().any(|other| *other == owner));
        assert_eq!(snapshot.pool.used(), ATTEMPTS as u128);
    }
}
