//! The reconciler, which makes a target equal to the desired state.
//!
//! A dump of ten thousand Services takes longer than the change of one, so the reconciler does
//! not read the target before each commit. It relies on one assumption: *the target has what
//! was committed, until something says otherwise*. Then a change of one Service is the edits
//! of that Service alone, which the caller adds to [`pending`](Reconciler::pending).
//!
//! ```text
//!            error, forget(), conflict
//!        ┌───────────────────────────────┐
//!        ▼                               │
//!    unknown ── plan: dump and compare ─► commit ──► known ── pending edits ─► commit
//!                                                      ▲                         │
//!                                                      └─────────────────────────┘
//! ```
//!
//! Whoever cannot be sure declares the state unknown: a commit that failed may have applied a
//! part, a notification of the kernel says that another program changed an object, and a commit
//! that meets an object which should not be there says so by [`Cause::Conflict`]. The next plan
//! dumps, and its edits are the difference. A start is the same: it knows nothing, dumps, and
//! writes nothing if the kernel still has the rules of the last process.
//!
//! Rejected edits are the exception to "the target has what was committed". Each is remembered
//! with what the kernel has in its place, so that a later edit of the same object starts from
//! there; see `rejected`.

use std::time::Duration;

use crate::rejected::{Due, RejectedObjects};
use crate::{Cause, Edit, Pending, Reason, Rejected, Rejection, Target, diff};

/// Number of rejected objects that are retried in one commit with other edits.
///
/// A retry usually fails again, and the kernel then rejects the whole batch: [`isolate`] has to
/// find the bad edits before the good ones are applied. Up to this number that costs little: 16
/// bad edits among 64 are at most 63 rejected batches even if the kernel names none, so
/// [`MAX_REJECTED_BATCHES`] suffices to find them all.
/// More of them get a commit of their own after the others, so that a cluster with a thousand
/// rejected objects programs a new Service as fast as one without.
///
/// [`isolate`]: crate::isolate
/// [`MAX_REJECTED_BATCHES`]: crate::MAX_REJECTED_BATCHES
const MAX_RETRIES_TOGETHER: usize = 16;

/// Makes a target equal to the desired state.
///
/// While the state of the target is known, a reconciliation commits the
/// [pending](Self::pending) edits.
/// After an error or a call of [`forget`](Self::forget) the state is unknown: the
/// next reconciliation dumps the state and commits the difference.
///
/// An edit that the target rejects is isolated: its object stays unchanged, and all
/// other edits count as committed.
/// The edit is retried with a delay that doubles from one second to five minutes. Retry
/// times are rounded up to multiples of the delay.
/// After a change of the object or a call of [`retry`](Self::retry), the next
/// reconciliation sends the edit again.
///
/// Times are durations since any fixed point, and must not decrease.
#[derive(Clone, Debug)]
pub struct Reconciler<K: Target> {
    target: K,
    /// Edits that are not committed yet; `None` if the target's state is unknown.
    pending: Option<Pending<K::Object>>,
    rejected: RejectedObjects<K::Object>,
    /// Objects whose edits the caller postponed.
    postponed: RejectedObjects<K::Object>,
}

/// Result of a reconciliation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Number of committed edits; 0 if the target was not changed.
    pub edits: usize,
    /// Number of rejected edits.
    pub rejected: usize,
    /// Whether the target's state was dumped.
    pub dumped: bool,
    /// Whether the commit replaced a state that another program created, as
    /// [`Target::took_over`] says.
    pub took_over: bool,
    /// Whether the target's state differed from the known state.
    ///
    /// The state is unknown then, and the caller should plan and commit again at once.
    /// [`Reconciler::reconcile`] does that itself.
    pub is_stale: bool,
}

/// The edits of one reconciliation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan<T> {
    /// Edits to commit.
    pub edits: Vec<Edit<T>>,
    /// Whether the target's state was dumped.
    pub dumped: bool,
    /// Number of edits in the first commit; all others, which are retries, are in a second
    /// commit.
    together: usize,
    /// Reason of the rejection of each edit after [`Reconciler::commit`].
    ///
    /// Empty if no edit was rejected.
    rejections: Vec<Option<Reason>>,
}

impl<T> Plan<T> {
    /// The edits that [`Reconciler::commit`] applied. Before that call: all edits.
    pub fn committed(&self) -> impl Iterator<Item = &Edit<T>> {
        let edits = self.edits.iter().enumerate();
        let is_rejected = |index: &usize| self.rejections.get(*index).is_some_and(Option::is_some);
        edits.filter_map(move |(index, edit)| (!is_rejected(&index)).then_some(edit))
    }
}

impl<K: Target> Reconciler<K> {
    /// Creates a reconciler of a target whose state is unknown, so that the first plan dumps it.
    pub fn new(target: K) -> Self {
        Self {
            target,
            pending: None,
            rejected: RejectedObjects::default(),
            postponed: RejectedObjects::default(),
        }
    }

    /// The target, for reading.
    pub fn target(&self) -> &K {
        &self.target
    }

