//! Brings a kernel to the wanted state.

use std::time::Duration;

use crate::isolated::{Due, Isolated};
use crate::{Cause, Edit, Kernel, Pending, Reason, Rejected, Rejection, diff};

/// How many rejected objects are tried again in one commit with other edits.
///
/// A search among more objects would delay the other edits.
const TOGETHER: usize = 16;

/// A kernel, and what is known of its state.
///
/// While the state is known, a reconciliation commits the edits [gathered](Self::pending)
/// since the last one.
/// After a failure, or when told to [`forget`](Self::forget), the state is
/// unknown: the next reconciliation dumps it and commits the difference.
///
/// An edit that the kernel rejects is isolated: its object stays as it was, and all
/// other edits count as committed.
/// The object is tried again after a delay that doubles from one second to five
/// minutes, and at once when it changes or [`retry`](Self::retry) asks for it.
///
/// Times are counted from any fixed point and never go back.
#[derive(Clone, Debug)]
pub struct Reconciler<K: Kernel> {
    kernel: K,
    /// The edits not committed yet; `None` when the kernel's state is unknown.
    pending: Option<Pending<K::Object>>,
    isolated: Isolated<K::Object>,
}

/// What a reconciliation did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How many edits were committed; with none the kernel was not changed.
    pub edits: usize,
    /// How many edits were rejected.
    pub rejected: usize,
    /// Whether the kernel's state had to be dumped.
    pub dumped: bool,
    /// Whether the commit replaced a state that somebody else made.
    pub took_over: bool,
    /// Whether the kernel's state was not the one that was known: it is unknown
    /// now, and another reconciliation is due at once.
    pub is_stale: bool,
}

/// What leads a kernel to the wanted state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step<T> {
    /// What is to be committed.
    pub edits: Vec<Edit<T>>,
    /// Whether the kernel's state had to be dumped.
    pub dumped: bool,
    /// How many edits are committed together; the others follow in a commit of their
    /// own.
    together: usize,
    /// For each edit why it was rejected, once the step is [taken](Reconciler::take);
    /// empty if none was.
    rejections: Vec<Option<Reason>>,
}

impl<T> Step<T> {
    /// Returns the edits that are committed, once the step is [taken](Reconciler::take).
    pub fn committed(&self) -> impl Iterator<Item = &Edit<T>> {
        let edits = self.edits.iter().enumerate();
        let is_rejected = |index: &usize| self.rejections.get(*index).is_some_and(Option::is_some);
        edits.filter_map(move |(index, edit)| (!is_rejected(&index)).then_some(edit))
    }
}

impl<K: Kernel> Reconciler<K> {
    /// Takes a kernel whose state is unknown.
    pub fn new(kernel: K) -> Self {
        Self {
            kernel,
            pending: None,
            isolated: Isolated::default(),
        }
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Returns the kernel to be changed; who changes its state says [`forget`](Self::forget).
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Tells whether the kernel's state is known.
    pub fn is_known(&self) -> bool {
        self.pending.is_some()
    }

    /// Tells whether there is nothing to commit and the kernel's state is known.
    ///
    /// Rejected objects do not count.
    pub fn is_settled(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_empty)
    }

    /// Returns where edits for the next reconciliation are gathered.
    ///
    /// `None` while the kernel's state is unknown: the difference to the
    /// desired state will hold them.
    pub fn pending(&mut self) -> Option<&mut Pending<K::Object>> {
        self.pending.as_mut()
    }

    /// Declares the kernel's state unknown.
    ///
    /// Rejected objects keep their delays.
    pub fn forget(&mut self) {
        self.pending = None;
    }

    /// Returns the objects that the kernel rejected.
    pub fn rejected(&self) -> impl Iterator<Item = &Rejected<K::Object>> {
        self.isolated.iter()
    }

    /// Returns the rejected object with the key of this one.
    pub fn rejection(&self, like: &K::Object) -> Option<&Rejected<K::Object>> {
        self.isolated.get(like)
    }

    /// Returns how many objects the kernel rejected.
    pub fn rejected_count(&self) -> usize {
        self.isolated.len()
    }

    /// Returns the objects that the kernel rejected for the first time since the
    /// last call.
    pub fn take_new_rejections(&mut self) -> Vec<Rejected<K::Object>> {
        self.isolated.take_new()
    }

    /// Makes a rejected object with the key of this one due at once.
    pub fn retry(&mut self, like: &K::Object) {
        self.isolated.request(like);
    }

    /// Declares the kernel's state unknown because of a rejected object that nothing
    /// works without: the next reconciliation sends it again.
    pub fn forget_rejected(&mut self, like: &K::Object) {
        self.isolated.remove(like);
        self.forget();
    }

