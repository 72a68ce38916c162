//! Allocation from one range.

use std::fmt;

use crate::reservations::take_unreserved;
use crate::{AllocationError, Bitmap, Pool, Random, Range, Reservations, Usage};

/// A range with its allocated items.
#[derive(Clone, Debug)]
pub struct Allocator<R> {
    range: R,
    taken: Bitmap,
}

impl<R: Range> Allocator<R> {
    /// Returns an allocator without allocated items.
    #[must_use]
    pub fn new(range: R) -> Self {
        let taken = Bitmap::new(range.len());
        Self { range, taken }
    }

    /// Returns the range.
    #[must_use]
    pub const fn range(&self) -> &R {
        &self.range
    }

    /// Returns the numbers of the allocated items, in ascending order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u128> + '_ {
        self.taken.iter()
    }

    /// Returns the number of allocated items.
    #[must_use]
    pub const fn used(&self) -> u128 {
        self.taken.count()
    }

    /// Returns the number of free items.
    #[must_use]
    pub const fn free(&self) -> u128 {
        self.taken.len() - self.taken.count()
    }

    /// Allocates a number that is not reserved.
    fn take_unreserved(
        &mut self,
        reserved: &Reservations<R::Item>,
        random: &mut Random<'_>,
    ) -> Option<u128> {
        let (band, len) = (self.range.static_band(), self.range.len());
        let (first, last) = (self.range.item(0)?, self.range.item(len - 1)?);
        let reserved = reserved.numbers(first, last, |item| self.range.number(item).ok());
        let mut take = |numbers| take_unreserved(&mut self.taken, numbers, &reserved, random);
        take(band..len).or_else(|| take(0..band))
    }

    /// Allocates a number in the static band.
    #[cold]
    fn take_static(&mut self, random: &mut Random<'_>) -> Option<u128> {
        self.taken.take(0, self.range.static_band(), random)
    }
}

impl<R: Range> Pool for Allocator<R> {
    type Item = R::Item;

    fn reserve(&mut self, item: R::Item) -> Result<(), AllocationError> {
        let number = self.range.number(item)?;
        if self.taken.insert(number) {
            Ok(())
        } else {
            Err(AllocationError::allocated(&item))
        }
    }

    fn allocate(&mut self, random: &mut Random<'_>) -> Result<R::Item, AllocationError> {
        let (static_band, len) = (self.range.static_band(), self.range.len());
        let number = self
            .taken
            .take(static_band, len, random)
            .or_else(|| self.take_static(random));
        let item = number.and_then(|number| self.range.item(number));
        item.ok_or_else(|| AllocationError::full(&self.range))
    }

    fn allocate_unreserved(
        &mut self,
        reserved: &Reservations<R::Item>,
        random: &mut Random<'_>,
    ) -> Result<R::Item, AllocationError> {
        let number = self.take_unreserved(reserved, random);
        let item = number.and_then(|number| self.range.item(number));
        item.ok_or_else(|| AllocationError::full(&self.range))
    }

    fn release(&mut self, item: R::Item) -> bool {
        self.range
            .number(item)
            .is_ok_and(|number| self.taken.remove(number))
    }

    fn contains(&self, item: R::Item) -> bool {
        self.range
            .number(item)
            .is_ok_and(|number| self.taken.contains(number))
    }

    fn items(&self) -> Box<dyn Iterator<Item = R::Item> + '_> {
        Box::new(self.numbers().filter_map(|number| self.range.item(number)))
    }

    fn usage(&self) -> Vec<Usage> {
        vec![Usage {
            range: self.range.to_string().into(),
            used: self.used(),
            free: self.free(),
        }]
    }

    fn counted_ranges(&self, _: Option<R::Item>) -> Vec<Box<str>> {
        vec![self.range.to_string().into()]
    }
}

impl<R: Range> fmt::Display for Allocator<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.range)
    }
}
