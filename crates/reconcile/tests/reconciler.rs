//! State and results of a reconciler, step by step.

use std::time::Duration;

use vipline_reconcile::{Edit, Keyed, Memory, MemoryError, Reconciler, Rejection, Target};

const EINVAL: i32 = 22;

/// Number of retries that are in one commit with other edits.
const TOGETHER: u16 = 16;

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

/// A target that replaces the state of another program in its first commit.
struct TakingOver(Memory<Entry>);

impl Target for TakingOver {
    type Object = Entry;
    type Error = MemoryError;

    fn dump(&mut self) -> Result<Vec<Entry>, MemoryError> {
        self.0.dump()
    }

    fn commit(&mut self, edits: &[Edit<Entry>]) -> Result<Vec<Rejection>, MemoryError> {
        self.0.commit(edits)
    }

    fn took_over(&self) -> bool {
        self.0.commits() == 1
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn entries(keys: impl IntoIterator<Item = u16>) -> Vec<Entry> {
    keys.into_iter().map(|key| Entry(key, 0)).collect()
}

/// Returns a reconciler that is synced with an empty target.
fn synced() -> Reconciler<Memory<Entry>> {
    let mut reconciler = Reconciler::new(Memory::new());
    reconciler.reconcile(&[], secs(0)).expect("no fault");
    reconciler
}

/// Adds edits to those of the next reconciliation.
fn push(reconciler: &mut Reconciler<Memory<Entry>>, edits: impl IntoIterator<Item = Edit<Entry>>) {
    reconciler
        .pending()
        .expect("the state is known")
        .extend(edits);
}

#[test]
fn a_state_is_settled_while_it_is_known_and_no_edit_is_pending() {
    let mut reconciler = Reconciler::new(Memory::new());
    let state = |it: &Reconciler<Memory<Entry>>| (it.is_known(), it.is_settled());
    assert_eq!(state(&reconciler), (false, false));
    let done = reconciler.reconcile(&[], secs(0)).expect("no fault");
    assert!(done.dumped && done.edits == 0);
    assert_eq!(state(&reconciler), (true, true));
    push(&mut reconciler, [Edit::Add(Entry(1, 0))]);
    assert_eq!(state(&reconciler), (true, false));
    let done = reconciler.reconcile(&[], secs(0)).expect("no fault");
    assert!(!done.dumped && done.edits == 1);
    assert_eq!(state(&reconciler), (true, true));
    reconciler.forget();
    assert_eq!(state(&reconciler), (false, false));
    assert!(reconciler.pending().is_none());
}

#[test]
fn a_failed_dump_or_commit_leaves_the_state_unknown() {
    let mut reconciler = synced();
    push(&mut reconciler, [Edit::Add(Entry(1, 0))]);
    reconciler.target_mut().fail_after(1);
    let failed = reconciler.reconcile(&entries([1]), secs(0));
    assert_eq!(failed.unwrap_err(), MemoryError::Injected);
    assert!(!reconciler.is_known());
    // The acknowledgment was lost, so nothing is missing.
    let done = reconciler.reconcile(&entries([1]), secs(0));
    let done = done.expect("no fault");
    assert!(done.dumped && done.edits == 0);
}

#[test]
fn committed_edits_of_a_plan_are_those_that_the_kernel_did_not_reject() {
    let mut reconciler = Reconciler::new(Memory::new());
    let desired = entries(1..=4);
    let mut plan = reconciler.plan(&desired, secs(0)).expect("no fault");
    assert_eq!(plan.committed().count(), 4);
    reconciler.commit(&mut plan, secs(0)).expect("no fault");
    assert_eq!(plan.committed().count(), 4);

    reconciler.forget();
    reconciler.target_mut().reject(Entry(6, 0), EINVAL);
    let mut plan = reconciler.plan(&entries(1..=7), secs(0)).expect("no fault");
    let done = reconciler.commit(&mut plan, secs(0)).expect("no fault");
    assert_eq!((done.edits, done.rejected), (2, 1));
    let mut keys: Vec<_> = plan.committed().map(Edit::key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [5, 7]);
    assert_eq!(reconciler.rejected_count(), 1);
}

#[test]
fn a_retry_can_be_requested_before_its_time() {
    let mut reconciler = synced();
    let (bad, good) = (Entry(1, 0), Entry(2, 0));
    reconciler.target_mut().reject(bad.clone(), EINVAL);
    push(&mut reconciler, [bad.clone(), good.clone()].map(Edit::Add));
    reconciler.reconcile(&[], secs(0)).expect("no fault");
    let rejected = reconciler.rejection(&bad).expect("the object is rejected");
    assert_eq!(rejected.reason.errno, Some(EINVAL));
    assert!(reconciler.rejection(&good).is_none());
    assert_eq!(reconciler.next_retry(), Some(secs(1)));
    reconciler.target_mut().accept(&bad);
    // Without a request, the object waits for its time.
    reconciler.retry(&good);
    let done = reconciler.reconcile(&[], secs(0)).expect("no fault");
    assert_eq!(done.edits, 0);
    reconciler.retry(&bad);
    assert_eq!(reconciler.next_retry(), Some(secs(0)));
    let done = reconciler.reconcile(&[], secs(0)).expect("no fault");
    assert_eq!((done.edits, done.dumped), (1, false));
    assert_eq!(reconciler.next_retry(), None);
}

#[test]
fn a_forgotten_rejection_is_sent_again_after_a_dump() {
    let mut reconciler = synced();
    let bad = Entry(1, 0);
    reconciler.target_mut().reject(bad.clone(), EINVAL);
    push(&mut reconciler, [Edit::Add(bad.clone())]);
    reconciler.reconcile(&[], secs(0)).expect("no fault");
    reconciler.target_mut().accept(&bad);
    reconciler.forget_rejected(&bad);
    assert!(reconciler.rejection(&bad).is_none() && !reconciler.is_known());
    let done = reconciler.reconcile(&[bad], secs(0)).expect("no fault");
    assert_eq!((done.edits, done.dumped), (1, true));
}

#[test]
fn many_retries_have_a_commit_of_their_own() {
    for (retries, commits) in [(TOGETHER, 1), (TOGETHER + 1, 2)] {
        let mut reconciler = synced();
        for key in 0..retries {
            reconciler.target_mut().reject(Entry(key, 0), EINVAL);
        }
        push(
            &mut reconciler,
            entries(0..retries).into_iter().map(Edit::Add),
        );
        reconciler.reconcile(&[], secs(0)).expect("no fault");
        let others = entries(100..103);
        push(&mut reconciler, others.into_iter().map(Edit::Add));
        let before = reconciler.target().commits();
        // All retries but the last one succeed. The kernel rejects one of the other edits.
        for key in 0..retries - 1 {
            reconciler.target_mut().accept(&Entry(key, 0));
        }
        reconciler.target_mut().reject(Entry(101, 0), EINVAL);
        let done = reconciler.reconcile(&[], secs(1)).expect("no fault");
        assert_eq!(reconciler.target().commits() - before, commits);
        assert_eq!(done.edits, usize::from(retries) + 1);
        let mut rejected: Vec<_> = reconciler.rejected().map(|it| it.object.0).collect();
        rejected.sort_unstable();
        assert_eq!(rejected, [retries - 1, 101]);
        let installed = reconciler.target().objects().count();
        assert_eq!(installed, usize::from(retries) + 1);
    }
}

#[test]
fn a_commit_that_replaces_the_state_of_another_program_is_reported() {
    let mut reconciler = Reconciler::new(TakingOver(Memory::new()));
    let done = reconciler.reconcile(&entries([1]), secs(0));
    assert!(done.expect("no fault").took_over);
    reconciler.forget();
    let done = reconciler.reconcile(&entries([1, 2]), secs(0));
    assert!(!done.expect("no fault").took_over);
}
