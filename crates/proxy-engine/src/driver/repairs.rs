//! Repairs that another program keeps undoing.
//!
//! Two programs that each restore their own version of an object repair each other as fast as
//! the kernel notifies them: two proxies with different `--cluster-cidr` did it 52 times a
//! second, and each repair dumps all rules. So the first three repairs of an object within
//! 10 s are immediate, because most foreign changes happen once. After those the object waits:
//! a second since its last repair, then twice as long after each repair that is undone, up to
//! a minute. All other objects are still repaired at once.
//!
//! The end needs no message of the other program: when a repair has lasted as long as the
//! last wait, and at least 10 s, the history of the object is forgotten.
//!
//! Only what another program changed counts. If the plan of an object changes, its history
//! ends, so that a change of a Service never waits.
//!
//! For example, an object that is undone each time within 20 ms is repaired at 0, 0.02, 0.04, 1.04,
//! 3.04, 7.04, 15.04, 31.04, 63.04, 123.04 s, and then once a minute.
//!
//! The order of calls in a sync: [`begin`](Repairs::begin), [`judge`](Repairs::judge) for each edit
//! of the plan, then [`committed`](Repairs::committed) only if the commit succeeded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use vipline_reconcile::Keyed;

use crate::{Drift, RepairConflict, RepairConflictChange};

/// Number of immediate repairs of an object within [`WINDOW`].
const IMMEDIATE_REPAIRS: usize = 3;

/// Time in which repairs of an object count together, and the least time after which a repair
/// counts as lasting.
const WINDOW: Duration = Duration::from_secs(10);

/// First time between two repairs of an object that waits.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Longest time between two repairs of an object. It is also the longest time for which the object
/// stays broken after the other program has stopped, if the last repair was undone.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Names of programs, without process IDs. Empty if the kernel does not report them: such changes
/// count as those of any program, because otherwise no history could form.
type Programs = Arc<[Box<str>]>;

/// The repaired objects of a family.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    hasher: RandomState,
    /// By the hash of the object's key: after `nft flush ruleset` there is one for each
    /// object, and a clone of each key would be as large as the ledger. If two objects collide, one
    /// waits for the other's conflict, at most [`LONGEST_WAIT`].
    objects: HashMap<u64, Repaired>,
    /// Programs of the conflict that was reported, without and with process IDs.
    reported: Option<(Programs, Vec<Box<str>>)>,
    /// Objects that the plan repairs, until it is committed.
    planned: Vec<u64>,
    /// Objects that began to wait since the last report: their number, and the first one.
    began: Option<(usize, String)>,
    /// The last change that was not reported.
    change: Option<RepairConflictChange>,
}

/// The repairs of an object.
#[derive(Clone, Debug)]
struct Repaired {
    /// The programs that undid all of the repairs.
    programs: Programs,
    /// Times of the last repairs, in ascending order.
    times: [Option<Duration>; IMMEDIATE_REPAIRS],
    /// Time between two repairs. `None` if repairs are immediate. Once set, it only grows until the
    /// history ends.
    wait: Option<Duration>,
    /// Whether the object is not repaired now.
    is_held: bool,
}

impl Repaired {
    fn new(programs: Programs) -> Self {
        Self {
            programs,
            times: [None; IMMEDIATE_REPAIRS],
            wait: None,
            is_held: false,
        }
    }

    /// The time of the last repair. Zero before the first one has been committed, which is
    /// harmless: without a wait [`next`](Self::next) does not use it, and
    /// [`is_over`](Self::is_over) ends a history without repairs.
    fn last(&self) -> Duration {
        let [.., last] = self.times;
        last.unwrap_or_default()
    }

    /// Returns the time at which the last repair counts as lasting.
    fn lasts_at(&self) -> Duration {
        // A program may come back as late as after the last wait, which may exceed the window.
        self.last() + self.wait.unwrap_or_default().max(WINDOW)
    }

