//! Laws of edits, ledgers and reconcilers, for any states, owners, failures and orders of
//! events.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use vipline_reconcile::{Edit, Keyed, Ledger, Memory, Pending, Reconciler, Target, diff};

/// An entry whose `note` does not exist in the kernel.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: u8,
    value: u8,
    note: u8,
}

/// A key whose hash collides with those of many other keys.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Key(u8);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.0 % 3);
    }
}

impl Keyed for Entry {
    type Key<'a> = Key;

    fn key(&self) -> Key {
        Key(self.key)
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The part of a state that exists in the kernel.
type State = BTreeMap<u8, u8>;

fn state<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> State {
    entries
        .into_iter()
        .map(|entry| (entry.key, entry.value))
        .collect()
}

fn entry() -> impl Strategy<Value = Entry> {
    (0..12u8, 0..3u8, any::<u8>()).prop_map(|(key, value, note)| Entry { key, value, note })
}

/// Generates a state: each key at most once, in any order.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    btree_map(0..12u8, (0..3u8, any::<u8>()), 0..12)
        .prop_map(|map| {
            map.into_iter()
                .map(|(key, (value, note))| Entry { key, value, note })
                .collect()
        })
        .prop_flat_map(|entries: Vec<Entry>| Just(entries).prop_shuffle())
}

fn memory(entries: &[Entry]) -> Memory<Entry> {
    let mut memory = Memory::new();
    for entry in entries {
        memory
            .edit_externally(Edit::Add(entry.clone()))
            .expect("keys are distinct");
    }
    memory
}

/// An event between or during reconciliations.
#[derive(Clone, Debug)]
enum Step {
    Replace(u8, Vec<Entry>),
    FailNext(usize),
    ExternalEdit(Entry),
    Reconcile,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, vec(entry(), 0..6)).prop_map(|(owner, wants)| Step::Replace(owner, wants)),
        1 => (0..4usize).prop_map(Step::FailNext),
        1 => entry().prop_map(Step::ExternalEdit),
        2 => Just(Step::Reconcile),
    ]
}

/// The desired state by definition: the first object of the least owner of each key.
fn sum(wants: &BTreeMap<u8, Vec<Entry>>) -> State {
    let mut sum = State::new();
    for entry in wants.values().flatten() {
        sum.entry(entry.key).or_insert(entry.value);
    }
    sum
}

/// Returns the first entry of each key.
fn first_of_each_key(entries: &[Entry]) -> Vec<Entry> {
    let mut first: Vec<Entry> = Vec::new();
    for entry in entries {
        if first.iter().all(|it| it.key != entry.key) {
            first.push(entry.clone());
        }
    }
    first
}

