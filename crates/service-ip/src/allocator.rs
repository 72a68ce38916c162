//! Allocation from one range.

use std::fmt;

use crate::{Bitmap, Pool, Random, Range, Refusal, Usage};

/// A range, and what of it is taken.
#[derive(Clone, Debug)]
pub struct Allocator<R> {
    range: R,
    taken: Bitmap,
}

impl<R: Range> Allocator<R> {
    /// Returns one that has given nothing yet.
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

    /// Returns the numbers of the items taken, in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u128> + '_ {
        self.taken.iter()
    }

    /// Returns how many items are taken.
    #[must_use]
    pub const fn used(&self) -> u128 {
        self.taken.count()
    }

    /// Returns how many items are free.
    #[must_use]
    pub const fn free(&self) -> u128 {
        self.taken.len() - self.taken.count()
    }
}

impl<R: Range> Pool for Allocator<R> {
    type Item = R::Item;

    fn reserve(&mut self, item: R::Item) -> Result<(), Refusal> {
        let number = self.range.number(item)?;
        if self.taken.insert(number) {
            Ok(())
        } else {
            Err(Refusal::allocated(&item))
        }
    }

    fn allocate(&mut self, random: &mut Random<'_>) -> Result<R::Item, Refusal> {
        let (lower, len) = (self.range.lower(), self.range.len());
        let number = free_in(&self.taken, lower, len, random)
            .or_else(|| free_in(&self.taken, 0, lower, random));
        let found = number.and_then(|number| Some((number, self.range.item(number)?)));
        let (number, item) = found.ok_or_else(|| Refusal::full(&self.range))?;
        self.taken.insert(number);
        Ok(item)
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

    fn asked(&self, _: Option<R::Item>) -> Vec<Box<str>> {
        vec![self.range.to_string().into()]
    }
}

impl<R: Range> fmt::Display for Allocator<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.range)
    }
}

/// Returns a free number from `from` to `to` - 1: the first one from a random
/// place on, around the end.
pub(crate) fn free_in(
    taken: &Bitmap,
    from: u128,
    to: u128,
    random: &mut Random<'_>,
) -> Option<u128> {
    let start = from + below(to.checked_sub(from).filter(|size| *size > 0)?, random);
    let after = taken.next_free(start).filter(|number| *number < to);
    after.or_else(|| taken.next_free(from).filter(|number| *number < start))
}

/// Returns a random number below a limit that is not 0.
pub(crate) fn below(limit: u128, random: &mut Random<'_>) -> u128 {
    if limit <= 1 << 64 {
        (u128::from(random()) * limit) >> 64
    } else {
        (u128::from(random()) << 64 | u128::from(random())) % limit
    }
}
