//! Items that dynamic allocation never returns.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::ops::{Range, RangeInclusive};

use crate::bitmap::below;
use crate::{AllocationError, Bitmap, InvalidValue, OwnerRef, Random};

/// Ranges of items that are reserved for an owner, or excluded from allocation.
///
/// Dynamic allocation never returns these items. A request for a specific item succeeds
/// only for the owner of its reservation. [`Repair`](crate::Repair) releases none of the
/// items, and reports Services that have an item without a right to it.
///
/// ```
/// use vipline_service_ip::{AddressRange, Allocator, Memory, OwnerRef, Registry, Reservations};
///
/// let address = |text: &str| text.parse().unwrap();
/// let dns = OwnerRef::service("kube-system", "kube-dns");
/// let mut reservations = Reservations::new();
/// reservations.reserve(address("10.96.0.10")..=address("10.96.0.10"), dns.clone())?;
/// reservations.exclude(address("10.96.0.128")..=address("10.96.0.255"))?;
///
/// let range: AddressRange = "10.96.0.0/24".parse()?;
/// let store = Memory::new(Allocator::new(range));
/// let mut registry = Registry::new(store).with_reservations(reservations);
/// registry.reserve(address("10.96.0.10"), &dns)?;
/// let error = registry.reserve(address("10.96.0.200"), &dns).unwrap_err();
/// assert_eq!(error.to_string(), "10.96.0.200 is excluded from allocation");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reservations<I> {
    /// By first item.
    ranges: BTreeMap<I, Reservation<I>>,
}

/// A range with its owner.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Reservation<I> {
    last: I,
    /// `None` for an excluded range.
    owner: Option<OwnerRef>,
}

impl<I> Reservations<I> {
    /// Returns no reservations.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }

