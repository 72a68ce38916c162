//! Attempts of a change, without IO.
//!
//! The caller does what [`Registry::next_step`] asks for, in blocking or in async code.

use super::{Error, Registry};
use crate::counters::{Outcome, Requests};
use crate::{
    AllocationError, Change, CommitError, Draft, Pool, RepairReason, Reservations, Snapshot, Store,
    Version,
};

/// Maximum number of attempts of a change after conflicts.
const ATTEMPTS: usize = 100;

/// State of a change between the requests to the store.
pub(super) struct Attempts {
    by: By,
    /// Number of plans so far.
    pub(super) number: usize,
    /// Whether the snapshot was read during this change.
    is_fresh: bool,
}

/// What a change does next.
pub(super) enum Step<P: Pool, T> {
    /// Load the store, and pass the snapshot to [`Registry::loaded`].
    Load,
    /// Commit the plan, and pass the result to [`Registry::committed`].
    Commit(Planned<P, T>),
    /// End the change.
    End(Result<T, Error>),
}

/// The caller of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum By {
    Anyone,
    Repair,
}

/// A change that was planned on a snapshot.
pub(super) struct Planned<P: Pool, T> {
    /// Snapshot with the change, or without it if the plan failed.
    snapshot: Snapshot<P>,
    change: Change<P::Item>,
    requests: Requests,
    /// Result of the plan.
    result: Result<T, AllocationError>,
}

impl Attempts {
    pub(super) const fn new(by: By) -> Self {
        Self {
            by,
            number: 0,
            is_fresh: false,
        }
    }
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

    /// Version, change and resulting state for a store.
    pub(super) const fn parts(&self) -> (Version, &Change<P::Item>, &Snapshot<P>) {
        (self.snapshot.version, &self.change, &self.snapshot)
    }

    /// Commits the change to a store.
    pub(super) fn commit(&self, store: &mut impl Store<P>) -> Result<Version, CommitError<P>> {
        let (base, change, after) = self.parts();
        store.commit(base, change, after)
    }

    /// Returns whether the store has to change: also after a repair without edits.
    fn requires_commit(&self) -> bool {
        let is_unchanged = self.change.is_empty() && self.snapshot.repair_reason.is_none();
        self.result.is_ok() && !is_unchanged
    }
}

impl<P: Pool, S> Registry<P, S> {
    /// Plans a change until it needs the store or ends.
    pub(super) fn next_step<T>(
        &mut self,
        attempts: &mut Attempts,
        plan: &mut impl FnMut(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Step<P, T> {
        while attempts.number < ATTEMPTS {
            let Some(snapshot) = self.last.take() else {
                return Step::Load;
            };
            attempts.number += 1;
            if let Some(reason) = repair_required(attempts.by, &snapshot) {
                // Another process may have repaired it since it was read.
                if attempts.is_fresh {
                    return Step::End(Err(Error::RepairRequired(reason)));
                }
                continue;
            }
            let planned = Planned::new(snapshot, &self.reservations, &mut *plan);
            if planned.requires_commit() {
                return Step::Commit(planned);
            }
            if attempts.is_fresh {
                return Step::End(self.conclude(planned));
            }
            // Otherwise the snapshot may be outdated: decide on a fresh one only.
        }
        let attempts = ATTEMPTS;
        Step::End(Err(Error::Contended { attempts }))
    }

    /// Continues a change with the state of the store.
    pub(super) fn loaded(&mut self, attempts: &mut Attempts, snapshot: Snapshot<P>) {
        attempts.is_fresh = true;
        self.last = Some(snapshot);
    }

    /// Continues a change after a commit. Returns the result of the plan if the store has
    /// applied it, or `None` after a conflict.
    pub(super) fn committed<T>(
        &mut self,
        attempts: &mut Attempts,
        planned: Planned<P, T>,
        committed: Result<Version, CommitError<P>>,
    ) -> Result<Option<T>, Error> {
        let outcome = match committed {
            Ok(_) => Outcome::Committed,
            Err(_) => Outcome::Failed,
        };
        planned.requests.count(outcome, &mut self.counters);
        let mut snapshot = planned.snapshot;
        match committed {
            Ok(version) => {
                snapshot.version = version;
                snapshot.repair_reason = None;
                self.last = Some(snapshot);
                Ok(Some(planned.result?))
            }
            Err(CommitError::Conflict { now }) => {
                // A snapshot of the same version has not been read from the store.
                let is_newer = |now: &Snapshot<P>| now.version != snapshot.version;
                attempts.is_fresh = now.as_deref().is_some_and(is_newer);
                self.last = now.map(|now| *now);
                Ok(None)
            }
            Err(CommitError::Failed(error)) => Err(error.into()),
            Err(CommitError::Unknown(error)) => Err(Error::Unknown(error)),
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
}

/// Returns the reason why the caller must not change the store before a repair pass.
fn repair_required<P: Pool>(by: By, snapshot: &Snapshot<P>) -> Option<RepairReason> {
    snapshot.repair_reason.clone().filter(|_| by != By::Repair)
}
