//! Compares a bitmap with a set of numbers.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_service_ip::Bitmap;

/// An operation on consecutive numbers.
#[derive(Clone, Debug)]
struct Step {
    inserts: bool,
    /// Start, relative to one of the ends.
    from: u128,
    is_from_end: bool,
    /// Length.
    count: u128,
}

impl Step {
    fn numbers(&self, len: u128) -> impl Iterator<Item = u128> + use<> {
        let first = match self.is_from_end {
            true => len.saturating_sub(self.from),
            false => self.from,
        };
        first..first.saturating_add(self.count)
    }
}

/// Small lengths, lengths around a word of the second and third level, and
/// lengths of sparse bitmaps.
fn len() -> impl Strategy<Value = u128> {
    prop_oneof![
        4 => 0_u128..300,
        2 => 4000_u128..4200,
        1 => Just(1 << 20),
        1 => Just((1 << 20) + 1),
        1 => Just(u128::from(u64::MAX)),
        1 => Just(u128::MAX),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let from = prop_oneof![
        6 => 0_u128..330,
        1 => Just(4032_u128),
        1 => any::<u64>().prop_map(u128::from),
    ];
    let count = prop_oneof![4 => 1_u128..4, 3 => 60_u128..70, 2 => 100_u128..400, 1 => Just(4100)];
    (prop::bool::weighted(0.7), from, any::<bool>(), count).prop_map(
        |(inserts, from, is_from_end, count)| Step {
            inserts,
            from,
            is_from_end,
            count,
        },
    )
}

/// Checks that a bitmap equals a set, starting at a number.
fn check_state(bitmap: &Bitmap, model: &BTreeSet<u128>, from: u128) -> Result<(), TestCaseError> {
    let len = bitmap.len();
    prop_assert_eq!(bitmap.count(), model.len() as u128);
    prop_assert_eq!(bitmap.is_empty(), model.is_empty());
    prop_assert_eq!(bitmap.contains(from), model.contains(&from));
    let mut free = from;
    while model.contains(&free) {
        free += 1;
    }
    let free = Some(free).filter(|free| *free < len);
    prop_assert_eq!(bitmap.next_free(from), free, "from {}", from);
    prop_assert!(bitmap.iter_from(from).eq(model.range(from..).copied()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_bitmap_equals_a_set(
        len in len(),
        steps in vec(step(), 0..24),
        looks in vec(any::<u64>(), 4),
    ) {
        let (mut bitmap, mut model) = (Bitmap::new(len), BTreeSet::new());
        for step in steps {
            for number in step.numbers(len) {
                let (done, expected) = match step.inserts {
                    true => (bitmap.insert(number), number < len && model.insert(number)),
                    false => (bitmap.remove(number), model.remove(&number)),
                };
                prop_assert_eq!(done, expected, "{} of {}", number, len);
            }
            let mut ends = step.numbers(len);
            let ends = [ends.next().unwrap_or(0), ends.last().unwrap_or(0)];
            for from in ends.into_iter().chain(looks.iter().map(|look| u128::from(*look) % 400)) {
                check_state(&bitmap, &model, from)?;
            }
        }
        prop_assert!(bitmap.iter().eq(model.iter().copied()));
    }
}
