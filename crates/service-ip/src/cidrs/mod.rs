//! Allocation from several ServiceCIDRs, which may overlap.
//!
//! A cluster grows by a second ServiceCIDR, and shrinks by a smaller one inside of the one that
//! is then deleted. So ranges overlap, come and go, and an address must still be allocated only
//! once. Therefore one bitmap has the addresses of the *whole family*, and a range is a view of
//! it: two numbers and a counter. An IPv6 family has 2^128 addresses, of which the bitmap
//! stores what is allocated.
//!
//! For example: `10.0.0.0/29` and `10.0.0.0/28`. 10.0.0.3 is allocated once, at number
//! 0x0a000002 of the bitmap, and counts as used in both. The /28 can be deleted only if no
//! address such as 10.0.0.12 is in it alone; the /29 at any time.
//!
//! Upstream has one allocator for each range and the name of the IPAddress object as the only
//! guard; here the guard is the data.
//!
//! What must stay true:
//!
//! - `used` of a range is the number of bits within it. Each change of a bit goes through
//!   [`Cidrs::count`], and a new range counts what is there.
//! - An address outside of all ranges may be allocated: its range was deleted by force, or has
//!   not been seen yet. It stays known, or it would be given away twice when the range is back.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops;

use crate::bitmap::below;
use crate::range::{address, bits};
use crate::reservations::take_unreserved;
use crate::{
    AddressRange, AllocationError, Bitmap, Family, InvalidValue, Pool, Random, Range, Reservations,
    Usage,
};

/// An allocator for the ServiceCIDRs of one family.
///
/// An address within several ServiceCIDRs is allocated once.
#[derive(Clone, Debug)]
pub struct Cidrs {
    is_ipv4: bool,
    /// Allocated addresses of the family. The all-zeros address, which no range
    /// contains, is excluded.
    taken: Bitmap,
    ranges: BTreeMap<AddressRange, Cidr>,
}

/// The ServiceCIDRs with the same range.
#[derive(Clone, Debug, Default)]
struct Cidr {
    /// Names, with the state of the condition `Ready`.
    names: BTreeMap<Box<str>, bool>,
    /// Number of allocated addresses within the range.
    used: u128,
}

impl Cidrs {
    /// Returns an allocator without ServiceCIDRs for a family.
    #[must_use]
    pub fn of(family: Family) -> Self {
        match family {
            Family::V4 => Self::ipv4(),
            Family::V6 => Self::ipv6(),
        }
    }

    /// Returns an allocator without ServiceCIDRs for IPv4.
    #[must_use]
    pub fn ipv4() -> Self {
        Self::new(true, u32::MAX.into())
    }

    /// Returns an allocator without ServiceCIDRs for IPv6.
    #[must_use]
    pub fn ipv6() -> Self {
        Self::new(false, u128::MAX)
    }

    /// `len` is one less than the addresses of the family, see [`number`]: 2^128 of them would
    /// not fit.
    fn new(is_ipv4: bool, len: u128) -> Self {
        Self {
            is_ipv4,
            taken: Bitmap::new(len),
            ranges: BTreeMap::new(),
        }
    }

