//! Allocation from a store that others change as well.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::counters::Outcome;
use crate::{
    AllocationError, CommitError, Counters, Draft, Pool, Random, RepairReason, ServiceRef,
    Snapshot, Store, StoreError,
};

/// How often a change is planned anew when others are faster.
const ATTEMPTS: usize = 100;

/// A store, and what it had when it was last asked.
#[derive(Debug)]
pub struct Registry<P: Pool, S> {
    store: S,
    /// None when it is not known.
    last: Option<Snapshot<P>>,
    counters: BTreeMap<Box<str>, Counters>,
    backoff: Option<Backoff>,
}

/// What is done before a change is planned anew.
struct Backoff(Box<dyn FnMut(usize) + Send>);

/// Why nothing was allocated or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ranges do not allow it.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The store failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store allocates and releases nothing before a [`Repair`] pass.
    ///
    /// [`Repair`]: crate::Repair
    #[error("{0}: a repair pass must come first")]
    RepairRequired(RepairReason),
    /// Others changed the store before every attempt; nothing has changed.
    #[error("others were faster in each of {attempts} attempts")]
    Contended {
        /// How often it was tried.
        attempts: usize,
    },
    /// The store did not say whether it made the change.
    ///
    /// What was to be taken may be taken and is nobody's; what was to be freed
    /// may be free and another's already, so it must not be released again.
    /// Repair finds what is lost.
    #[error("it is not known whether the change was made")]
    Unknown(#[source] StoreError),
}

impl<P: Pool, S: Store<P>> Registry<P, S> {
    /// Returns the registry of a store, which is not asked yet.
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

    /// Lets a change wait before it is planned anew because others were faster.
    ///
    /// `backoff` is told how many attempts have been made, and should wait for a
    /// random time that grows with them.
    /// Where several processes change a store all the time, each of them needs
    /// it: without, one may lose every time.
    #[must_use]
    pub fn with_backoff(mut self, backoff: impl FnMut(usize) + Send + 'static) -> Self {
        self.backoff = Some(Backoff(Box::new(backoff)));
        self
    }

    /// Returns what has happened to each range since the start; dry runs are
    /// not counted.
    #[must_use]
    pub const fn counters(&self) -> &BTreeMap<Box<str>, Counters> {
        &self.counters
    }

    /// Counts how long it took to allocate an item.
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

