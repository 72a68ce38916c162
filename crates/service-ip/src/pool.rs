//! What items are allocated from, and who has them.

use std::fmt;

use crate::{AllocationError, Usage};

/// Where random numbers come from.
pub type Random<'a> = dyn FnMut() -> u64 + 'a;

/// Items of which some are taken: one range, or several.
pub trait Pool: fmt::Display {
    /// An address, or a port.
    type Item: Copy + Ord + fmt::Debug + fmt::Display;

    /// Takes a certain item.
    ///
    /// # Errors
    ///
    /// A [`AllocationError`] if it is taken or not in a range.
    fn reserve(&mut self, item: Self::Item) -> Result<(), AllocationError>;

    /// Takes any item, of the upper band as long as it has one.
    ///
    /// # Errors
    ///
    /// [`AllocationError::Full`].
    fn allocate(&mut self, random: &mut Random<'_>) -> Result<Self::Item, AllocationError>;

    /// Frees an item, and tells whether it was taken.
    fn release(&mut self, item: Self::Item) -> bool;

    /// Takes an item again that was freed just now, and tells whether it could.
    fn restore(&mut self, item: Self::Item) -> bool {
        self.reserve(item).is_ok()
    }

    /// Tells whether an item is taken.
    fn contains(&self, item: Self::Item) -> bool;

    /// Checks that an item that is taken is still one that can be.
    ///
    /// # Errors
    ///
    /// A [`AllocationError`] if no range has it now.
    fn check(&self, item: Self::Item) -> Result<(), AllocationError> {
        let _ = item;
        Ok(())
    }

    /// Returns the items taken, in order.
    fn items(&self) -> Box<dyn Iterator<Item = Self::Item> + '_>;

    /// Returns how much of each range is taken.
    fn usage(&self) -> Vec<Usage>;

    /// Returns the range that a request is counted for: for a certain item, or
    /// for any.
    fn counted_ranges(&self, item: Option<Self::Item>) -> Vec<Box<str>>;
}

/// The Service that has an item.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl ServiceRef {
    /// Returns a Service of a namespace.
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
