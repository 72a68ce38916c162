//! Rejected objects and the times of their retries.
//!
//! A rejected edit leaves its object as it was: the rule of yesterday, or nothing. Three things
//! follow, and this file is about them:
//!
//! - **Later edits must start from what is there.** The plan wanted A to become B, the kernel
//!   refused, and now C is wanted. The caller's edit is "B becomes C", which the kernel cannot
//!   do, because it has A. [`amend`](RejectedObjects::amend) makes it "A becomes C", or no edit
//!   at all if C equals A.
//! - **The edit must be tried again**, because the reason may go away: a module is loaded, or
//!   another program removes its object. But each retry may cost a search for the bad edit, so
//!   the delay doubles from a second to five minutes. A change of the object ends the
//!   waiting, because it is another edit.
//! - **A dump shows the old object**, so each difference contains the rejected edit again.
//!   [`filter`](RejectedObjects::filter) takes it out until it is due.
//!
//! Edits that the caller postponed are kept in a second value of the same type: they too are
//! objects that differ from the plan until some time.

use std::time::Duration;

use crate::keyed_map::KeyedMap;
use crate::{Cause, Edit, Keyed, Reason};

/// Delay before the first retry: a whole number of seconds, because [`retry_at`] counts in
/// seconds.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Maximum delay before a retry.
///
/// An operator who loads a missing module should not wait longer for the Services than it
/// takes to look at the log, and a retry each five minutes costs nothing that shows. With the
/// rounding of [`retry_at`] it may be ten minutes.
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);

/// An object that a kernel rejected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rejected<T> {
    /// Object after the edit, or the object to remove.
    pub object: T,
    /// Whether the edit removes the object.
    pub is_removal: bool,
    /// Object in the kernel under the same key; `None` if there is none.
    pub installed: Option<T>,
    /// Reason of the last rejection that was not [`Cause::Untested`], if there was one.
    pub reason: Reason,
    /// Number of rejections of the same edit, except those with [`Cause::Untested`]. So 0 for
    /// an edit that has only been left out up to now.
    pub attempts: u32,
    /// Earliest time of the next retry.
    pub retry_at: Duration,
    /// Whether [`take_new`](RejectedObjects::take_new) has not returned the object yet.
    is_new: bool,
}

impl<T: Keyed> Rejected<T> {
    /// The object that the edit was to install; `None` for a removal.
    pub fn desired(&self) -> Option<&T> {
        (!self.is_removal).then_some(&self.object)
    }

