//! A store with injected conflicts and failures that validates all changes.

use std::cell::{Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use vipline_service_ip::{Change, CommitError, Pool, Snapshot, Store, StoreError, Version};

/// Outcome of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The change is applied.
    None,
    /// Conflict, with or without the current state.
    Conflict { is_told: bool },
    /// The change is not applied.
    Failed,
    /// The outcome is unknown. Holds whether the change is applied.
    Unknown { is_made: bool },
}

/// Changes by other processes before a commit.
type Meanwhile<P> = Box<dyn FnOnce(&mut Snapshot<P>)>;

/// State of the store, shared by all handles.
pub(crate) struct Faulty<P: Pool>(Rc<RefCell<Truth<P>>>);

struct Truth<P: Pool> {
    snapshot: Snapshot<P>,
    faults: VecDeque<Fault>,
    meanwhile: VecDeque<Meanwhile<P>>,
    commits: usize,
}

impl<P: Pool> Clone for Faulty<P> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<P: Pool + Clone> Faulty<P> {
    /// Returns a store with allocated items without owners.
    pub(crate) fn new(pool: P) -> Self {
        let snapshot = Snapshot::new(pool, Version(1));
        Self(Rc::new(RefCell::new(Truth {
            snapshot,
            faults: [].into(),
            meanwhile: [].into(),
            commits: 0,
        })))
    }

    /// Sets the outcomes of the next commits. Later commits succeed.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.borrow_mut().faults = faults.into_iter().collect();
    }

    /// Changes the state just before the next commit, as another process.
    pub(crate) fn meanwhile(&self, act: impl FnOnce(&mut Snapshot<P>) + 'static) {
        self.0.borrow_mut().meanwhile.push_back(Box::new(act));
    }

    /// Returns the state.
    pub(crate) fn look(&self) -> Ref<'_, Snapshot<P>> {
        Ref::map(self.0.borrow(), |truth| &truth.snapshot)
    }

    /// Returns the number of applied changes.
    pub(crate) fn commits(&self) -> usize {
        self.0.borrow().commits
    }
}

impl<P: Pool + Clone> Store<P> for Faulty<P> {
    fn load(&mut self) -> Result<Snapshot<P>, StoreError> {
        Ok(self.look().clone())
    }

    fn commit(
        &mut self,
        base: Version,
        change: &Change<P::Item>,
        after: &Snapshot<P>,
    ) -> Result<Version, CommitError<P>> {
        let truth = &mut *self.0.borrow_mut();
        if let Some(act) = truth.meanwhile.pop_front() {
            act(&mut truth.snapshot);
            truth.snapshot.version.0 += 1;
        }
        let now = || Some(Box::new(truth.snapshot.clone()));
        let fault = truth.faults.pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::Failed => return Err(CommitError::Failed(unavailable())),
            Fault::Unknown { is_made: false } => {
                return Err(CommitError::Unknown(unavailable()));
            }
            Fault::Conflict { is_told } => {
                let now = if is_told { now() } else { None };
                // Another process changed the version only.
                truth.snapshot.version.0 += 1;
                return Err(CommitError::Conflict { now });
            }
            _ if truth.snapshot.version != base => {
                return Err(CommitError::Conflict { now: now() });
            }
            Fault::None | Fault::Unknown { is_made: true } => {}
        }
        apply(&mut truth.snapshot, change);
        truth.snapshot.repair_reason = None;
        assert!(truth.snapshot.pool.items().eq(after.pool.items()));
        assert_eq!(truth.snapshot.owners, after.owners);
        truth.snapshot.version.0 += 1;
        truth.commits += 1;
        match fault {
            Fault::None => Ok(truth.snapshot.version),
            _ => Err(CommitError::Unknown(unavailable())),
        }
    }
}

/// Applies a change. Checks that released items were allocated to the given owners, and
/// that allocated items were free.
fn apply<P: Pool>(snapshot: &mut Snapshot<P>, change: &Change<P::Item>) {
    for (item, owner) in &change.freed {
        assert!(snapshot.pool.release(*item), "{item} is allocated");
        assert_eq!(snapshot.owners.remove(item), *owner, "{item}");
    }
    for (item, owner) in &change.taken {
        assert_eq!(snapshot.pool.reserve(*item), Ok(()), "{item}");
        snapshot.owners.insert(*item, owner.clone());
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable {
        operation: "writing",
        object: "the test".into(),
        source: "out of order".into(),
    }
}
