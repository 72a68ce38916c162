//! Objects that a kernel rejected, until it takes them.

use std::time::Duration;

use crate::keep::Keep;
use crate::{Cause, Edit, Keyed, Reason};

/// Delay of the second attempt.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Longest delay between two attempts.
const LAST_DELAY: Duration = Duration::from_secs(5 * 60);

/// An object that a kernel rejected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rejected<T> {
    /// The object of the edit, with its new state unless the edit removes it.
    pub object: T,
    /// Whether the edit removes the object.
    pub is_removal: bool,
    /// Object that the kernel holds under the same key.
    pub installed: Option<T>,
    /// Why the kernel rejected it the last time.
    pub reason: Reason,
    /// How often the kernel rejected it.
    pub attempts: u32,
    /// When the next attempt is due.
    pub retry_at: Duration,
    /// Whether the caller has not taken the rejection yet.
    is_new: bool,
}

impl<T: Keyed> Rejected<T> {
    /// Returns the object that the kernel lacks; `None` for a removal.
    pub fn wanted(&self) -> Option<&T> {
        (!self.is_removal).then_some(&self.object)
    }

    /// Tells whether an edit leads to what was rejected.
    fn leads_to(&self, wanted: Option<&T>) -> bool {
        match (self.wanted(), wanted) {
            (Some(one), Some(other)) => one.same(other),
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

    fn same(&self, _: &Self) -> bool {
        false
    }
}

/// Edits that are due.
#[derive(Debug)]
pub(crate) struct Due<T> {
    /// Edits that were not rejected before.
    pub(crate) edits: Vec<Edit<T>>,
    /// Edits that were, unchanged.
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
pub(crate) struct Isolated<T> {
    objects: Keep<Rejected<T>>,
    /// The time of the earliest attempt.
    next: Option<Duration>,
    has_news: bool,
}

impl<T> Default for Isolated<T> {
    fn default() -> Self {
        Self {
            objects: Keep::default(),
            next: None,
            has_news: false,
        }
    }
}

impl<T: Keyed> Isolated<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rejected<T>> {
        self.objects.iter()
    }

    /// Returns the rejected object with the key of this one.
    pub(crate) fn get(&self, like: &T) -> Option<&Rejected<T>> {
        self.objects
            .get_by(&like.key(), |it| it.object.key() == like.key())
    }

    fn take(&mut self, like: &T) -> Option<Rejected<T>> {
        self.objects
            .take_by(&like.key(), |it| it.object.key() == like.key())
    }

    /// Returns the time of the earliest attempt.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Tells whether an object is due whose kernel state has to be read first.
    pub(crate) fn needs_dump(&self, now: Duration) -> bool {
        let is_due = self.next.is_some_and(|next| next <= now);
        let is_conflict =
            |it: &Rejected<T>| it.retry_at <= now && it.reason.cause == Cause::Conflict;
        is_due && self.iter().any(is_conflict)
    }

    /// Makes the next attempt with the object of the same key due at once.
    pub(crate) fn request(&mut self, like: &T) {
        if let Some(mut it) = self.take(like) {
            it.retry_at = Duration::ZERO;
            self.objects.put(it);
            self.next = Some(Duration::ZERO);
        }
    }

    /// Forgets the object with the key of this one.
    pub(crate) fn remove(&mut self, like: &T) {
        self.take(like);
        self.schedule();
    }

    /// Returns the objects that were rejected since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<Rejected<T>> {
        if !std::mem::take(&mut self.has_news) {
            return Vec::new();
        }
        let news = self.objects.iter_mut().filter(|it| it.is_new);
        let news = news.map(|it| {
            it.is_new = false;
            it.clone()
        });
        news.collect()
    }

    /// Makes edits of a known state start from what is installed, and adds the
    /// edits of objects that are due.
    pub(crate) fn amend(&mut self, edits: Vec<Edit<T>>, now: Duration) -> Due<T> {
        if self.is_empty() {
            return Due::without_retries(edits);
        }
        let mut amended = Vec::with_capacity(edits.len());
        let mut edited = Keep::default();
        for edit in edits {
            let Some(it) = self.get(edit.object()) else {
                amended.push(edit);
                continue;
            };
            let installed = it.installed.clone();
            edited.put(edit.object().clone());
            match Edit::between(installed, edit.clone().into_sides().1) {
                Some(edit) => amended.push(edit),
                None => drop(self.take(edit.object())),
            }
        }
        let is_due =
            |it: &&Rejected<T>| it.retry_at <= now && edited.get_like(&it.object).is_none();
        let due = self.objects.iter().filter(is_due);
        let retries = due.filter_map(|it| {
            let (installed, wanted) = (it.installed.clone(), it.wanted().cloned());
            Edit::between(installed, wanted)
        });
        let due = Due {
            edits: amended,
            retries: retries.collect(),
        };
        self.schedule();
        due
    }

    /// Leaves out the edits of objects that are not due, given the edits between a
    /// state that was dumped and the plan.
    pub(crate) fn filter(&mut self, edits: Vec<Edit<T>>, now: Duration) -> Due<T> {
        if self.is_empty() {
            return Due::without_retries(edits);
        }
        let mut still = Keep::default();
        let mut due = Due::without_retries(Vec::with_capacity(edits.len()));
        for edit in edits {
            let Some(mut it) = self.take(edit.object()) else {
                due.edits.push(edit);
                continue;
            };
            let (before, after) = edit.clone().into_sides();
            let (is_due, is_retry) = (it.retry_at <= now, it.leads_to(after.as_ref()));
            it.installed = before;
            still.put(it);
            match (is_retry, is_due) {
                (false, _) => due.edits.push(edit),
                (true, true) => due.retries.push(edit),
                (true, false) => {}
            }
        }
        // An object without a difference is installed, so its rejection is over.
        self.objects = still;
        self.schedule();
        due
    }

    /// Takes in the result of a commit: an edit and, if it was rejected, why.
    pub(crate) fn note(&mut self, edit: &Edit<T>, reason: Option<&Reason>, now: Duration) {
        let Some(reason) = reason else {
            if !self.is_empty() {
                self.take(edit.object());
            }
            return;
        };
        let known = self.take(edit.object());
        let (installed, wanted) = edit.clone().into_sides();
        let known = known.filter(|it| it.leads_to(wanted.as_ref()));
        let attempts = known.as_ref().map_or(0, |it| it.attempts);
        let attempts = match reason.cause {
            Cause::Untested => attempts,
            _ => attempts.saturating_add(1),
        };
        // An object that is left out untested keeps the reason of its last test.
        let tested = known.as_ref().filter(|_| reason.cause == Cause::Untested);
        let reason = tested.map_or(reason, |it| &it.reason).clone();
        // An object that was left out untested is reported again with its own reason.
        let is_tested = |it: &Rejected<T>| {
            it.reason.cause != Cause::Untested || reason.cause == Cause::Untested
        };
        let is_new = known.as_ref().is_none_or(|it| it.is_new || !is_tested(it));
        self.has_news |= is_new;
        self.objects.put(Rejected {
            object: edit.object().clone(),
            is_removal: wanted.is_none(),
            installed,
            reason,
            attempts,
            retry_at: retry_at(now, attempts),
            is_new,
        });
    }

    /// Finds the time of the earliest attempt.
    pub(crate) fn schedule(&mut self) {
        self.next = self.objects.iter().map(|it| it.retry_at).min();
    }
}

/// Returns when an object is tried again that was rejected so many times.
///
/// The delay doubles with each attempt.
/// Times are multiples of the delay: all objects with the same delay are tried
/// together, so their number does not matter.
fn retry_at(now: Duration, attempts: u32) -> Duration {
    let factor = 1_u32
        .checked_shl(attempts.saturating_sub(1))
        .unwrap_or(u32::MAX);
    let delay = FIRST_DELAY.saturating_mul(factor).min(LAST_DELAY);
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

    #[test]
    fn attempts_are_a_delay_apart_that_doubles_up_to_five_minutes() {
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