    /// The target, for changes.
    ///
    /// After a change of its state the caller must call [`forget`](Self::forget).
    pub fn target_mut(&mut self) -> &mut K {
        &mut self.target
    }

    /// Returns whether the target's state is known.
    pub fn is_known(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns whether the target's state is known and no edits are pending.
    ///
    /// Retries of rejected objects do not count as pending.
    pub fn is_settled(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_empty)
    }

    /// Returns the edits of the next reconciliation, for the caller to add to.
    ///
    /// `None` while the target's state is unknown: the next reconciliation computes
    /// the edits from a dump.
    pub fn pending(&mut self) -> Option<&mut Pending<K::Object>> {
        self.pending.as_mut()
    }

    /// Declares the target's state unknown.
    ///
    /// The pending edits are dropped, and none is lost: the next plan compares the whole desired
    /// state. Rejected objects keep their retry times.
    pub fn forget(&mut self) {
        self.pending = None;
    }

    /// Returns the rejected objects.
    pub fn rejected(&self) -> impl Iterator<Item = &Rejected<K::Object>> {
        self.rejected.iter()
    }

    /// Returns the rejected object with the key of `object`.
    pub fn rejection(&self, object: &K::Object) -> Option<&Rejected<K::Object>> {
        self.rejected.get(object)
    }

    /// Returns the number of rejected objects.
    pub fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    /// Returns the objects that were rejected for the first time since the last call.
    pub fn take_new_rejections(&mut self) -> Vec<Rejected<K::Object>> {
        self.rejected.take_new()
    }

    /// Makes the retry of the rejected object with the key of `object` due at once.
    ///
    /// Has no effect if no such object is rejected.
    pub fn retry(&mut self, object: &K::Object) {
        self.rejected.request(object);
    }

    /// Declares the target's state unknown, and forgets the rejection of the object
    /// with the key of `object`.
    ///
    /// The next reconciliation dumps the target and sends the object again. Use this for
    /// an object on which all others depend.
    pub fn forget_rejected(&mut self, object: &K::Object) {
        self.rejected.remove(object);
        self.forget();
    }

    /// Returns the time of the earliest retry or postponed edit, which may have passed.
    pub fn next_retry(&self) -> Option<Duration> {
        let times = [self.rejected.next(), self.postponed.next()];
        times.into_iter().flatten().min()
    }

    /// Removes edits from the plan that the last call of [`plan`](Self::plan) returned.
    ///
    /// `until` has one time for each edit of the plan, or `None` for an edit that stays. The
    /// object of a postponed edit is unchanged until a plan at that time, or until an edit of
    /// the object is [pending](Self::pending). A plan that is based on a dump contains the
    /// edits of all postponed objects again.
    pub fn postpone(&mut self, plan: &mut Plan<K::Object>, until: &[Option<Duration>]) {
        let times = until.iter().copied().chain(std::iter::repeat(None));
        let mut edits = Vec::with_capacity(plan.edits.len());
        let mut together = plan.together;
        for (index, (edit, until)) in plan.edits.drain(..).zip(times).enumerate() {
            match until {
                Some(until) => {
                    self.postponed.postpone(edit, until);
                    // The first commit has one edit less, and the others must stay on their sides
                    // of the boundary.
                    together -= usize::from(index < plan.together);
                }
                None => edits.push(edit),
            }
        }
        (plan.edits, plan.together) = (edits, together);
        self.postponed.schedule();
    }

    /// Returns the postponed objects.
    pub fn postponed(&self) -> impl Iterator<Item = &Rejected<K::Object>> {
        self.postponed.iter()
    }

    /// Returns the number of postponed objects.
    pub fn postponed_count(&self) -> usize {
        self.postponed.len()
    }