    /// Returns whether the last repair has lasted. Never while the object waits, because then it is
    /// not repaired.
    fn is_over(&self, now: Duration) -> bool {
        !self.is_held && self.lasts_at() <= now
    }

    /// Records a repair. Of the times, the oldest leaves the list.
    fn repair(&mut self, now: Duration) {
        // The first wait follows the last immediate repair, and each repair after it doubles
        // the wait.
        self.wait = self.wait.map(|wait| (2 * wait).min(LONGEST_WAIT));
        self.times.rotate_left(1);
        self.times[IMMEDIATE_REPAIRS - 1] = Some(now);
        self.is_held = false;
    }

    /// Returns the time of the next repair if it is later than `now`.
    fn next(&mut self, now: Duration) -> Option<Duration> {
        // The list is full, and its oldest repair is recent: that many within the window.
        let oldest = self.times[0].filter(|&at| now.saturating_sub(at) < WINDOW);
        if self.wait.is_none() && oldest.is_some() {
            self.wait = Some(FIRST_WAIT);
        }
        let at = self.last() + self.wait?;
        self.is_held = now < at;
        self.is_held.then_some(at)
    }
}

impl Repairs {
    /// Returns whether nothing was repaired recently.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the number of objects whose repairs wait, or waited recently.
    pub(super) fn waiting(&self) -> usize {
        let objects = self.objects.values();
        objects.filter(|object| object.wait.is_some()).count()
    }

    /// Ends the history of an object whose plan changed.
    pub(super) fn forget<T: Keyed>(&mut self, object: &T) {
        self.objects.remove(&self.hasher.hash_one(object.key()));
    }

    /// Records that the planned repairs were committed at `now`. Without this call they do
    /// not count: a failing kernel is no other program.
    pub(super) fn committed(&mut self, now: Duration) {
        for hash in self.planned.drain(..) {
            // No history, if the plan of the object has changed since a commit that failed.
            if let Some(repaired) = self.objects.get_mut(&hash) {
                repaired.repair(now);
            }
        }
    }

    /// Begins the next plan. With `is_dumped` it has the edits of all objects, so that those
    /// without an edit do not wait any more.
    pub(super) fn begin(&mut self, is_dumped: bool) {
        // Those of a commit that failed.
        self.planned.clear();
        if !is_dumped {
            return;
        }
        for repaired in self.objects.values_mut() {
            repaired.is_held = false;
        }
    }

    /// Returns the time until which the repair of an object must wait. If it need not wait,
    /// plans the repair.
    ///
    /// `drift` has the changes that the plan repairs. Without it, only objects that wait
    /// count. `text` names the object in the report of a conflict, so it is called for the first
    /// object that begins to wait, and not for each of a flushed ruleset.
    pub(super) fn judge<T: Keyed>(
        &mut self,
        object: &T,
        drift: Option<&Drift>,
        now: Duration,
        text: impl FnOnce(&T) -> String,
    ) -> Option<Duration> {
        let hash = self.hasher.hash_one(object.key());
        let programs = drift.map(names);
        let known = self.objects.get_mut(&hash);
        let known = known.filter(|repaired| {
            let is_same = |others: &Programs| {
                let before = &repaired.programs;
                before.is_empty()
                    || others.is_empty()
                    || before.iter().any(|name| others.contains(name))
            };
            !repaired.is_over(now) && programs.as_ref().is_none_or(is_same)
        });
        let Some(repaired) = known else {
            // A history begins, in place of one that is over or of another program.
            match programs {
                Some(programs) => {
                    self.objects.insert(hash, Repaired::new(programs));
                    self.planned.push(hash);
                }
                // An ordinary edit repairs nothing.
                None => drop(self.objects.remove(&hash)),
            }
            return None;
        };
        match programs {
            Some(programs) => repaired.narrow(&programs),
            // Nobody is known to have undone the last repair, as after a failed sync.
            None if repaired.wait.is_none() => return None,
            // The wait is over, or a plan between drifts has the edit again: `next` tells which.
            None => {}
        }
        let had_waited = repaired.wait.is_some();
        let at = repaired.next(now);
        if !had_waited && repaired.wait.is_some() {
            let began = self.began.get_or_insert_with(|| (0, text(object)));
            began.0 += 1;
        }
        if at.is_none() {
            self.planned.push(hash);
        }
        at
    }