    /// Returns whether the rejected edit has the same result as an edit to `desired`. If not, the
    /// edit is another one: it is sent at once, and its attempts are counted from the beginning.
    ///
    /// A removal never equals the addition of the same object, although both have it as
    /// [`object`](Self::object).
    fn has_result(&self, desired: Option<&T>) -> bool {
        match (self.desired(), desired) {
            (Some(one), Some(other)) => one.is_equivalent(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl<T: Keyed> Keyed for Rejected<T> {
    type Key<'a>
        = T::Key<'a>
    where
        T: 'a;

    fn key(&self) -> T::Key<'_> {
        self.object.key()
    }

    fn is_equivalent(&self, _: &Self) -> bool {
        // Nobody asks: `KeyedMap` compares keys only, and rejected objects are never an argument
        // of `diff`.
        false
    }
}

/// Edits of a commit.
#[derive(Debug)]
pub(crate) struct Due<T> {
    /// Edits that were not rejected before.
    pub(crate) edits: Vec<Edit<T>>,
    /// Retries of rejected edits.
    pub(crate) retries: Vec<Edit<T>>,
}

impl<T> Due<T> {
    fn without_retries(edits: Vec<Edit<T>>) -> Self {
        let retries = Vec::new();
        Self { edits, retries }
    }
}

/// The rejected objects of a kernel, at most one per key.
#[derive(Clone, Debug)]
pub(crate) struct RejectedObjects<T> {
    objects: KeyedMap<Rejected<T>>,
    /// Time of the earliest retry. Kept, because each poll of the caller asks for it, and there
    /// may be thousands of objects. Functions that change objects say who updates it.
    next: Option<Duration>,
    /// Whether [`take_new`](Self::take_new) would return any object.
    has_new: bool,
}

impl<T> Default for RejectedObjects<T> {
    fn default() -> Self {
        Self {
            objects: KeyedMap::default(),
            next: None,
            has_new: false,
        }
    }
}

impl<T: Keyed> RejectedObjects<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rejected<T>> {
        self.objects.iter()
    }

    /// Returns the rejected object with the key of `object`.
    pub(crate) fn get(&self, object: &T) -> Option<&Rejected<T>> {
        self.objects
            .get_by(&object.key(), |rejected| rejected.key() == object.key())
    }

    fn take(&mut self, object: &T) -> Option<Rejected<T>> {
        self.objects
            .remove_by(&object.key(), |rejected| rejected.key() == object.key())
    }

    /// Returns the time of the earliest retry.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Returns whether an object is due whose rejection was a [`Cause::Conflict`].
    ///
    /// The state of the kernel must be dumped before its retry: the kernel has something else
    /// under the key than the edit starts from, so the same edit would conflict again.
    pub(crate) fn needs_dump(&self, now: Duration) -> bool {
        let is_due = self.next.is_some_and(|next| next <= now);
        let is_conflict = |rejected: &Rejected<T>| {
            rejected.retry_at <= now && rejected.reason.cause == Cause::Conflict
        };
        // Nearly always nothing is due, and then no object is looked at.
        is_due && self.iter().any(is_conflict)
    }

    /// Makes the retry of the object with the key of `object` due immediately.
    pub(crate) fn request(&mut self, object: &T) {
        if let Some(mut rejected) = self.take(object) {
            // Times count from a point that the caller chose, so no time is before zero.
            rejected.retry_at = Duration::ZERO;
            self.objects.insert(rejected);
            self.next = Some(Duration::ZERO);
        }
    }

    /// Adds the object of an edit that is not to be sent before `until`. The caller calls
    /// [`schedule`](Self::schedule) after the last one.
    pub(crate) fn postpone(&mut self, edit: Edit<T>, until: Duration) {
        self.take(edit.object());
        let object = edit.object().clone();
        let (installed, desired) = edit.into_old_and_new();
        self.objects.insert(Rejected {
            object,
            is_removal: desired.is_none(),
            installed,
            // Not shown to anybody: objects that wait are counted, not reported as rejected.
            reason: Reason::rejected(None, "postponed"),
            attempts: 0,
            retry_at: until,
            is_new: false,
        });
    }

    /// Removes the object with the key of `object`.
    pub(crate) fn remove(&mut self, object: &T) {
        self.take(object);
        self.schedule();
    }

    /// Removes the objects of edits.
    pub(crate) fn remove_all(&mut self, edits: &[Edit<T>]) {
        for edit in edits {
            self.take(edit.object());
        }
        self.schedule();
    }

    /// Returns the objects that were rejected for the first time since the last call.
    ///
    /// Each sync asks, and the flag saves the way through thousands of old rejections.
    pub(crate) fn take_new(&mut self) -> Vec<Rejected<T>> {
        if !std::mem::take(&mut self.has_new) {
            return Vec::new();
        }
        let new = self.objects.iter_mut().filter(|rejected| rejected.is_new);
        let new = new.map(|rejected| {
            rejected.is_new = false;
            rejected.clone()
        });
        new.collect()
    }

    /// Bases edits of rejected objects on the installed objects, and adds the retries
    /// that are due.
    ///
    /// The objects of edits stay on record until [`record`](Self::record): if the commit fails in
    /// between, the next plan dumps, and [`filter`](Self::filter) needs to know them.
    pub(crate) fn amend(&mut self, edits: Vec<Edit<T>>, now: Duration) -> Due<T> {
        if self.is_empty() {
            return Due::without_retries(edits);
        }
        let mut amended = Vec::with_capacity(edits.len());
        let mut edited = KeyedMap::default();
        for edit in edits {
            let Some(rejected) = self.get(edit.object()) else {
                amended.push(edit);
                continue;
            };
            let installed = rejected.installed.clone();
            edited.insert(edit.object().clone());
            // No edit is left if the kernel's object is what is wanted now: the rejection ends.
            match Edit::between(installed, edit.clone().into_old_and_new().1) {
                Some(edit) => amended.push(edit),
                None => drop(self.take(edit.object())),
            }
        }
        // An object that was edited is in `edits`: as a retry too, it would be sent twice.
        let is_due = |rejected: &&Rejected<T>| {
            rejected.retry_at <= now && edited.get(&rejected.object).is_none()
        };
        let due = self.objects.iter().filter(is_due);
        let retries = due.filter_map(|rejected| {
            let installed = rejected.installed.clone();
            Edit::between(installed, rejected.desired().cloned())
        });
        let due = Due {
            edits: amended,
            retries: retries.collect(),
        };
        self.schedule();
        due
    }

    /// Removes the edits of rejected objects that are not due from the difference
    /// between the dumped and the desired state.
    pub(crate) fn filter(&mut self, edits: Vec<Edit<T>>, now: Duration) -> Due<T> {
        if self.is_empty() {
            return Due::without_retries(edits);
        }
        let mut still_rejected = KeyedMap::default();
        let mut due = Due::without_retries(Vec::with_capacity(edits.len()));
        for edit in edits {
            let Some(mut rejected) = self.take(edit.object()) else {
                due.edits.push(edit);
                continue;
            };
            let (before, after) = edit.clone().into_old_and_new();
            let is_due = rejected.retry_at <= now;
            let is_retry = rejected.has_result(after.as_ref());
            // The dump is newer than what the rejection recorded.
            rejected.installed = before;
            still_rejected.insert(rejected);
            match (is_retry, is_due) {
                // Something else is wanted than what was rejected, which has no reason to wait.
                (false, _) => due.edits.push(edit),
                (true, true) => due.retries.push(edit),
                // Left out, but still on record: its retry comes from `amend`, or from the next
                // dump.
                (true, false) => {}
            }
        }
        // An object without an edit equals the desired one, so its rejection is over.
        self.objects = still_rejected;
        self.schedule();
        due
    }

    /// Records the result of an edit: applied, or rejected for `reason`. The caller calls
    /// [`schedule`](Self::schedule) after the last one.
    pub(crate) fn record(&mut self, edit: &Edit<T>, reason: Option<&Reason>, now: Duration) {
        let Some(reason) = reason else {
            if !self.is_empty() {
                self.take(edit.object());
            }
            return;
        };
        let earlier = self.take(edit.object());
        let (installed, desired) = edit.clone().into_old_and_new();
        let earlier = earlier.filter(|earlier| earlier.has_result(desired.as_ref()));
        let attempts = earlier.as_ref().map_or(0, |earlier| earlier.attempts);
        // An untested edit may be good. It must not wait longer because bad ones beside it used
        // up the budget.
        let attempts = match reason.cause {
            Cause::Untested => attempts,
            _ => attempts.saturating_add(1),
        };
        // An untested object keeps the reason of its last test.
        let tested = earlier.as_ref().filter(|_| reason.cause == Cause::Untested);
        let reason = tested.map_or(reason, |earlier| &earlier.reason).clone();
        // An object that was untested is reported again after its first test.
        let is_known = |earlier: &Rejected<T>| {
            earlier.reason.cause != Cause::Untested || reason.cause == Cause::Untested
        };
        let is_new = earlier
            .as_ref()
            .is_none_or(|earlier| earlier.is_new || !is_known(earlier));
        self.has_new |= is_new;
        self.objects.insert(Rejected {
            object: edit.object().clone(),
            is_removal: desired.is_none(),
            installed,
            reason,
            attempts,
            retry_at: retry_at(now, attempts),
            is_new,
        });
    }

    /// Updates the time of the earliest retry.
    pub(crate) fn schedule(&mut self) {
        let times = self.objects.iter().map(|rejected| rejected.retry_at);
        self.next = times.min();
    }
}

/// Returns the time of the retry after `attempts` rejections.
///
/// The delay doubles with each attempt.
/// Times are rounded up to multiples of the delay, so all objects with the same
/// delay are retried in one commit. Otherwise a thousand objects that were rejected one after the
/// other would be retried in a thousand commits. The price is that a delay may be up to twice as
/// long: 1 to 2 s after the first rejection, 5 to 10 minutes in the end.
fn retry_at(now: Duration, attempts: u32) -> Duration {
    // More than 32 doublings do not fit, and the delay is at its maximum long before.
    let factor = 1_u32
        .checked_shl(attempts.saturating_sub(1))
        .unwrap_or(u32::MAX);
    let delay = FIRST_DELAY.saturating_mul(factor).min(MAX_DELAY);
    // Each delay is a whole number of seconds, so `as_secs` below is exact.
    let steps = now
        .saturating_add(delay)
        .as_nanos()
        .div_ceil(delay.as_nanos());
    let seconds =
        u64::try_from(steps).map_or(u64::MAX, |steps| steps.saturating_mul(delay.as_secs()));
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    struct Entry(u8);

    impl Keyed for Entry {
        type Key<'a> = u8;

        fn key(&self) -> u8 {
            self.0
        }

        fn is_equivalent(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    #[test]
    fn a_dump_is_needed_when_the_retry_of_a_conflict_is_due() {
        let rejected = Reason::rejected(None, "exists");
        let conflict = rejected.with_cause(Cause::Conflict);
        let mut objects = RejectedObjects::default();
        objects.record(&Edit::Add(Entry(1)), Some(&rejected), Duration::ZERO);
        objects.schedule();
        let first = objects.next().expect("a retry");
        assert!(!objects.needs_dump(first));

        objects.record(&Edit::Add(Entry(2)), Some(&conflict), first);
        objects.schedule();
        let of_conflict = objects.get(&Entry(2)).expect("a rejection").retry_at;
        assert!(first < of_conflict);
        assert!(!objects.needs_dump(first));
        assert!(objects.needs_dump(of_conflict));
    }

    #[test]
    fn the_desired_object_after_a_rejected_removal_is_another_result() {
        let rejected = Reason::rejected(None, "busy");
        let mut objects = RejectedObjects::default();
        let attempts = |objects: &RejectedObjects<Entry>| {
            objects.get(&Entry(1)).expect("a rejection").attempts
        };
        for (edit, expected) in [
            (Edit::Remove(Entry(1)), 1),
            (Edit::Remove(Entry(1)), 2),
            (Edit::Add(Entry(1)), 1),
            (Edit::Add(Entry(1)), 2),
            (Edit::Remove(Entry(1)), 1),
        ] {
            objects.record(&edit, Some(&rejected), Duration::ZERO);
            assert_eq!(attempts(&objects), expected, "{edit:?}");
        }
    }

    #[test]
    fn the_retry_delay_doubles_up_to_five_minutes() {
        let now = Duration::from_millis(1_000_300);
        let after = |attempts| retry_at(now, attempts) - now;
        for (attempts, delay) in [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 4),
            (9, 256),
            (10, 300),
            (99, 300),
        ] {
            let delay = Duration::from_secs(delay);
            let range = delay..delay * 2;
            assert!(
                range.contains(&after(attempts)),
                "{attempts}: {:?}",
                after(attempts)
            );
        }
    }

    #[test]
    fn objects_with_the_same_delay_are_due_at_the_same_time() {
        let of = |now| retry_at(Duration::from_millis(now), 20);
        assert_eq!(of(600_001), of(899_999));
        assert_eq!(of(600_001), Duration::from_secs(1200));
    }
}
