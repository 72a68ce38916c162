//! Compares an allocator with a set of numbers.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_service_ip::{
    AddressRange, AllocationError, Allocator, Pool, PortRange, Range, RangeAllocation,
};

/// Expected properties of a range.
#[derive(Clone, Debug)]
struct Universe<I> {
    range: &'static str,
    /// First item, as a number.
    first: u128,
    len: u128,
    /// Size of the static band.
    lower: u128,
    item: fn(u128) -> Option<I>,
    /// An item of the other family.
    other_family: Option<I>,
}

fn universe<I>(
    range: &'static str,
    (first, len, lower): (u128, u128, u128),
    item: fn(u128) -> Option<I>,
    other_family: Option<I>,
) -> Universe<I> {
    Universe {
        range,
        first,
        len,
        lower,
        item,
        other_family,
    }
}

fn addresses() -> impl Strategy<Value = Universe<IpAddr>> {
    let v4 = |range, first, len, lower| {
        let item = |number| Some(Ipv4Addr::from(u32::try_from(number).ok()?).into());
        let other = Some(Ipv6Addr::LOCALHOST.into());
        universe(range, (first, len, lower), item, other)
    };
    let v6 = |range, len, lower| {
        let first = 0xfd00 << 112 | 1;
        let other = Some(Ipv4Addr::LOCALHOST.into());
        let item = |number| Some(Ipv6Addr::from(number).into());
        universe(range, (first, len, lower), item, other)
    };
    prop::sample::select(vec![
        v4("10.0.0.1/32", 0x0a00_0002, 0, 0),
        v4("10.0.0.0/31", 0x0a00_0001, 0, 0),
        v4("10.0.0.0/30", 0x0a00_0001, 2, 0),
        v4("10.0.0.0/28", 0x0a00_0001, 14, 0),
        v4("10.0.0.0/27", 0x0a00_0001, 30, 16),
        v4("10.0.0.0/24", 0x0a00_0001, 254, 16),
        v4("255.255.254.0/23", 0xffff_fe01, 510, 32),
        v6("fd00::/128", 0, 0),
        v6("fd00::/124", 15, 0),
        v6("fd00::/123", 31, 16),
        v6("fd00::/120", 255, 16),
        v6("fd00::/64", u64::MAX.into(), 256),
    ])
}

fn ports() -> impl Strategy<Value = Universe<u16>> {
    let ports = |range, first, len, lower| {
        let item = |number| u16::try_from(number).ok();
        universe(range, (first, len, lower), item, None)
    };
    prop::sample::select(vec![
        ports("1-1", 1, 1, 0),
        ports("30000-30015", 30_000, 16, 0),
        ports("30000-30016", 30_000, 17, 16),
        ports("30000-30299", 30_000, 300, 16),
        ports("65436-65535", 65_436, 100, 16),
    ])
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(Pick),
    Allocate { count: usize, seed: u64 },
    Release(Pick),
    ReleaseOther,
    ReserveOther,
}

/// An item of the range or next to the range.
#[derive(Clone, Copy, Debug)]
enum Pick {
    FromStart(u16),
    FromEnd(u16),
    /// One of the allocated items, if any.
    Taken(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || {
        prop_oneof![
            (0_u16..600).prop_map(Pick::FromStart),
            (0_u16..20).prop_map(Pick::FromEnd),
            any::<u16>().prop_map(Pick::Taken),
        ]
    };
    let count = prop_oneof![4 => 1_usize..3, 2 => 10_usize..30, 1 => Just(300)];
    prop_oneof![
        4 => pick().prop_map(Step::Reserve),
        4 => (count, any::<u64>()).prop_map(|(count, seed)| Step::Allocate { count, seed }),
        4 => pick().prop_map(Step::Release),
        1 => Just(Step::ReleaseOther),
        1 => Just(Step::ReserveOther),
    ]
}

/// An allocator with the numbers of the expected items.
struct Pair<R: Range> {
    universe: Universe<R::Item>,
    allocator: Allocator<R>,
    model: BTreeSet<u128>,
}

impl<R: Range> Pair<R> {
    /// Returns the selected number, possibly outside of the range.
    fn number(&self, pick: Pick) -> Option<u128> {
        let Universe { first, len, .. } = self.universe;
        match pick {
            Pick::FromStart(number) => Some(u128::from(number) % (len + 3)),
            // Includes the number before the first one.
            Pick::FromEnd(number) => (len + 1).checked_sub(number.into()),
            Pick::Taken(place) => {
                let place = usize::from(place).checked_rem(self.model.len())?;
                self.model.iter().nth(place).copied()
            }
        }
        .filter(|number| (self.universe.item)(first + number).is_some())
    }

