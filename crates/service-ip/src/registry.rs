//! Allocation from a store that others change as well.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::counters::End;
use crate::{
    CommitError, Counters, Draft, Owner, Pool, Random, Refusal, Snapshot, Store, StoreError,
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
}

/// Why nothing was allocated or released.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The ranges do not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
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
        }
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
            .flat_map(|last| last.pool.asked(Some(item)));
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
    pub fn reserve(&mut self, item: P::Item, owner: &Owner) -> Result<(), Error> {
        self.change(|draft| draft.reserve(item, owner))
    }

    /// Takes any item for a Service.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn allocate(&mut self, owner: &Owner, random: &mut Random<'_>) -> Result<P::Item, Error> {
        self.change(|draft| draft.allocate(owner, random))
    }

    /// Frees an item of a Service, and tells whether it was taken.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn release(&mut self, item: P::Item, owner: &Owner) -> Result<bool, Error> {
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
        mut plan: impl FnMut(&mut Draft<'_, P>) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        for _ in 0..ATTEMPTS {
            let (mut snapshot, is_fresh) = match self.last.take() {
                Some(snapshot) => (snapshot, false),
                None => (self.store.load()?, true),
            };
            let mut draft = Draft::new(&mut snapshot);
            let planned = plan(&mut draft);
            if planned.is_err() {
                draft.undo();
            }
            let (change, asked) = draft.into_change();
            if planned.is_err() || change.is_empty() {
                // What was seen last may be old: others have freed, or taken.
                if is_fresh {
                    let end = if planned.is_ok() {
                        End::Made
                    } else {
                        End::Refused
                    };
                    asked.count(end, &mut self.counters);
                    self.last = Some(snapshot);
                    return Ok(planned?);
                }
                continue;
            }
            let committed = self.store.commit(snapshot.version, &change, &snapshot);
            let end = if committed.is_ok() {
                End::Made
            } else {
                End::Lost
            };
            asked.count(end, &mut self.counters);
            match committed {
                Ok(version) => {
                    snapshot.version = version;
                    self.last = Some(snapshot);
                    return Ok(planned?);
                }
                Err(CommitError::Conflict { now }) => self.last = now.map(|now| *now),
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
    /// [`Error::Refused`] and [`Error::Store`].
    pub fn dry_run<T>(
        &mut self,
        plan: impl FnOnce(&mut Draft<'_, P>) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        self.refresh()?;
        let snapshot = self.last.as_mut().expect("it was just read");
        let mut draft = Draft::new(snapshot);
        let planned = plan(&mut draft);
        draft.undo();
        Ok(planned?)
    }
}