    /// Adds a ServiceCIDR, or updates whether an existing one is ready.
    ///
    /// A range is used for allocation if at least one of its ServiceCIDRs is ready.
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::ImmutableCidr`]: the ServiceCIDR exists with another range.
    /// - [`InvalidValue::MismatchedCidr`]: the range is of the other family.
    pub fn insert(
        &mut self,
        name: &str,
        range: AddressRange,
        is_ready: bool,
    ) -> Result<(), InvalidValue> {
        let name: Box<str> = name.into();
        if range.network().addr().is_ipv4() != self.is_ipv4 {
            return Err(InvalidValue::MismatchedCidr { name, range });
        }
        // The API forbids it, too. Accepted, the name would be in two ranges.
        if let Some(former) = self.range(&name)
            && former != range
        {
            let range = former;
            return Err(InvalidValue::ImmutableCidr { name, range });
        }
        // Addresses may be allocated before their range is known, see above.
        if !self.ranges.contains_key(&range) {
            let used = u128::try_from(self.taken_in(range).count()).unwrap_or(u128::MAX);
            let names = BTreeMap::new();
            self.ranges.insert(range, Cidr { names, used });
        }
        if let Some(cidr) = self.ranges.get_mut(&range) {
            cidr.names.insert(name, is_ready);
        }
        Ok(())
    }

    /// Removes a ServiceCIDR.
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::CidrInUse`]: allocated addresses are in no other ServiceCIDR.
    /// - [`InvalidValue::UnknownCidr`]: no ServiceCIDR has the name.
    pub fn remove(&mut self, name: &str) -> Result<(), InvalidValue> {
        let name: Box<str> = name.into();
        let Some(range) = self.range(&name) else {
            return Err(InvalidValue::UnknownCidr { name });
        };
        let addresses = self.exclusive(&name, range);
        if addresses > 0 {
            return Err(InvalidValue::CidrInUse {
                name,
                range,
                addresses,
            });
        }
        if let Some(cidr) = self.ranges.get_mut(&range) {
            cidr.names.remove(&name);
            // Another ServiceCIDR with the same range keeps it.
            if cidr.names.is_empty() {
                self.ranges.remove(&range);
            }
        }
        Ok(())
    }

    /// Marks an address as allocated, within a range or not.
    ///
    /// Returns whether it was free.
    ///
    /// # Errors
    ///
    /// [`AllocationError::MismatchedFamily`]: the address is of the other family.
    pub fn mark_allocated(&mut self, item: IpAddr) -> Result<bool, AllocationError> {
        if item.is_ipv4() != self.is_ipv4 {
            return Err(AllocationError::mismatched_family(&item, self));
        }
        let was_free = number(item).is_some_and(|number| self.taken.insert(number));
        if was_free {
            self.count(item, |used| used + 1);
        }
        Ok(was_free)
    }

    /// Returns the ranges with their numbers of allocated addresses.
    pub fn ranges(&self) -> impl Iterator<Item = (AddressRange, u128)> + '_ {
        self.ranges.iter().map(|(range, cidr)| (*range, cidr.used))
    }

    /// Returns the names of the ServiceCIDRs with a range, and whether each is ready.
    pub fn names(&self, range: AddressRange) -> impl Iterator<Item = (&str, bool)> + '_ {
        let names = self.ranges.get(&range).into_iter();
        names.flat_map(|cidr| {
            cidr.names
                .iter()
                .map(|(name, is_ready)| (&**name, *is_ready))
        })
    }

    /// Returns the range of a ServiceCIDR.
    #[must_use]
    pub fn range(&self, name: &str) -> Option<AddressRange> {
        let mut ranges = self.ranges.iter();
        let (range, _) = ranges.find(|(_, cidr)| cidr.names.contains_key(name))?;
        Some(*range)
    }

    /// Returns the number of allocated addresses that are in this ServiceCIDR only.
    fn exclusive(&self, name: &str, range: AddressRange) -> u128 {
        let others: Vec<AddressRange> = self
            .ranges
            .iter()
            // Not by range: the same range under another name is another ServiceCIDR.
            .filter(|(_, cidr)| cidr.names.keys().any(|other| &**other != name))
            .map(|(other, _)| *other)
            .collect();
        // The usual case of equal or larger ranges needs no look at addresses.
        if others
            .iter()
            .any(|other| other.network().contains(&range.network()))
        {
            return 0;
        }
        let alone = self
            .taken_in(range)
            .filter(|item| !others.iter().any(|other| other.number(*item).is_ok()));
        u128::try_from(alone.count()).unwrap_or(u128::MAX)
    }

    /// Returns the allocated addresses within a range.
    fn taken_in(&self, range: AddressRange) -> impl Iterator<Item = IpAddr> + '_ {
        let first = range.first().and_then(number);
        let taken = first.map(|first| self.taken.iter_from(first));
        let items = taken.into_iter().flatten();
        items
            .filter_map(|number| address(number + 1, self.is_ipv4))
            // The bitmap goes on behind the range.
            .take_while(move |item| range.number(*item).is_ok())
    }

    /// Updates the numbers of allocated addresses of all ranges that contain an address.
    fn count(&mut self, item: IpAddr, counted: impl Fn(u128) -> u128) {
        for (range, cidr) in &mut self.ranges {
            if range.number(item).is_ok() {
                cidr.used = counted(cidr.used);
            }
        }
    }

    /// Allocates a free address of a range that is not reserved.
    fn take_of(
        &mut self,
        range: AddressRange,
        reserved: &Reservations<IpAddr>,
        random: &mut Random<'_>,
    ) -> Option<IpAddr> {
        let first = number(range.first()?)?;
        // The dynamic band first: Services that request a specific address usually choose one of
        // the static band, the first ones of the range.
        let (middle, end) = (first + range.static_band(), first + range.len());
        let reserved = reserved.numbers(range.first()?, range.last()?, number);
        let mut take = |numbers: ops::Range<u128>| match &*reserved {
            // The usual case. It needs no list of the parts between reservations.
            [] => self.taken.take(numbers.start, numbers.end, random),
            _ => take_unreserved(&mut self.taken, numbers, &reserved, random),
        };
        let taken = take(middle..end).or_else(|| take(first..middle))?;
        address(taken + 1, self.is_ipv4)
    }
}

impl Pool for Cidrs {
    type Item = IpAddr;

    fn reserve(&mut self, item: IpAddr) -> Result<(), AllocationError> {
        if item.is_ipv4() != self.is_ipv4 {
            return Err(AllocationError::mismatched_family(&item, self));
        }
        let having = self.ranges.iter();
        let mut having = having.filter(|(range, _)| range.number(item).is_ok());
        let Some((range, first)) = having.next() else {
            return Err(AllocationError::not_in_range(&item, self));
        };
        // One ready range is enough, also if another one of the address is being deleted. `having`
        // is what the search has left: the ranges after the first.
        if !first.is_ready() && !having.any(|(_, cidr)| cidr.is_ready()) {
            return Err(AllocationError::not_ready(range));
        }
        if self.mark_allocated(item)? {
            Ok(())
        } else {
            Err(AllocationError::allocated(&item))
        }
    }

