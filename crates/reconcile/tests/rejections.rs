//! Laws of rejected objects: a rejection does not affect other objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use vipline_reconcile::{
    Atomicity, Cause, Edit, Keyed, Ledger, MAX_REJECTED_BATCHES, Memory, Reconciler,
};

const EINVAL: i32 = 22;
const EEXIST: i32 = 17;

/// Error numbers with which kernels reject one object: `ENOENT`, `ENOMEM`,
/// `EBUSY`, `EEXIST`, `EINVAL`, `ENOSPC` and `E2BIG`.
const ERRNOS: [i32; 7] = [2, 12, 16, EEXIST, EINVAL, 28, 7];

const ATOMICITIES: [Atomicity; 4] = [
    Atomicity::Single,
    Atomicity::NamesFirst,
    Atomicity::NamesAll,
    Atomicity::NamesNone,
];

#[derive(Clone, Debug, PartialEq)]
struct Entry(u16, u8);

impl Keyed for Entry {
    type Key<'a> = u16;

    fn key(&self) -> u16 {
        self.0
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

type State = BTreeMap<u16, u8>;

fn entries(state: &State) -> Vec<Entry> {
    state
        .iter()
        .map(|(&key, &value)| Entry(key, value))
        .collect()
}

fn installed(reconciler: &Reconciler<Memory<Entry>>) -> State {
    let objects = reconciler.target().objects();
    objects.map(|entry| (entry.0, entry.1)).collect()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A ledger and a reconciler whose target equals it.
struct Synced {
    ledger: Ledger<u8, Entry>,
    reconciler: Reconciler<Memory<Entry>>,
}

impl Synced {
    fn new(state: &State, atomicity: Atomicity) -> Self {
        let mut memory = Memory::new();
        memory.set_atomicity(atomicity);
        let mut synced = Self {
            ledger: Ledger::new(),
            reconciler: Reconciler::new(memory),
        };
        synced.want(state);
        synced.sync(secs(0));
        synced
    }

    fn want(&mut self, state: &State) {
        self.ledger
            .replace(0, entries(state), self.reconciler.pending());
    }

    fn sync(&mut self, now: Duration) -> vipline_reconcile::Outcome {
        let outcome = self.reconciler.reconcile(self.ledger.objects(), now);
        outcome.expect("a rejected object is no error")
    }
}

/// Returns the state of a kernel after an edit from `before` to `after`, if it rejects
/// the objects of some keys.
fn expected(before: &State, after: &State, rejected: &BTreeSet<u16>) -> State {
    let of = |key| match rejected.contains(&key) {
        true => before.get(&key),
        false => after.get(&key),
    };
    let keys = before.keys().chain(after.keys());
    keys.filter_map(|&key| Some((key, *of(key)?))).collect()
}

fn state() -> impl Strategy<Value = State> {
    btree_map(0..40_u16, 0..3_u8, 0..40)
}

proptest! {
    #[test]
    fn all_objects_except_the_rejected_ones_equal_the_desired_state(
        before in state(),
        after in state(),
        rejected in btree_set(0..40_u16, 0..8),
        errno in 0..ERRNOS.len(),
        atomicity in 0..ATOMICITIES.len(),
        is_known: bool,
    ) {
        let mut synced = Synced::new(&before, ATOMICITIES[atomicity]);
        for &key in &rejected {
            synced.reconciler.target_mut().reject(Entry(key, 0), ERRNOS[errno]);
        }
        if !is_known {
            synced.reconciler.forget();
        }
        synced.want(&after);
        let sent = synced.reconciler.target().attempts();
        synced.sync(secs(0));
        let sent = synced.reconciler.target().attempts() - sent;
        prop_assert_eq!(installed(&synced.reconciler), expected(&before, &after, &rejected));
        // A conflict is sent once more after a dump.
        prop_assert!(sent <= 2 * (2 + 2 * 6 * rejected.len()), "{} batches", sent);

        // No rejected object is sent again before its retry is due.
        let sent = synced.reconciler.target().attempts();
        synced.sync(Duration::from_millis(900));
        synced.reconciler.forget();
        synced.sync(Duration::from_millis(999));
        prop_assert_eq!(synced.reconciler.target().attempts(), sent);

        // After the kernel accepts the objects, its state is the desired one.
        for &key in &rejected {
            synced.reconciler.target_mut().accept(&Entry(key, 0));
        }
        if let Some(next) = synced.reconciler.next_retry() {
            synced.sync(next);
        }
        prop_assert_eq!(installed(&synced.reconciler), after);
        prop_assert_eq!(synced.reconciler.rejected_count(), 0);
        prop_assert_eq!(synced.reconciler.next_retry(), None);
    }

    #[test]
    fn any_history_of_rejections_ends_in_the_desired_state(
        steps in vec((state(), btree_set(0..40_u16, 0..4), 0..ERRNOS.len(), 0..4_u64), 1..12),
        atomicity in 0..ATOMICITIES.len(),
    ) {
        let mut synced = Synced::new(&State::new(), ATOMICITIES[atomicity]);
        let mut now = secs(0);
        for (wanted, rejected, errno, seconds) in &steps {
            for key in 0..40 {
                let memory = synced.reconciler.target_mut();
                match rejected.contains(&key) {
                    true => memory.reject(Entry(key, 0), ERRNOS[*errno]),
                    false => memory.accept(&Entry(key, 0)),
                }
            }
            synced.want(wanted);
            now += secs(*seconds);
            synced.sync(now);
            let missing = synced.reconciler.rejected().map(|it| it.object.0).collect();
            let right = expected(&installed(&synced.reconciler), wanted, &missing);
            prop_assert_eq!(installed(&synced.reconciler), right);
        }
        (0..40).for_each(|key| synced.reconciler.target_mut().accept(&Entry(key, 0)));
        if let Some(last) = synced.reconciler.rejected().map(|it| it.retry_at).max() {
            synced.sync(last.max(now));
        }
        prop_assert_eq!(&installed(&synced.reconciler), &steps.last().unwrap().0);
    }
}

#[test]
fn a_rejected_object_is_sent_once_per_delay_despite_other_syncs() {
    let mut synced = Synced::new(&State::new(), Atomicity::NamesAll);
    let bad = Entry(1, 0);
    synced.reconciler.target_mut().reject(bad.clone(), EINVAL);
    let mut times = Vec::new();
    for tenth in 0..36_000_u32 {
        let now = Duration::from_millis(100) * tenth;
        let before = synced.reconciler.target().rejections(&bad);
        // Other objects change, and the kernel's state becomes unknown.
        let other = u16::try_from(tenth % 7).unwrap() + 2;
        synced.want(&State::from([(1, 0), (other, 0)]));
        if tenth % 10 == 3 {
            synced.reconciler.forget();
        }
        synced.sync(now);
        if synced.reconciler.target().rejections(&bad) > before {
            times.push(now);
        }
    }
    let delays: Vec<_> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert_eq!(delays[..4], [1, 3, 4, 8]);
    assert!(delays.iter().all(|&delay| delay <= 600), "{delays:?}");
    assert_eq!(delays[delays.len() - 5..], [300; 5]);
}

#[test]
fn a_changed_object_is_sent_immediately() {
    let mut synced = Synced::new(&State::from([(1, 0)]), Atomicity::Single);
    synced.reconciler.target_mut().reject(Entry(1, 0), EINVAL);
    synced.want(&State::from([(1, 1)]));
    synced.sync(secs(0));
    synced.reconciler.target_mut().accept(&Entry(1, 0));
    synced.want(&State::from([(1, 2)]));
    assert_eq!(synced.sync(secs(0)).edits, 1);
    assert_eq!(installed(&synced.reconciler), State::from([(1, 2)]));
}

#[test]
fn a_withdrawn_object_is_no_longer_rejected() {
    let before = State::from([(1, 0)]);
    let mut synced = Synced::new(&before, Atomicity::Single);
    synced.reconciler.target_mut().reject(Entry(1, 0), EINVAL);
    synced.reconciler.target_mut().reject(Entry(2, 0), EINVAL);
    synced.want(&State::from([(1, 1), (2, 0)]));
    assert_eq!(synced.sync(secs(0)).rejected, 2);
    synced.want(&before);
    let outcome = synced.sync(secs(0));
    assert_eq!((outcome.edits, outcome.rejected), (0, 0));
    assert_eq!(synced.reconciler.rejected_count(), 0);
    assert_eq!(installed(&synced.reconciler), before);
}

#[test]
fn a_rejection_is_returned_as_new_once() {
    let mut synced = Synced::new(&State::new(), Atomicity::Single);
    synced.reconciler.target_mut().reject(Entry(1, 0), EINVAL);
    synced.want(&State::from([(1, 0), (2, 0)]));
    synced.sync(secs(0));
    let news = synced.reconciler.take_new_rejections();
    let [rejected] = &*news else {
        panic!("one object: {news:?}");
    };
    assert_eq!(
        (&rejected.object, rejected.reason.errno),
        (&Entry(1, 0), Some(EINVAL))
    );
    synced.sync(secs(10));
    assert_eq!(synced.reconciler.rejected().next().unwrap().attempts, 2);
    assert!(synced.reconciler.take_new_rejections().is_empty());
    // Another object under the key is another rejection.
    synced.want(&State::from([(1, 7), (2, 0)]));
    synced.sync(secs(11));
    assert_eq!(synced.reconciler.take_new_rejections().len(), 1);
}

#[test]
fn a_conflict_is_resolved_by_a_dump_at_once() {
    let mut synced = Synced::new(&State::from([(1, 0)]), Atomicity::Single);
    let memory = synced.reconciler.target_mut();
    memory.edit_externally(Edit::Add(Entry(2, 5))).unwrap();
    memory.reject(Entry(3, 0), EEXIST);
    let dumps = memory.dumps();
    synced.want(&State::from([(1, 0), (3, 0)]));
    let outcome = synced.sync(secs(0));
    assert!(outcome.dumped);
    assert_eq!(installed(&synced.reconciler), State::from([(1, 0)]));
    assert_eq!(synced.reconciler.target().dumps(), dumps + 1);
    let rejected = synced.reconciler.rejected().next().unwrap();
    assert_eq!(rejected.reason.cause, Cause::Conflict);
    // The object is isolated now: other changes need no dump.
    synced.want(&State::from([(1, 0), (3, 0), (4, 0)]));
    assert!(!synced.sync(Duration::from_millis(500)).dumped);
    assert!(
        synced.sync(secs(10)).dumped,
        "the retry of a conflict needs a dump"
    );
}

#[test]
fn the_number_of_batches_is_bounded_for_any_rejections() {
    for atomicity in ATOMICITIES {
        let plan: State = (0..450).map(|key| (key, 0)).collect();
        let mut synced = Synced::new(&State::new(), atomicity);
        let is_bad = |key: u16| key.is_multiple_of(3);
        for key in (0..450).filter(|&key| is_bad(key)) {
            synced.reconciler.target_mut().reject(Entry(key, 0), EINVAL);
        }
        synced.want(&plan);
        synced.sync(secs(0));
        let attempts = synced.reconciler.target().attempts();
        assert!(
            attempts <= 3 * MAX_REJECTED_BATCHES,
            "{atomicity:?}: {attempts}"
        );
        // All valid objects are installed within minutes, although each sync tests only a few.
        let mut now = secs(0);
        while now < secs(3600) {
            now = synced.reconciler.next_retry().unwrap().max(now);
            synced.sync(now);
            if installed(&synced.reconciler).len()
                == plan.keys().filter(|&&key| !is_bad(key)).count()
            {
                break;
            }
        }
        assert!(
            installed(&synced.reconciler)
                .keys()
                .all(|&key| !is_bad(key))
        );
        let rejected: BTreeSet<_> = synced.reconciler.rejected().map(|it| it.object.0).collect();
        assert!(
            rejected.iter().all(|&key| is_bad(key)),
            "{atomicity:?} at {now:?}"
        );
    }
}

#[test]
fn hundreds_of_rejected_objects_do_not_delay_a_new_object() {
    const BAD: u16 = 500;
    for atomicity in ATOMICITIES {
        let mut plan: State = (0..BAD).map(|key| (key, 0)).collect();
        let mut synced = Synced::new(&State::new(), atomicity);
        for key in 0..BAD {
            synced.reconciler.target_mut().reject(Entry(key, 0), EINVAL);
        }
        synced.want(&plan);
        synced.sync(secs(0));
        for second in 1..8 {
            let new = BAD + second;
            plan.insert(new, 0);
            synced.want(&plan);
            let before = synced.reconciler.target().attempts();
            synced.sync(secs(second.into()));
            let attempts = synced.reconciler.target().attempts() - before;
            let is_there = installed(&synced.reconciler).contains_key(&new);
            assert!(is_there, "{atomicity:?} after {second} s");
            assert!(
                attempts <= 3 * MAX_REJECTED_BATCHES,
                "{atomicity:?}: {attempts} batches"
            );
        }
        assert_eq!(synced.reconciler.rejected_count(), usize::from(BAD));
    }
}

#[test]
fn an_untested_object_is_reported_again_after_its_first_rejection() {
    const BAD: u16 = 300;
    let mut synced = Synced::new(&State::new(), Atomicity::NamesFirst);
    for key in 0..BAD {
        synced.reconciler.target_mut().reject(Entry(key, 0), EINVAL);
    }
    synced.want(&(0..BAD).map(|key| (key, 0)).collect());
    let mut reports = vec![Vec::new(); BAD.into()];
    for second in 0..20 {
        synced.sync(secs(second));
        for rejected in synced.reconciler.take_new_rejections() {
            reports[usize::from(rejected.object.0)].push(rejected.reason.cause);
        }
    }
    assert!(reports.contains(&vec![Cause::Rejected]));
    assert!(reports.contains(&vec![Cause::Untested, Cause::Rejected]));
    let is_right =
        |causes: &Vec<Cause>| causes.last() == Some(&Cause::Rejected) && causes.len() < 3;
    assert!(reports.iter().all(is_right), "{reports:?}");
}
