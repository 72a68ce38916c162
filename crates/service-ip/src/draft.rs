//! Planning of a change.

use std::mem;

use crate::counters::Requests;
use crate::{
    AllocationError, Change, OwnerRef, Pool, Random, RepairReason, Reservations, Scope, Snapshot,
};

/// A planned change on a snapshot of a store.
#[derive(Debug)]
pub struct Draft<'a, P: Pool> {
    snapshot: &'a mut Snapshot<P>,
    reservations: &'a Reservations<P::Item>,
    steps: Vec<Step<P::Item>>,
    asked: Requests,
}

/// A step that has been applied to the snapshot.
#[derive(Debug)]
enum Step<I> {
    Taken(I, OwnerRef),
    /// With the former owner, if known.
    Freed(I, Option<OwnerRef>),
    /// With the former and the new owner.
    Reassigned(I, OwnerRef, OwnerRef),
}

impl<'a, P: Pool> Draft<'a, P> {
    pub(crate) fn new(
        snapshot: &'a mut Snapshot<P>,
        reservations: &'a Reservations<P::Item>,
    ) -> Self {
        Self {
            snapshot,
            reservations,
            steps: Vec::new(),
            asked: Requests::default(),
        }
    }

    /// Returns the allocator, with the changes of this draft applied.
    #[must_use]
    pub const fn pool(&self) -> &P {
        &self.snapshot.pool
    }

    /// Returns the owner of an item, if known.
    #[must_use]
    pub fn owner(&self, item: P::Item) -> Option<&OwnerRef> {
        self.snapshot.owners.get(&item)
    }

    /// Returns the reserved and the excluded items.
    #[must_use]
    pub const fn reservations(&self) -> &Reservations<P::Item> {
        self.reservations
    }

    /// Returns the reason why the store requires a repair pass, if it does.
    #[must_use]
    pub const fn repair_reason(&self) -> Option<&RepairReason> {
        self.snapshot.repair_reason.as_ref()
    }

    /// Allocates a specific item for a Service (static allocation).
    ///
    /// # Errors
    ///
    /// - [`AllocationError::Reserved`]: the item is reserved for another owner.
    /// - [`AllocationError::Excluded`]: the item is excluded from allocation.
    /// - All errors of [`Pool::reserve`].
    pub fn reserve(&mut self, item: P::Item, owner: &OwnerRef) -> Result<(), AllocationError> {
        let is_allowed = self.reservations.check(item, owner);
        let reserved = is_allowed.and_then(|()| self.snapshot.pool.reserve(item));
        let ranges = self.snapshot.pool.counted_ranges(Some(item));
        self.asked.note(ranges, Scope::Static, reserved.is_ok());
        reserved?;
        self.take(item, owner);
        Ok(())
    }

    /// Allocates any item for a Service (dynamic allocation).
    ///
    /// # Errors
    ///
    /// As for [`Pool::allocate`].
    pub fn allocate(
        &mut self,
        owner: &OwnerRef,
        random: &mut Random<'_>,
    ) -> Result<P::Item, AllocationError> {
        let pool = &mut self.snapshot.pool;
        let allocated = match self.reservations.is_empty() {
            true => pool.allocate(random),
            false => pool.allocate_unreserved(self.reservations, random),
        };
        let ranges = self
            .snapshot
            .pool
            .counted_ranges(allocated.as_ref().ok().copied());
        self.asked.note(ranges, Scope::Dynamic, allocated.is_ok());
        let item = allocated?;
        self.take(item, owner);
        Ok(item)
    }

    /// Releases an item of a Service. Returns whether it was allocated.
    ///
    /// # Errors
    ///
    /// [`AllocationError::OtherOwner`]: the item is known to belong to another Service.
    pub fn release(&mut self, item: P::Item, owner: &OwnerRef) -> Result<bool, AllocationError> {
        match self.snapshot.owners.get(&item) {
            Some(other) if other != owner => Err(AllocationError::OtherOwner {
                item: item.to_string().into(),
                owner: other.clone().into(),
            }),
            _ => Ok(self.free(item)),
        }
    }

    /// Releases an item regardless of its owner. Returns whether it was allocated.
    pub fn free(&mut self, item: P::Item) -> bool {
        let was_taken = self.snapshot.pool.release(item);
        if was_taken {
            let former = self.snapshot.owners.remove(&item);
            self.steps.push(Step::Freed(item, former));
        }
        was_taken
    }

    /// Allocates an item that a Service already has, without counting a request.
    pub(crate) fn reserve_uncounted(
        &mut self,
        item: P::Item,
        owner: &OwnerRef,
    ) -> Result<(), AllocationError> {
        self.snapshot.pool.reserve(item)?;
        self.take(item, owner);
        Ok(())
    }

    /// Changes the recorded owner of an item without releasing it.
    pub(crate) fn reassign(&mut self, item: P::Item, owner: &OwnerRef) {
        if let Some(recorded) = self.snapshot.owners.get_mut(&item) {
            let former = mem::replace(recorded, owner.clone());
            let step = Step::Reassigned(item, former, owner.clone());
            self.steps.push(step);
        }
    }

    fn take(&mut self, item: P::Item, owner: &OwnerRef) {
        self.snapshot.owners.insert(item, owner.clone());
        self.steps.push(Step::Taken(item, owner.clone()));
    }

    /// Reverts the snapshot to its initial state.
    pub(crate) fn undo(&mut self) {
        for step in self.steps.drain(..).rev() {
            match step {
                Step::Taken(item, _) => {
                    self.snapshot.pool.release(item);
                    self.snapshot.owners.remove(&item);
                }
                Step::Freed(item, former) => {
                    let is_taken = self.snapshot.pool.restore(item);
                    debug_assert!(is_taken, "a released item can be allocated again");
                    if let Some(owner) = former {
                        self.snapshot.owners.insert(item, owner);
                    }
                }
                Step::Reassigned(item, former, _) => {
                    self.snapshot.owners.insert(item, former);
                }
            }
        }
    }

    /// Returns the resulting change and the counted requests.
    pub(crate) fn into_change(self) -> (Change<P::Item>, Requests) {
        let mut change = Change::default();
        for step in self.steps {
            match step {
                Step::Taken(item, owner) => change.take(item, owner),
                Step::Freed(item, former) => change.free(item, former),
                Step::Reassigned(item, former, owner) => {
                    change.free(item, Some(former));
                    change.take(item, owner);
                }
            }
        }
        (change, self.asked)
    }
}
