//! The trait of allocators.

use std::fmt;

use crate::{AllocationError, Reservations, Usage};

/// A source of random numbers.
pub type Random<'a> = dyn FnMut() -> u64 + 'a;

/// An allocator for the items of one or several ranges.
pub trait Pool: fmt::Display {
    /// Type of an item: an address or a port.
    type Item: Copy + Ord + fmt::Debug + fmt::Display;

    /// Allocates a specific item (static allocation).
    ///
    /// # Errors
    ///
    /// - [`AllocationError::Allocated`]: the item is already allocated.
    /// - [`AllocationError::NotInRange`], [`AllocationError::MismatchedFamily`]: no range
    ///   contains the item.
    /// - [`AllocationError::NotReady`]: no ServiceCIDR of the item is ready.
    fn reserve(&mut self, item: Self::Item) -> Result<(), AllocationError>;

    /// Allocates any item (dynamic allocation).
    ///
    /// Uses the static band only if the dynamic band is full.
    ///
    /// # Errors
    ///
    /// - [`AllocationError::Full`]: no item is free.
    /// - [`AllocationError::NotReady`]: no ServiceCIDR is ready.
    fn allocate(&mut self, random: &mut Random<'_>) -> Result<Self::Item, AllocationError>;

    /// Allocates any item that is not reserved (dynamic allocation).
    ///
    /// Uses the static band only if no item of the dynamic band is left.
    ///
    /// # Errors
    ///
    /// As for [`Self::allocate`].
    fn allocate_unreserved(
        &mut self,
        reserved: &Reservations<Self::Item>,
        random: &mut Random<'_>,
    ) -> Result<Self::Item, AllocationError>;

    /// Releases an item. Returns whether it was allocated.
    fn release(&mut self, item: Self::Item) -> bool;

    /// Allocates a released item again. Returns whether this succeeded.
    fn restore(&mut self, item: Self::Item) -> bool {
        self.reserve(item).is_ok()
    }

    /// Returns whether an item is allocated.
    fn contains(&self, item: Self::Item) -> bool;

    /// Checks that an allocated item is still within a range.
    ///
    /// # Errors
    ///
    /// [`AllocationError::NotInRange`]: no range contains the item.
    fn check(&self, item: Self::Item) -> Result<(), AllocationError> {
        let _ = item;
        Ok(())
    }

    /// Returns the allocated items, in ascending order.
    fn items(&self) -> Box<dyn Iterator<Item = Self::Item> + '_>;

    /// Returns the usage of each range.
    fn usage(&self) -> Vec<Usage>;

    /// Returns the ranges whose metrics count a request for a specific item, or for any
    /// item.
    fn counted_ranges(&self, item: Option<Self::Item>) -> Vec<Box<str>>;
}
