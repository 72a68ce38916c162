//! A store that conflicts and fails as it is told, and that checks what it is
//! asked to write.

use std::cell::{Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use vipline_service_ip::{Change, CommitError, Pool, Snapshot, Store, StoreError, Version};

/// What happens when a change is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is made.
    None,
    /// Somebody else was faster, and what there is now is told, or not.
    Conflict { is_told: bool },
    /// It is not made.
    Failed,
    /// It is made or not, and nobody is told.
    Unknown { is_made: bool },
}

/// What others do before a change is made.
type Meanwhile<P> = Box<dyn FnOnce(&mut Snapshot<P>)>;

/// What there is, shared by all who look at it.
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
    /// Returns a store with what is taken, by whom nobody knows.
    pub(crate) fn new(pool: P) -> Self {
        let snapshot = Snapshot {
            pool,
            owners: [].into(),
            version: Version(1),
            repair_reason: None,
        };
        Self(Rc::new(RefCell::new(Truth {
            snapshot,
            faults: [].into(),
            meanwhile: [].into(),
            commits: 0,
        })))
    }

    /// Has the next changes end like that, and those after them well.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.borrow_mut().faults = faults.into_iter().collect();
    }

    /// Has somebody else change what is taken just before the next change.
    pub(crate) fn meanwhile(&self, act: impl FnOnce(&mut Snapshot<P>) + 'static) {
        self.0.borrow_mut().meanwhile.push_back(Box::new(act));
    }

    /// Returns what there is.
    pub(crate) fn look(&self) -> Ref<'_, Snapshot<P>> {
        Ref::map(self.0.borrow(), |truth| &truth.snapshot)
    }

    /// Returns how many changes were made.
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
                // Somebody took and freed again what is of no interest.
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

/// Makes a change as it is written down: what is freed was taken, by whom it
/// says, and what is taken was free.
fn apply<P: Pool>(snapshot: &mut Snapshot<P>, change: &Change<P::Item>) {
    for (item, owner) in &change.freed {
        assert!(snapshot.pool.release(*item), "{item} was taken");
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