    fn allocate(&mut self, random: &mut Random<'_>) -> Result<IpAddr, AllocationError> {
        self.allocate_unreserved(&Reservations::new(), random)
    }

    fn allocate_unreserved(
        &mut self,
        reserved: &Reservations<IpAddr>,
        random: &mut Random<'_>,
    ) -> Result<IpAddr, AllocationError> {
        let ready = self.ranges.iter().filter(|(_, cidr)| cidr.is_ready());
        let ready: Vec<AddressRange> = ready.map(|(range, _)| *range).collect();
        if ready.is_empty() {
            return Err(AllocationError::not_ready(self));
        }
        // A random first range, as upstream, which iterates over a map of Go. Then all others, so
        // that `Full` means that no range has a free address.
        let start = usize::try_from(below(ready.len() as u128, random)).unwrap_or(0);
        let (before, after) = ready.split_at(start);
        let taken = after
            .iter()
            .chain(before)
            .find_map(|range| self.take_of(*range, reserved, random));
        let item = taken.ok_or_else(|| AllocationError::full(self))?;
        self.count(item, |used| used + 1);
        Ok(item)
    }

    fn release(&mut self, item: IpAddr) -> bool {
        let is_ours = item.is_ipv4() == self.is_ipv4;
        let was_taken = is_ours && number(item).is_some_and(|number| self.taken.remove(number));
        if was_taken {
            self.count(item, |used| used - 1);
        }
        was_taken
    }

    /// Accepts addresses within a range that is not ready, and outside of all ranges.
    ///
    /// `Draft::undo` restores what it released, and `reserve` would refuse such an address:
    /// the undone release would then leave it free.
    fn restore(&mut self, item: IpAddr) -> bool {
        self.mark_allocated(item) == Ok(true)
    }

    fn check(&self, item: IpAddr) -> Result<(), AllocationError> {
        let mut ranges = self.ranges.keys();
        if ranges.any(|range| range.number(item).is_ok()) {
            Ok(())
        } else {
            Err(AllocationError::not_in_range(&item, self))
        }
    }

    fn contains(&self, item: IpAddr) -> bool {
        let is_ours = item.is_ipv4() == self.is_ipv4;
        is_ours && number(item).is_some_and(|number| self.taken.contains(number))
    }

    fn items(&self) -> Box<dyn Iterator<Item = IpAddr> + '_> {
        let numbers = self.taken.iter();
        Box::new(numbers.filter_map(|number| address(number + 1, self.is_ipv4)))
    }

    fn usage(&self) -> Vec<Usage> {
        let ranges = self.ranges.iter();
        ranges
            .map(|(range, cidr)| Usage {
                range: range.to_string().into(),
                used: cidr.used,
                // Addresses that the range excludes, such as the network's own, are not counted as
                // used either, so this does not underflow.
                free: range.len() - cidr.used,
            })
            .collect()
    }

    /// Returns the first ready range that contains the item. Without an item, returns
    /// all ready ranges.
    ///
    /// As upstream: an address is one request to one allocator, although several may contain it,
    /// and an allocation that fails has asked all of them (`getAllocator` and `AllocateNextService`
    /// of its `MetaAllocator`).
    fn counted_ranges(&self, item: Option<IpAddr>) -> Vec<Box<str>> {
        let ranges = self.ranges.iter();
        let ready = ranges.filter(|(range, cidr)| {
            cidr.is_ready() && item.is_none_or(|item| range.number(item).is_ok())
        });
        let names = ready.map(|(range, _)| range.to_string().into());
        names
            .take(if item.is_some() { 1 } else { usize::MAX })
            .collect()
    }
}

impl Cidr {
    /// Returns whether the range is used for allocation.
    fn is_ready(&self) -> bool {
        self.names.values().any(|is_ready| *is_ready)
    }
}

/// Displays the ranges, such as `10.0.0.0/24, 10.1.0.0/16`.
impl fmt::Display for Cidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranges.is_empty() {
            return f.write_str(if self.is_ipv4 {
                "no IPv4 ServiceCIDR"
            } else {
                "no IPv6 ServiceCIDR"
            });
        }
        for (place, range) in self.ranges.keys().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{range}")?;
        }
        Ok(())
    }
}

/// Returns the number of an address in the bitmap: the address less one, so that 2^128
/// addresses without the all-zeros one fit below a length of `u128::MAX`. `number + 1` in this
/// file is the way back.
fn number(item: IpAddr) -> Option<u128> {
    bits(item).checked_sub(1)
}

#[cfg(test)]
mod tests;