    fn item(&self, number: u128) -> R::Item {
        (self.universe.item)(self.universe.first + number).unwrap()
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Reserve(pick) => {
                if let Some(number) = self.number(pick) {
                    self.reserve(number)?;
                }
            }
            Step::Allocate { count, seed } => {
                let mut seed = seed;
                let mut random = move || {
                    // Knuth's MMIX generator. The high bits are random.
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    seed ^ seed >> 32
                };
                for _ in 0..count {
                    self.allocate(&mut random)?;
                }
            }
            Step::Release(pick) => {
                if let Some(number) = self.number(pick) {
                    let was_taken = self.allocator.release(self.item(number));
                    prop_assert_eq!(was_taken, self.model.remove(&number));
                }
            }
            Step::ReleaseOther => {
                if let Some(other) = self.universe.other_family {
                    prop_assert!(!self.allocator.release(other));
                }
            }
            Step::ReserveOther => {
                if let Some(other) = self.universe.other_family {
                    let error = self.allocator.reserve(other);
                    let is_named = matches!(error, Err(AllocationError::MismatchedFamily { .. }));
                    prop_assert!(is_named, "{:?}", error);
                }
            }
        }
        self.check_state()
    }

    fn reserve(&mut self, number: u128) -> Result<(), TestCaseError> {
        let reserved = self.allocator.reserve(self.item(number));
        let is_expected = match &reserved {
            Ok(()) => number < self.universe.len && self.model.insert(number),
            Err(AllocationError::NotInRange { .. }) => number >= self.universe.len,
            Err(AllocationError::Allocated { .. }) => self.model.contains(&number),
            Err(_) => false,
        };
        prop_assert!(is_expected, "{}: {:?}", number, reserved);
        Ok(())
    }

    fn allocate(&mut self, random: &mut dyn FnMut() -> u64) -> Result<(), TestCaseError> {
        let Universe {
            first, len, lower, ..
        } = self.universe;
        let full = self.model.len() as u128 == len;
        match self.allocator.allocate(random) {
            Ok(item) => {
                let number = (first..first + len).zip(0..);
                let known = number
                    .take(600)
                    .find(|(at, _)| (self.universe.item)(*at) == Some(item));
                // The expected item of a large range is the result of the allocator.
                let number = match known {
                    Some((_, number)) => number,
                    None => self.allocator.range().number(item).unwrap(),
                };
                prop_assert_eq!(self.item(number), item);
                prop_assert!(number < len && self.model.insert(number), "{} twice", item);
                let upper = self.model.range(lower..).count() as u128;
                let was_last = upper == len - lower;
                prop_assert!(number >= lower || was_last, "{} of the lower band", item);
            }
            Err(error) => {
                prop_assert!(error.is_full() && full, "{}", error);
            }
        }
        Ok(())
    }

    fn check_state(&self) -> Result<(), TestCaseError> {
        let (allocator, len) = (&self.allocator, self.universe.len);
        prop_assert_eq!(allocator.used(), self.model.len() as u128);
        prop_assert_eq!(allocator.used() + allocator.free(), len);
        let items = self.model.iter().map(|number| self.item(*number));
        prop_assert!(allocator.items().eq(items));
        for number in (0..len.min(600)).chain(self.model.iter().copied()) {
            let is_taken = self.model.contains(&number);
            prop_assert_eq!(allocator.contains(self.item(number)), is_taken);
        }
        Ok(())
    }

    /// Checks that an encoded object decodes to the same items.
    fn check_round_trip(&self) -> Result<(), TestCaseError> {
        let written = RangeAllocation::of(&self.allocator);
        let Ok(snapshot) = written else {
            prop_assert!(self.universe.len > 1 << 20);
            return Ok(());
        };
        prop_assert_ne!(snapshot.data.first(), Some(&0));
        let read = snapshot.allocator(self.allocator.range().clone()).unwrap();
        prop_assert!(read.items().eq(self.allocator.items()));
        prop_assert_eq!(read.used(), self.allocator.used());
        Ok(())
    }
}

/// Applies all steps and compares after each one.
fn follow<R: Range>(
    universe: Universe<R::Item>,
    range: R,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(range.to_string(), universe.range);
    let mut pair = Pair {
        universe,
        allocator: Allocator::new(range),
        model: BTreeSet::new(),
    };
    for step in steps {
        pair.step(step)?;
    }
    pair.check_round_trip()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn address_allocation_equals_a_set_of_numbers(
        universe in addresses(),
        steps in vec(step(), 0..24),
    ) {
        let range: AddressRange = universe.range.parse().unwrap();
        follow(universe, range, steps)?;
    }

    #[test]
    fn port_allocation_equals_a_set_of_numbers(universe in ports(), steps in vec(step(), 0..24)) {
        let range: PortRange = universe.range.parse().unwrap();
        follow(universe, range, steps)?;
    }
}