proptest! {
    #[test]
    fn the_first_of_several_objects_with_one_key_counts(
        installed in vec(entry(), 0..16),
        desired in vec(entry(), 0..16),
    ) {
        let (first, wanted) = (first_of_each_key(&installed), first_of_each_key(&desired));
        prop_assert_eq!(diff(installed, &desired), diff(first, &wanted));
    }

    #[test]
    fn a_state_does_not_differ_from_itself(entries in entries()) {
        prop_assert_eq!(diff(entries.clone(), &entries), vec![]);
    }

    #[test]
    fn objects_that_are_equivalent_to_the_kernel_do_not_differ(entries in entries(), note: u8) {
        let noted: Vec<_> = entries.iter().map(|e| Entry { note, ..*e }).collect();
        prop_assert_eq!(diff(entries, &noted), vec![]);
    }

    #[test]
    fn committing_the_difference_reaches_the_target(from in entries(), to in entries()) {
        let mut kernel = memory(&from);
        kernel.commit(&diff(from, &to)).expect("the edits fit the state");
        prop_assert_eq!(state(kernel.objects()), state(&to));
    }

    #[test]
    fn a_difference_names_each_key_once(from in entries(), to in entries()) {
        let edits = diff(from, &to);
        let mut keys: Vec<_> = edits.iter().map(Edit::key).collect();
        keys.sort_unstable();
        keys.dedup();
        prop_assert_eq!(keys.len(), edits.len());
    }

    #[test]
    fn pending_edits_have_the_result_of_the_single_edits(states in vec(entries(), 1..6)) {
        let mut kernel = memory(&states[0]);
        let mut pending = Pending::new();
        for pair in states.windows(2) {
            pending.extend(diff(pair[0].clone(), &pair[1]));
        }
        let edits = pending.take();
        prop_assert!(pending.is_empty());
        kernel.commit(&edits).expect("merged edits fit the first state");
        let last = states.last().expect("there is one");
        prop_assert_eq!(state(kernel.objects()), state(last));
        prop_assert_eq!(edits.len(), diff(states[0].clone(), last).len());
    }

    #[test]
    fn the_ledger_is_the_sum_of_its_fragments(steps in vec((0..4u8, vec(entry(), 0..6)), 0..30)) {
        let mut ledger = Ledger::new();
        let mut wants = BTreeMap::new();
        let mut installed: HashMap<Key, Entry> = HashMap::new();
        for (owner, objects) in steps {
            let mut pending = Pending::new();
            ledger.replace(owner, objects.clone(), Some(&mut pending));
            wants.insert(owner, objects);
            for edit in pending.take() {
                let key = edit.key();
                let (old, new) = edit.into_old_and_new();
                prop_assert_eq!(installed.get(&key).map(|e| e.value), old.map(|e| e.value));
                match new {
                    Some(new) => installed.insert(key, new),
                    None => installed.remove(&key),
                };
            }
            prop_assert_eq!(state(ledger.objects()), sum(&wants));
            prop_assert_eq!(state(installed.values()), sum(&wants));
            prop_assert_eq!(ledger.len(), sum(&wants).len());
            prop_assert_eq!(ledger.contains_owner(&owner), !wants[&owner].is_empty());
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        fragments in btree_map(0..6u8, vec(entry(), 0..6), 0..6),
        seed in vec(any::<u16>(), 6),
    ) {
        let mut order: Vec<_> = fragments.keys().copied().collect();
        order.sort_by_key(|owner| seed[usize::from(*owner)]);
        let mut ledger = Ledger::new();
        for owner in order {
            ledger.replace(owner, fragments[&owner].clone(), None);
        }
        prop_assert_eq!(state(ledger.objects()), sum(&fragments));
    }

    #[test]
    fn a_key_with_many_claims_is_held_by_the_least_owner(
        steps in vec((0..40u8, vec(entry(), 0..3)), 0..200),
    ) {
        let mut ledger = Ledger::new();
        let mut wants: BTreeMap<u8, Vec<Entry>> = BTreeMap::new();
        for (owner, mut objects) in steps {
            objects.iter_mut().for_each(|entry| entry.key %= 2);
            let shares = ledger.replace(owner, objects.clone(), None);
            let before = wants.insert(owner, objects).unwrap_or_default();
            let mut shares_by_definition = false;
            for key in [0, 1] {
                let wanting = wants.iter().filter(|(_, of)| of.iter().any(|e| e.key == key));
                let owners: Vec<_> = wanting.map(|(owner, _)| owner).collect();
                prop_assert_eq!(ledger.claim_count(&Key(key)), owners.len());
                let is_concerned = owners.contains(&&owner) || before.iter().any(|e| e.key == key);
                let others = owners.iter().filter(|other| ***other != owner).count();
                shares_by_definition |= is_concerned && others > 0;
                prop_assert_eq!(ledger.claimants(&Key(key)).collect::<Vec<_>>(), owners);
            }
            prop_assert_eq!(shares, shares_by_definition);
            prop_assert_eq!(state(ledger.objects()), sum(&wants));
            for (owner, objects) in &wants {
                let mut first: State = State::new();
                for entry in objects {
                    first.entry(entry.key).or_insert(entry.value);
                }
                prop_assert_eq!(state(ledger.objects_of(owner)), first);
            }
        }
    }

    #[test]
    fn any_history_ends_in_the_desired_state(steps in vec(step(), 0..60)) {
        let mut ledger = Ledger::new();
        let mut wants = BTreeMap::new();
        let mut reconciler = Reconciler::new(Memory::new());
        for step in steps {
            match step {
                Step::Replace(owner, objects) => {
                    wants.insert(owner, objects.clone());
                    ledger.replace(owner, objects, reconciler.pending());
                }
                Step::FailNext(applied) => reconciler.target_mut().fail_after(applied),
                Step::ExternalEdit(entry) => {
                    let rejected = reconciler.target_mut().edit_externally(Edit::Add(entry)).is_err();
                    if !rejected {
                        reconciler.forget();
                    }
                }
                Step::Reconcile => {
                    let failed = reconciler.reconcile(ledger.objects(), Duration::ZERO).is_err();
                    prop_assert_eq!(reconciler.is_known(), !failed);
                }
            }
        }
        // Each injected failure affects one commit; afterwards a commit must succeed.
        for _ in 0..=60 {
            if reconciler.reconcile(ledger.objects(), Duration::ZERO).is_ok() {
                break;
            }
        }
        prop_assert_eq!(state(reconciler.target().objects()), sum(&wants));
        let commits = reconciler.target().commits();
        reconciler.forget();
        let outcome = reconciler.reconcile(ledger.objects(), Duration::ZERO).expect("nothing to commit");
        prop_assert_eq!((outcome.edits, outcome.dumped), (0, true));
        prop_assert_eq!(reconciler.target().commits(), commits, "no drift, no commit");
    }
}

/// The preceding law allows a dump at every step; this test proves that none is needed.
#[test]
fn a_known_state_is_never_dumped_again() {
    let mut ledger = Ledger::new();
    let mut reconciler = Reconciler::new(Memory::new());
    for round in 0..100u8 {
        let entry = Entry {
            key: round % 7,
            value: round,
            note: 0,
        };
        ledger.replace(round % 3, vec![entry], reconciler.pending());
        reconciler
            .reconcile(ledger.objects(), Duration::ZERO)
            .expect("the edits fit");
    }
    assert_eq!(reconciler.target().dumps(), 1);
}

#[test]
fn replace_returns_whether_the_owner_shares_a_key() {
    let entry = |key| Entry {
        key,
        value: 0,
        note: 0,
    };
    let mut ledger = Ledger::new();
    assert!(!ledger.replace("a", [entry(1), entry(2)], None));
    assert!(!ledger.replace("b", [entry(3)], None));
    assert!(
        ledger.replace("b", [entry(3), entry(2)], None),
        "from now on"
    );
    assert!(ledger.replace("a", [entry(1)], None), "not any more");
    assert!(!ledger.replace("a", [entry(1)], None));
}

#[test]
fn a_ledger_lists_owners_objects_and_keys() {
    let entry = |key, value| Entry {
        key,
        value,
        note: 0,
    };
    let mut ledger = Ledger::new();
    assert!(ledger.is_empty());
    ledger.replace("younger", [entry(1, 7), entry(2, 8)], None);
    ledger.replace("older", [entry(2, 9)], None);
    assert!(!ledger.is_empty());
    let mut owned: Vec<_> = ledger
        .objects_with_owners()
        .map(|(owner, object)| (*owner, object.key, object.value))
        .collect();
    owned.sort_unstable();
    assert_eq!(owned, [("older", 2, 9), ("younger", 1, 7)]);
    let keys = |owner| {
        let mut keys: Vec<_> = ledger.keys_of(&owner).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys("younger"), [Key(1), Key(2)]);
    assert_eq!(keys("older"), [Key(2)]);
    assert_eq!(keys("unknown"), []);
}

#[test]
fn a_contested_key_goes_to_the_least_owner_and_back() {
    let entry = |value| {
        vec![Entry {
            key: 1,
            value,
            note: 0,
        }]
    };
    let mut ledger = Ledger::new();
    let replace = |ledger: &mut Ledger<_, _>, owner, objects| {
        let mut pending = Pending::new();
        ledger.replace(owner, objects, Some(&mut pending));
        pending.take()
    };
    replace(&mut ledger, "younger", entry(2));
    assert!(matches!(
        replace(&mut ledger, "older", entry(1)).as_slice(),
        [Edit::Change {
            old: Entry { value: 2, .. },
            new: Entry { value: 1, .. }
        }],
    ));
    let claimants: Vec<_> = ledger.claimants(&Key(1)).collect();
    assert_eq!(claimants, [&"older", &"younger"]);
    assert_eq!(
        replace(&mut ledger, "younger", entry(3)),
        vec![],
        "changes of an owner without the key have no effect"
    );
    assert!(matches!(
        replace(&mut ledger, "older", vec![]).as_slice(),
        [Edit::Change {
            new: Entry { value: 3, .. },
            ..
        }],
    ));
    assert_eq!(ledger.get(&Key(1)).map(|e| e.value), Some(3));
    assert!(!ledger.contains_owner(&"older"));
}