    /// Plans the repair of an object that should wait.
    pub(super) fn repair_anyway<T: Keyed>(&mut self, object: &T) {
        self.planned.push(self.hasher.hash_one(object.key()));
    }

    /// Notes the report of a conflict that began in a sync with these foreign changes.
    pub(super) fn note_change(&mut self, drift: Option<&Drift>) {
        let Some((objects, first)) = self.began.take() else {
            return;
        };
        let programs = drift.map_or_else(|| Arc::from([]), names);
        // A conflict about further objects with the same program is no news.
        let is_known = |(reported, _): &(Programs, _)| *reported == programs;
        if self.reported.as_ref().is_some_and(is_known) {
            return;
        }
        let processes = drift.map(|drift| drift.processes.clone());
        let processes = processes.unwrap_or_default();
        self.reported = Some((programs, processes.clone()));
        self.change = Some(RepairConflictChange::Began(RepairConflict {
            processes,
            objects,
            first,
        }));
    }

    /// Forgets objects whose last repair has lasted.
    pub(super) fn expire(&mut self, now: Duration) {
        if self.objects.is_empty() {
            return;
        }
        self.objects.retain(|_, repaired| !repaired.is_over(now));
        if self.objects.is_empty() {
            // After a flush there was one for each object.
            self.objects = HashMap::new();
        }
        if self.waiting() == 0
            && let Some((_, processes)) = self.reported.take()
        {
            self.change = Some(RepairConflictChange::Ended { processes });
        }
    }