    /// Dumps the target and returns its difference to the `desired` state.
    ///
    /// # Errors
    ///
    /// The error of [`Target::dump`].
    pub fn difference<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
    ) -> Result<Vec<Edit<K::Object>>, K::Error>
    where
        K::Object: 'a,
    {
        Ok(diff(self.target.dump()?, desired))
    }

    /// Makes the target equal to the `desired` state, except for rejected objects.
    ///
    /// `desired` is read only if the target is dumped, as in [`plan`](Self::plan);
    /// otherwise the pending edits must lead to the `desired` state.
    /// A stale commit is followed by a second plan and commit.
    ///
    /// # Errors
    ///
    /// The error of [`Target::dump`] or [`Target::commit`]; the target's state is
    /// unknown then.
    pub fn reconcile<'a, D>(&mut self, desired: D, now: Duration) -> Result<Outcome, K::Error>
    where
        K::Object: 'a,
        D: IntoIterator<Item = &'a K::Object> + Clone,
    {
        let mut plan = self.plan(desired.clone(), now)?;
        let outcome = self.commit(&mut plan, now)?;
        if !outcome.is_stale {
            return Ok(outcome);
        }
        let mut plan = self.plan(desired, now)?;
        self.commit(&mut plan, now)
    }

    /// Returns the edits from the target's state to the `desired` state.
    ///
    /// The target is dumped, and `desired` is read, only if the target's state is unknown
    /// or the retry of a [`Cause::Conflict`] is due.
    /// The plan omits rejected objects whose retry is not due.
    /// The target's state is unknown until [`commit`](Self::commit) has applied the plan.
    ///
    /// # Errors
    ///
    /// The error of [`Target::dump`].
    pub fn plan<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
        now: Duration,
    ) -> Result<Plan<K::Object>, K::Error>
    where
        K::Object: 'a,
    {
        // From here until `commit` succeeds the state is unknown. If the commit fails, or is never
        // called, the next plan dumps: it must not believe edits that may not have been applied.
        let pending = self.pending.take();
        let pending = pending.filter(|_| !self.rejected.needs_dump(now));
        let dumped = pending.is_none();
        let Due { mut edits, retries } = match pending {
            Some(mut pending) => {
                // Postponed edits that are due are sent like the pending ones. The kernel may have
                // rejected objects of either kind before, so `rejected` amends the sum of both.
                let pending = self.postponed.amend(pending.take(), now);
                let edits = pending.edits.into_iter().chain(pending.retries);
                self.rejected.amend(edits.collect(), now)
            }
            None => {
                let edits = self.difference(desired)?;
                // The difference has the edits of postponed objects again, and the caller
                // decides about each once more. Rejected objects stay: nobody else knows when
                // they are due.
                self.postponed = RejectedObjects::default();
                self.rejected.filter(edits, now)
            }
        };
        let together = edits.len();
        edits.extend(retries);
        let retries = edits.len() - together;
        Ok(Plan {
            together: if retries > MAX_RETRIES_TOGETHER {
                together
            } else {
                edits.len()
            },
            edits,
            dumped,
            rejections: Vec::new(),
        })
    }

    /// Applies the plan that the last call of [`plan`](Self::plan) returned.
    ///
    /// If an edit conflicts with the state of the target although that state was
    /// known, the outcome is [stale](Outcome::is_stale): the next plan is based on a
    /// dump.
    ///
    /// # Errors
    ///
    /// The error of [`Target::commit`].
    pub fn commit(
        &mut self,
        plan: &mut Plan<K::Object>,
        now: Duration,
    ) -> Result<Outcome, K::Error> {
        let mut outcome = Outcome {
            dumped: plan.dumped,
            ..Outcome::default()
        };
        if !plan.edits.is_empty() {
            let rejections = self.send(plan, &mut outcome)?;
            outcome.rejected = rejections.len();
            let is_conflict = |reason: &Reason| reason.cause == Cause::Conflict;
            // After a dump a conflict is no surprise that another dump could resolve: the object
            // appeared just now, or the kernel does not show it. It counts as rejected, and a
            // retry dumps. Otherwise a program that creates it again and again would keep this
            // one in a loop of dumps.
            outcome.is_stale = !plan.dumped
                && rejections
                    .iter()
                    .any(|rejection| is_conflict(&rejection.reason));
            if !rejections.is_empty() {
                plan.rejections = vec![None; plan.edits.len()];
                for rejection in rejections {
                    // `Target::commit` numbers the edits that it got, so the index is in range.
                    plan.rejections[rejection.index] = Some(rejection.reason);
                }
            }
        }
        outcome.edits = plan.edits.len() - outcome.rejected;
        // Rejections of a stale commit are not recorded: they are about edits from a state that
        // the target did not have, and the plan after the dump may not contain them.
        if !outcome.is_stale {
            self.record(plan, now);
            self.pending = Some(Pending::new());
        }
        Ok(outcome)
    }

    /// Commits the edits of a plan, in two commits if there are many retries. New edits come first:
    /// a new Service must not wait while the bad retries are searched.
    ///
    /// An empty half is not sent: a sync at which nothing changed must write nothing.
    fn send(
        &mut self,
        plan: &Plan<K::Object>,
        outcome: &mut Outcome,
    ) -> Result<Vec<Rejection>, K::Error> {
        let (first, retries) = plan.edits.split_at(plan.together);
        let mut rejections = Vec::new();
        for (edits, offset) in [(first, 0), (retries, first.len())] {
            if !edits.is_empty() {
                let rejected = self.target.commit(edits)?.into_iter();
                rejections.extend(rejected.map(|rejection| Rejection {
                    index: rejection.index + offset,
                    ..rejection
                }));
                // The target remembers its last commit only, and this may be the first of two.
                outcome.took_over |= self.target.took_over();
            }
        }
        Ok(rejections)
    }

    /// Records the results of all edits of a plan.
    fn record(&mut self, plan: &Plan<K::Object>, now: Duration) {
        // An edit of the plan was sent, so its object no longer waits, whatever the result. Those
        // that `postpone` took out of the plan are not in it.
        if !self.postponed.is_empty() {
            self.postponed.remove_all(&plan.edits);
        }
        if plan.rejections.is_empty() && self.rejected.is_empty() {
            return;
        }
        let reasons = plan.rejections.iter().map(Option::as_ref);
        let reasons = reasons.chain(std::iter::repeat(None));
        for (edit, reason) in plan.edits.iter().zip(reasons) {
            self.rejected.record(edit, reason, now);
        }
        self.rejected.schedule();
    }
}
