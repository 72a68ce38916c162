//! A change in the making.

use std::mem;

use crate::counters::Requests;
use crate::{AllocationError, Change, Pool, Random, RepairReason, Scope, ServiceRef, Snapshot};

/// A change in the making, on top of what a store had.
#[derive(Debug)]
pub struct Draft<'a, P: Pool> {
    snapshot: &'a mut Snapshot<P>,
    steps: Vec<Step<P::Item>>,
    asked: Requests,
}

/// What has been done to the snapshot.
#[derive(Debug)]
enum Step<I> {
    Taken(I, ServiceRef),
    /// With who had it, if that is known.
    Freed(I, Option<ServiceRef>),
    /// With who had it by the record, and who has it now.
    HandedOver(I, ServiceRef, ServiceRef),
}

impl<'a, P: Pool> Draft<'a, P> {
    pub(crate) fn new(snapshot: &'a mut Snapshot<P>) -> Self {
        Self {
            snapshot,
            steps: Vec::new(),
            asked: Requests::default(),
        }
    }

    /// Returns what is taken, with what this change has done so far.
    #[must_use]
    pub const fn pool(&self) -> &P {
        &self.snapshot.pool
    }

    /// Returns who has an item, if that is known.
    #[must_use]
    pub fn owner(&self, item: P::Item) -> Option<&ServiceRef> {
        self.snapshot.owners.get(&item)
    }

    /// Returns why the store has to be repaired before anything else, if it has.
    #[must_use]
    pub const fn repair_reason(&self) -> Option<&RepairReason> {
        self.snapshot.repair_reason.as_ref()
    }

    /// Takes a certain item for a Service.
    ///
    /// # Errors
    ///
    /// A [`AllocationError`] if it is taken or not in a range.
    pub fn reserve(&mut self, item: P::Item, owner: &ServiceRef) -> Result<(), AllocationError> {
        let reserved = self.snapshot.pool.reserve(item);
        let ranges = self.snapshot.pool.counted_ranges(Some(item));
        self.asked.note(ranges, Scope::Static, reserved.is_ok());
        reserved?;
        self.take(item, owner);
        Ok(())
    }

    /// Takes any item for a Service.
    ///
    /// # Errors
    ///
    /// [`AllocationError::Full`].
    pub fn allocate(
        &mut self,
        owner: &ServiceRef,
        random: &mut Random<'_>,
    ) -> Result<P::Item, AllocationError> {
        let allocated = self.snapshot.pool.allocate(random);
        let ranges = self
            .snapshot
            .pool
            .counted_ranges(allocated.as_ref().ok().copied());
        self.asked.note(ranges, Scope::Dynamic, allocated.is_ok());
        let item = allocated?;
        self.take(item, owner);
        Ok(item)
    }

    /// Frees an item of a Service, and tells whether it was taken.
    ///
    /// # Errors
    ///
    /// [`AllocationError::OtherOwner`] if it is known to be another's.
    pub fn release(&mut self, item: P::Item, owner: &ServiceRef) -> Result<bool, AllocationError> {
        match self.snapshot.owners.get(&item) {
            Some(other) if other != owner => Err(AllocationError::OtherOwner {
                item: item.to_string().into(),
                owner: other.clone(),
            }),
            _ => Ok(self.free(item)),
        }
    }

    /// Frees an item, whoever has it, and tells whether it was taken.
    pub fn free(&mut self, item: P::Item) -> bool {
        let was_taken = self.snapshot.pool.release(item);
        if was_taken {
            let former = self.snapshot.owners.remove(&item);
            self.steps.push(Step::Freed(item, former));
        }
        was_taken
    }

    /// Takes an item that a Service has, which counts as no request.
    pub(crate) fn put_back(
        &mut self,
        item: P::Item,
        owner: &ServiceRef,
    ) -> Result<(), AllocationError> {
        self.snapshot.pool.reserve(item)?;
        self.take(item, owner);
        Ok(())
    }

    /// Makes an item a Service's that is recorded as another one's; it is never
    /// free in between.
    pub(crate) fn hand_over(&mut self, item: P::Item, owner: &ServiceRef) {
        if let Some(recorded) = self.snapshot.owners.get_mut(&item) {
            let former = mem::replace(recorded, owner.clone());
            let step = Step::HandedOver(item, former, owner.clone());
            self.steps.push(step);
        }
    }

    fn take(&mut self, item: P::Item, owner: &ServiceRef) {
        self.snapshot.owners.insert(item, owner.clone());
        self.steps.push(Step::Taken(item, owner.clone()));
    }

    /// Leaves the snapshot as it was.
    pub(crate) fn undo(&mut self) {
        for step in self.steps.drain(..).rev() {
            match step {
                Step::Taken(item, _) => {
                    self.snapshot.pool.release(item);
                    self.snapshot.owners.remove(&item);
                }
                Step::Freed(item, former) => {
                    let is_taken = self.snapshot.pool.restore(item);
                    debug_assert!(is_taken, "what was freed can be taken");
                    if let Some(owner) = former {
                        self.snapshot.owners.insert(item, owner);
                    }
                }
                Step::HandedOver(item, former, _) => {
                    self.snapshot.owners.insert(item, former);
                }
            }
        }
    }

    /// Returns what is to be made, in sum, and what was asked for.
    pub(crate) fn into_change(self) -> (Change<P::Item>, Requests) {
        let mut change = Change::default();
        for step in self.steps {
            match step {
                Step::Taken(item, owner) => change.take(item, owner),
                Step::Freed(item, former) => change.free(item, former),
                Step::HandedOver(item, former, owner) => {
                    change.free(item, Some(former));
                    change.take(item, owner);
                }
            }
        }
        (change, self.asked)
    }
}