    /// Returns whether there are no reservations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl<I: Copy + Ord + fmt::Display> Reservations<I> {
    /// Reserves items for an owner.
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::EmptyReservation`]: the last item is below the first.
    /// - [`InvalidValue::OverlappingReservation`]: an item is in another range already.
    pub fn reserve(
        &mut self,
        items: RangeInclusive<I>,
        owner: OwnerRef,
    ) -> Result<(), InvalidValue> {
        self.insert(items, Some(owner))
    }

    /// Excludes items from allocation.
    ///
    /// # Errors
    ///
    /// As for [`Self::reserve`].
    pub fn exclude(&mut self, items: RangeInclusive<I>) -> Result<(), InvalidValue> {
        self.insert(items, None)
    }

    /// Removes the range that begins with an item. Returns whether there was one.
    pub fn remove(&mut self, first: I) -> bool {
        self.ranges.remove(&first).is_some()
    }

    /// Returns whether an item is reserved or excluded.
    #[must_use]
    pub fn contains(&self, item: I) -> bool {
        self.find(item).is_some()
    }

    /// Checks that an owner may have an item.
    ///
    /// # Errors
    ///
    /// - [`AllocationError::Reserved`]: the item is reserved for another owner.
    /// - [`AllocationError::Excluded`]: the item is excluded.
    pub fn check(&self, item: I, owner: &OwnerRef) -> Result<(), AllocationError> {
        let item_text = || item.to_string().into();
        match self.find(item).map(|found| found.owner.as_ref()) {
            None => Ok(()),
            Some(Some(reserved)) if reserved == owner => Ok(()),
            Some(Some(reserved)) => Err(AllocationError::Reserved {
                item: item_text(),
                owner: reserved.clone().into(),
            }),
            Some(None) => Err(AllocationError::Excluded { item: item_text() }),
        }
    }

    /// Returns the reserved items within `first..=last`, as numbers.
    pub(crate) fn numbers(
        &self,
        first: I,
        last: I,
        number: impl Fn(I) -> Option<u128>,
    ) -> Vec<Range<u128>> {
        let ranges = self.ranges.range(..=last);
        let within = ranges.filter(|(_, range)| range.last >= first);
        within
            .filter_map(|(from, range)| {
                Some(number((*from).max(first))?..number(range.last.min(last))? + 1)
            })
            .collect()
    }

    fn find(&self, item: I) -> Option<&Reservation<I>> {
        let (_, found) = self.ranges.range(..=item).next_back()?;
        (found.last >= item).then_some(found)
    }

    fn insert(
        &mut self,
        items: RangeInclusive<I>,
        owner: Option<OwnerRef>,
    ) -> Result<(), InvalidValue> {
        let (first, last) = items.into_inner();
        let text = |item: I| item.to_string().into();
        if last < first {
            let (first, last) = (text(first), text(last));
            return Err(InvalidValue::EmptyReservation { first, last });
        }
        // Ranges do not overlap, so the last one that begins below also ends last.
        let below = self.ranges.range(..=last).next_back();
        if let Some((other, _)) = below.filter(|(_, range)| range.last >= first) {
            return Err(InvalidValue::OverlappingReservation {
                first: text(first),
                last: text(last),
                other: text(*other),
            });
        }
        self.ranges.insert(first, Reservation { last, owner });
        Ok(())
    }
}

impl<I> Default for Reservations<I> {
    fn default() -> Self {
        Self::new()
    }
}

/// Inserts and returns a free number of `numbers` that is not reserved.
///
/// The search starts at a random number and wraps around. `reserved` is in ascending order.
pub(crate) fn take_unreserved(
    taken: &mut Bitmap,
    numbers: Range<u128>,
    reserved: &[Range<u128>],
    random: &mut Random<'_>,
) -> Option<u128> {
    let parts = subtract(numbers, reserved);
    let len = parts.iter().map(|part| part.end - part.start).sum();
    if len == 0 {
        return None;
    }
    let mut offset = below(len, random);
    let place = parts.iter().position(|part| {
        let len = part.end - part.start;
        let is_within = offset < len;
        if !is_within {
            offset -= len;
        }
        is_within
    })?;
    let part = &parts[place];
    let start = part.start + offset;
    let later = iter::once(start..part.end).chain(parts[place + 1..].iter().cloned());
    let earlier = parts[..place].iter().cloned();
    later
        .chain(earlier)
        .chain(iter::once(part.start..start))
        .find_map(|part| {
            let number = taken.next_free(part.start)?;
            (number < part.end && taken.insert(number)).then_some(number)
        })
}

/// Returns the parts of `numbers` outside of `reserved`.
fn subtract(numbers: Range<u128>, reserved: &[Range<u128>]) -> Vec<Range<u128>> {
    let mut parts = Vec::new();
    let mut start = numbers.start;
    for range in reserved {
        parts.push(start..range.start.min(numbers.end));
        start = start.max(range.end);
    }
    parts.push(start..numbers.end);
    parts.retain(|part| part.start < part.end);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservations(ranges: &[RangeInclusive<u16>]) -> Reservations<u16> {
        let mut reservations = Reservations::new();
        for range in ranges {
            reservations.exclude(range.clone()).unwrap();
        }
        reservations
    }

    #[test]
    fn a_range_that_is_empty_or_overlaps_is_rejected() {
        let mut ranges = reservations(&[10..=20, 30..=30]);
        let before = ranges.clone();
        for (range, part) in [
            (20..=25, "overlaps the range from 10"),
            (5..=10, "overlaps the range from 10"),
            (12..=14, "overlaps the range from 10"),
            (0..=100, "overlaps the range from 30"),
            (30..=30, "overlaps the range from 30"),
            #[allow(clippy::reversed_empty_ranges, reason = "the range to reject")]
            (9..=8, "the last item is below the first"),
        ] {
            let error = ranges.exclude(range).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(ranges, before);
        }
        ranges.exclude(21..=29).unwrap();
        assert!(ranges.remove(21) && !ranges.remove(21));
        assert_eq!(ranges, before);
    }

    #[test]
    fn items_are_found_at_both_ends_of_a_range() {
        let ranges = reservations(&[10..=20, 30..=30]);
        let found = (0..=40).filter(|item| ranges.contains(*item));
        assert!(found.eq((10..=20).chain([30])));
        let numbers = |item: u16| Some(item.into());
        assert_eq!(ranges.numbers(0, 40, numbers), [10..21, 30..31]);
        assert_eq!(ranges.numbers(15, 30, numbers), [15..21, 30..31]);
        assert_eq!(ranges.numbers(21, 29, numbers), []);
        assert_eq!(ranges.numbers(12, 12, numbers), vec![12..13]);
    }

    #[test]
    fn every_number_that_is_not_reserved_is_taken_once() {
        let reserved = [0..2, 4..5, 9..12];
        for start in 0..8_u64 {
            // Each start of the eight numbers that are left.
            let mut random = || start << 61;
            let mut taken = Bitmap::new(12);
            let mut take = || take_unreserved(&mut taken, 1..11, &reserved, &mut random);
            let mut numbers: Vec<u128> = iter::from_fn(&mut take).collect();
            let first = [2, 3, 5, 6, 7, 8][start as usize * 6 / 8];
            assert_eq!(numbers[0], first);
            numbers.sort_unstable();
            assert_eq!(numbers, [2, 3, 5, 6, 7, 8]);
        }
        let mut full = Bitmap::new(12);
        let reserved_all = [0..6, 6..12];
        assert_eq!(
            take_unreserved(&mut full, 0..12, &reserved_all, &mut || 0),
            None
        );
        assert_eq!(take_unreserved(&mut full, 5..5, &[], &mut || 0), None);
    }
}