    /// Returns the time at which the last wait ends if no repair is undone before.
    pub(super) fn end(&self) -> Option<Duration> {
        self.reported.as_ref()?;
        let objects = self.objects.values();
        let waiting = objects.filter(|object| object.wait.is_some());
        let ends = waiting.map(|object| (!object.is_held).then(|| object.lasts_at()));
        // An object that waits now has no end yet, and so the conflict has none. The reconciler has
        // the time of the postponed repair, from which on there is one.
        ends.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Removes and returns the beginning or the end of a conflict.
    pub(super) fn take_change(&mut self) -> Option<RepairConflictChange> {
        self.change.take()
    }
}

impl Repaired {
    /// Keeps the programs that also made the last changes. One that was there only once, beside the
    /// other, is not to blame.
    fn narrow(&mut self, others: &Programs) {
        if self.programs.is_empty() {
            self.programs = Arc::clone(others);
        } else if !others.is_empty() && self.programs != *others {
            let both = self.programs.iter().filter(|name| others.contains(name));
            self.programs = both.cloned().collect();
        }
    }
}

/// Returns the names of the programs without process IDs: each run of `nft` has another one.
fn names(drift: &Drift) -> Programs {
    let names = drift.processes.iter().map(|process| {
        let name = process.rsplit_once(" (");
        name.map_or(&**process, |(name, _)| name).into()
    });
    names.collect()
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

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn drift(by: &[&str]) -> Drift {
        Drift {
            changes: 1,
            processes: by.iter().map(|&process| process.into()).collect(),
            is_incomplete: false,
        }
    }

    impl Repairs {
        fn repair(&mut self, object: u8, by: &[&str], now: Duration) -> Option<Duration> {
            let drift = drift(by);
            self.expire(now);
            self.begin(false);
            let at = self.judge(&Entry(object), Some(&drift), now, |entry| {
                entry.0.to_string()
            });
            self.committed(now);
            self.note_change(Some(&drift));
            at
        }
    }

    #[test]
    fn three_repairs_are_immediate_and_then_the_wait_doubles_up_to_a_minute() {
        let mut repairs = Repairs::default();
        let (mut now, mut times) = (ms(0), Vec::new());
        while now < Duration::from_secs(300) {
            match repairs.repair(1, &["nft (7)"], now) {
                None => times.push(now.as_secs_f64().round()),
                Some(at) => now = at - ms(20),
            }
            now += ms(20);
        }
        let expected = [0., 0., 0., 1., 3., 7., 15., 31., 63., 123., 183., 243.];
        assert_eq!(times, expected);
    }

    #[test]
    fn another_object_another_program_and_a_new_plan_are_repaired_at_once() {
        let mut repairs = Repairs::default();
        for _ in 0..3 {
            assert_eq!(repairs.repair(1, &["nft (7)"], ms(0)), None);
        }
        assert!(repairs.repair(1, &["nft (8)"], ms(20)).is_some());
        assert_eq!(repairs.repair(2, &["nft (8)"], ms(20)), None);
        assert_eq!(repairs.repair(1, &["perl (9)"], ms(40)), None);
        for _ in 0..2 {
            assert_eq!(repairs.repair(1, &["perl (9)"], ms(40)), None);
        }
        assert!(repairs.repair(1, &["perl (9)"], ms(60)).is_some());
        repairs.forget(&Entry(1));
        assert_eq!(repairs.repair(1, &["perl (9)"], ms(60)), None);
    }

    #[test]
    fn programs_without_names_count_as_one() {
        let mut repairs = Repairs::default();
        for _ in 0..3 {
            assert_eq!(repairs.repair(1, &[], ms(0)), None);
        }
        assert_eq!(repairs.repair(1, &[], ms(20)), Some(ms(1000)));
        assert_eq!(repairs.repair(1, &["nft (7)"], ms(30)), Some(ms(1000)));
    }

    #[test]
    fn rare_changes_never_wait() {
        let mut repairs = Repairs::default();
        for round in 0..100 {
            let now = Duration::from_secs(5 * round);
            assert_eq!(repairs.repair(1, &["nft (7)"], now), None, "{now:?}");
        }
    }

    #[test]
    fn a_conflict_is_reported_at_its_beginning_and_at_its_end() {
        let mut repairs = Repairs::default();
        for object in [1, 2] {
            for _ in 0..3 {
                repairs.repair(object, &["nft (7)"], ms(0));
            }
        }
        assert!(repairs.take_change().is_none());
        for object in [1, 2] {
            repairs.repair(object, &["nft (7)"], ms(20));
        }
        let Some(RepairConflictChange::Began(began)) = repairs.take_change() else {
            panic!("the conflict began");
        };
        assert_eq!((&*began.first, began.objects), ("1", 1));
        assert_eq!(repairs.waiting(), 2);
        assert_eq!(repairs.end(), None, "the objects wait");
        for object in [1, 2] {
            assert_eq!(repairs.repair(object, &["nft (7)"], ms(1000)), None);
        }
        assert_eq!(repairs.end(), Some(ms(11_000)));
        repairs.expire(ms(10_999));
        assert!(repairs.take_change().is_none());
        repairs.expire(ms(11_000));
        let ended = RepairConflictChange::Ended {
            processes: vec!["nft (7)".into()],
        };
        assert_eq!(repairs.take_change(), Some(ended));
        assert!(repairs.is_empty());
        assert_eq!(repairs.repair(1, &["nft (7)"], ms(11_000)), None);
    }

    #[test]
    fn an_object_that_the_other_program_restored_no_longer_waits() {
        let mut repairs = Repairs::default();
        for _ in 0..4 {
            repairs.repair(1, &["nft (7)"], ms(0));
        }
        assert_eq!((repairs.waiting(), repairs.end()), (1, None));
        // The next plan has no edit of the object.
        repairs.begin(true);
        repairs.expire(ms(10_000));
        assert!(repairs.is_empty());
    }
}