    /// Returns when the next rejected object is due; it may have passed.
    pub fn next_retry(&self) -> Option<Duration> {
        self.isolated.next()
    }

    /// Returns the edits between the kernel and the `desired` state; changes nothing.
    pub fn difference<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
    ) -> Result<Vec<Edit<K::Object>>, K::Error>
    where
        K::Object: 'a,
    {
        Ok(diff(self.kernel.dump()?, desired))
    }

    /// Makes the kernel equal to the `desired` state, except for objects that it
    /// rejects.
    ///
    /// `desired` is read only when the kernel's state is unknown; the edits
    /// given since the last success lead to it otherwise.
    pub fn reconcile<'a, D>(&mut self, desired: D, now: Duration) -> Result<Outcome, K::Error>
    where
        K::Object: 'a,
        D: IntoIterator<Item = &'a K::Object> + Clone,
    {
        let mut step = self.next(desired.clone(), now)?;
        let outcome = self.take(&mut step, now)?;
        if !outcome.is_stale {
            return Ok(outcome);
        }
        let mut step = self.next(desired, now)?;
        self.take(&mut step, now)
    }

    /// Returns the next step to the `desired` state, which is read only when the
    /// kernel's state is unknown.
    ///
    /// The state is unknown until the step was [taken](Self::take).
    /// The step leaves out rejected objects that are not due.
    pub fn next<'a>(
        &mut self,
        desired: impl IntoIterator<Item = &'a K::Object>,
        now: Duration,
    ) -> Result<Step<K::Object>, K::Error>
    where
        K::Object: 'a,
    {
        let known = self.pending.take();
        let known = known.filter(|_| !self.isolated.needs_dump(now));
        let dumped = known.is_none();
        let Due { mut edits, retries } = match known {
            Some(mut pending) => self.isolated.amend(pending.take(), now),
            None => {
                let edits = self.difference(desired)?;
                self.isolated.filter(edits, now)
            }
        };
        let together = edits.len();
        edits.extend(retries);
        let retries = edits.len() - together;
        Ok(Step {
            together: if retries > TOGETHER {
                together
            } else {
                edits.len()
            },
            edits,
            dumped,
            rejections: Vec::new(),
        })
    }

    /// Takes the step that [`next`](Self::next) returned last.
    ///
    /// If an edit contradicts a state that was taken to be known, the state is
    /// unknown and the outcome is [stale](Outcome::is_stale): the next step dumps.
    pub fn take(&mut self, step: &mut Step<K::Object>, now: Duration) -> Result<Outcome, K::Error> {
        let mut outcome = Outcome {
            dumped: step.dumped,
            ..Outcome::default()
        };
        if !step.edits.is_empty() {
            let rejections = self.commit(step, &mut outcome)?;
            outcome.rejected = rejections.len();
            let is_conflict = |reason: &Reason| reason.cause == Cause::Conflict;
            outcome.is_stale = !step.dumped && rejections.iter().any(|it| is_conflict(&it.reason));
            if !rejections.is_empty() {
                step.rejections = vec![None; step.edits.len()];
                for rejection in rejections {
                    step.rejections[rejection.index] = Some(rejection.reason);
                }
            }
        }
        outcome.edits = step.edits.len() - outcome.rejected;
        if !outcome.is_stale {
            self.note(step, now);
            self.pending = Some(Pending::new());
        }
        Ok(outcome)
    }

    /// Commits the edits of a step; many retries are a commit of their own.
    fn commit(
        &mut self,
        step: &Step<K::Object>,
        outcome: &mut Outcome,
    ) -> Result<Vec<Rejection>, K::Error> {
        let (first, retries) = step.edits.split_at(step.together);
        let mut rejections = Vec::new();
        for (edits, offset) in [(first, 0), (retries, first.len())] {
            if !edits.is_empty() {
                let rejected = self.kernel.commit(edits)?.into_iter();
                rejections.extend(rejected.map(|it| Rejection {
                    index: it.index + offset,
                    ..it
                }));
                outcome.took_over |= self.kernel.took_over();
            }
        }
        Ok(rejections)
    }

    /// Takes in what was committed and what was rejected.
    fn note(&mut self, step: &Step<K::Object>, now: Duration) {
        if step.rejections.is_empty() && self.isolated.is_empty() {
            return;
        }
        let reasons = step.rejections.iter().map(Option::as_ref);
        let reasons = reasons.chain(std::iter::repeat(None));
        for (edit, reason) in step.edits.iter().zip(reasons) {
            self.isolated.note(edit, reason, now);
        }
        self.isolated.schedule();
    }
}
