//! Changes of a store in async code.

use super::attempts::{Attempts, By, Step};
use super::{Error, Registry};
use crate::{AllocationError, AsyncStore, Draft, OwnerRef, Pool, Snapshot};

impl<P: Pool, S: AsyncStore<P>> Registry<P, S> {
    /// Loads the current state of the store.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]: the store cannot be read.
    pub async fn refresh_async(&mut self) -> Result<&Snapshot<P>, Error> {
        self.last = None;
        Ok(self.last.insert(self.store.load().await?))
    }

    /// Allocates a specific item for an owner (static allocation).
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change_async`].
    pub async fn reserve_async(&mut self, item: P::Item, owner: &OwnerRef) -> Result<(), Error> {
        self.change_async(|draft| draft.reserve(item, owner)).await
    }

    /// Allocates any item for an owner (dynamic allocation).
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change_async`].
    pub async fn allocate_async(
        &mut self,
        owner: &OwnerRef,
        mut random: impl FnMut() -> u64,
    ) -> Result<P::Item, Error> {
        self.change_async(|draft| draft.allocate(owner, &mut random))
            .await
    }

    /// Releases an item of an owner. Returns whether it was allocated.
    ///
    /// # Errors
    ///
    /// All variants of [`Error`], see [`Self::change_async`].
    pub async fn release_async(&mut self, item: P::Item, owner: &OwnerRef) -> Result<bool, Error> {
        self.change_async(|draft| draft.release(item, owner)).await
    }

    /// Applies several allocations and releases atomically.
    ///
    /// Calls `plan` again after a conflict with another process.
    /// A future that is dropped before its end may have applied the change: the next method
    /// loads the store again.
    ///
    /// # Errors
    ///
    /// - [`Error::Allocation`]: `plan` failed. Nothing has changed.
    /// - [`Error::Contended`]: every attempt failed with a conflict.
    /// - [`Error::RepairRequired`]: the store requires a repair pass.
    /// - [`Error::Store`]: the store failed. Nothing has changed.
    /// - [`Error::Unknown`]: it is unknown whether the change was applied.
    pub async fn change_async<T>(
        &mut self,
        mut plan: impl FnMut(&mut Draft<'_, P>) -> Result<T, AllocationError>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new(By::Anyone);
        loop {
            match self.next_step(&mut attempts, &mut plan) {
                Step::Load => {
                    let snapshot = self.store.load().await?;
                    self.loaded(&mut attempts, snapshot);
                }
                Step::Commit(planned) => {
                    let (base, change, after) = planned.parts();
                    let committed = self.store.commit(base, change, after).await;
                    if let Some(value) = self.committed(&mut attempts, planned, committed)? {
                        return Ok(value);
                    }
                    self.store.wait(attempts.number).await;
                }
                Step::End(result) => return result,
            }
        }
    }
}
