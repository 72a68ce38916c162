//! The trait of allocators, and references to Services.

use std::fmt;

use crate::{AllocationError, Usage};

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

/// Namespace and name of the Service that owns an item.
///
/// Exhaustive: namespace and name identify a Service.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServiceRef {
    /// Namespace.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl ServiceRef {
    /// Returns a reference to a Service.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