    /// Returns what the store has now.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn refresh(&mut self) -> Result<&Snapshot<P>, Error> {
        self.last = None;
        Ok(self.last.insert(self.store.load()?))
    }

    /// Takes a certain item for a Service.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn reserve(&mut self, item: P::Item, owner: &ServiceRef) -> Result<(), Error> {
        self.change(|draft| draft.reserve(item, owner))
    }

    /// Takes any item for a Service.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn allocate(
        &mut self,
        owner: &ServiceRef,
        random: &mut Random<'_>,
    ) -> Result<P::Item, Error> {
        self.change(|draft| draft.allocate(owner, random))
    }

    /// Frees an item of a Service, and tells whether it was taken.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn release(&mut self, item: P::Item, owner: &ServiceRef) -> Result<bool, Error> {
        self.change(|draft| draft.release(item, owner))
    }

    /// Makes several changes, all of them or none.
    ///
    /// The plan is made anew when somebody else was faster.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn change<T>(
        &mut self,
        plan: impl FnMut(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        self.change_as(By::Anyone, plan)
    }

    /// Makes several changes, also to a store that must be repaired first.
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
        // What was read since the change was asked for.
        let mut is_fresh = false;
        for attempts in 1..=ATTEMPTS {
            let mut snapshot = match self.last.take() {
                Some(snapshot) => snapshot,
                None => {
                    is_fresh = true;
                    self.store.load()?
                }
            };
            if let Some(reason) = refused_before_repair(by, &snapshot) {
                // Another process may have repaired it since it was read.
                if is_fresh {
                    return Err(Error::RepairRequired(reason));
                }
                continue;
            }
            let mut draft = Draft::new(&mut snapshot);
            let planned = plan(&mut draft);
            if planned.is_err() {
                draft.undo();
            }
            let (change, asked) = draft.into_change();
            let is_unchanged = change.is_empty() && snapshot.repair_reason.is_none();
            if planned.is_err() || is_unchanged {
                // What was seen last may be old: others have freed, or taken.
                if is_fresh {
                    let outcome = if planned.is_ok() {
                        Outcome::Committed
                    } else {
                        Outcome::Rejected
                    };
                    asked.count(outcome, &mut self.counters);
                    self.last = Some(snapshot);
                    return Ok(planned?);
                }
                continue;
            }
            let committed = self.store.commit(snapshot.version, &change, &snapshot);
            let outcome = if committed.is_ok() {
                Outcome::Committed
            } else {
                Outcome::Failed
            };
            asked.count(outcome, &mut self.counters);
            match committed {
                Ok(version) => {
                    snapshot.version = version;
                    snapshot.repair_reason = None;
                    self.last = Some(snapshot);
                    return Ok(planned?);
                }
                Err(CommitError::Conflict { now }) => {
                    // Of the same version it is what was known, and little more.
                    let is_news = |now: &Snapshot<P>| now.version != snapshot.version;
                    is_fresh = now.as_deref().is_some_and(is_news);
                    self.last = now.map(|now| *now);
                    if let Some(backoff) = &mut self.backoff {
                        (backoff.0)(attempts);
                        // Others have gone on meanwhile.
                        self.last = None;
                    }
                }
                Err(CommitError::Failed(error)) => return Err(error.into()),
                Err(CommitError::Unknown(error)) => return Err(Error::Unknown(error)),
            }
        }
        Err(Error::Contended { attempts: ATTEMPTS })
    }

    /// Plans several changes and makes none of them.
    ///
    /// # Errors
    ///
    /// [`Error::Allocation`], [`Error::RepairRequired`] and [`Error::Store`].
    pub fn dry_run<T>(
        &mut self,
        plan: impl FnOnce(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        self.refresh()?;
        let snapshot = self.last.as_mut().expect("it was just read");
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

/// Returns why a store refuses a change until it is repaired.
fn refused_before_repair<P: Pool>(by: By, snapshot: &Snapshot<P>) -> Option<RepairReason> {
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
    use crate::{AddressRange, Allocator, Change, Memory, Version};

    type Addresses = Allocator<AddressRange>;

    /// A store that others change before each of the first commits.
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
                allocated.expect("there is room");
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
    fn what_a_conflict_brings_is_planned_with_and_not_read_again() {
        let owner = ServiceRef::new("default", "web");
        let (mut registry, loads) = busy("10.0.0.0/29", 3);
        let address = registry.allocate(&owner, &mut || 0).unwrap();
        assert_eq!(address.to_string(), "10.0.0.4", "others were faster by 3");
        assert_eq!(*loads.lock().unwrap(), 1);
        // Also when it says that nothing is left.
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

    /// A store that tells of each address once that it is another's, and else
    /// what was known.
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
    fn what_is_refused_by_what_was_known_before_is_looked_up() {
        let owner = ServiceRef::new("default", "web");
        let mut store = Memory::new(Addresses::new("10.0.0.0/30".parse().unwrap()));
        let mut known = store.load().unwrap();
        for _ in 0..2 {
            known.pool.allocate(&mut || 0).unwrap();
        }
        let mut registry = Registry::new(Partial(store, vec![known]));
        // Both were another's, but one has been released meanwhile.
        let address = registry.allocate(&owner, &mut || 0).unwrap();
        assert_eq!(address.to_string(), "10.0.0.1");
    }

    #[test]
    fn a_change_waits_longer_each_time_that_others_are_faster() {
        let owner = ServiceRef::new("default", "web");
        let (registry, loads) = busy("10.0.0.0/24", 3);
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&pauses);
        let mut registry =
            registry.with_backoff(move |attempts| noted.lock().unwrap().push(attempts));
        registry.allocate(&owner, &mut || 0).unwrap();
        assert_eq!(*pauses.lock().unwrap(), [1, 2, 3]);
        // What others did meanwhile is seen.
        assert_eq!(*loads.lock().unwrap(), 4);
    }

    #[test]
    fn nothing_has_changed_when_others_are_always_faster() {
        let owner = ServiceRef::new("default", "web");
        let (mut registry, _) = busy("10.0.0.0/24", usize::MAX);
        let error = registry.allocate(&owner, &mut || 0).unwrap_err();
        assert!(matches!(error, Error::Contended { attempts: ATTEMPTS }));
        let snapshot = registry.refresh().unwrap();
        assert!(!snapshot.owners.values().any(|other| *other == owner));
        assert_eq!(snapshot.pool.used(), ATTEMPTS as u128);
    }
}
