//! Parses arbitrary text as a range, and arbitrary bytes as a snapshot of the range.

use vipline_service_ip::{
    AddressRange, Allocator, InvalidValue, Pool, PortRange, Range, RangeAllocation,
};

/// Checks that a parsed range survives a round trip.
fn check<R: Range>(text: &str, data: &[u8]) {
    let Ok(range) = text.parse::<R>() else {
        return;
    };
    let printed = range.to_string();
    let again: R = printed.parse().expect("what is printed is read");
    assert_eq!(again, range);
    assert!(range.static_band() <= range.len().max(16));
    for number in [0, range.static_band(), range.len().saturating_sub(1)] {
        if let Some(item) = range.item(number) {
            assert_eq!(range.number(item), Ok(number));
        }
    }
    assert!(range.item(range.len()).is_none());
    check_snapshot(range, &printed, data);
    // A snapshot of another range, or no snapshot.
    let other = RangeAllocation {
        range: text.to_uppercase().into(),
        data: data.to_vec(),
    };
    let _ = other.allocator(again.clone());
    if let Ok(migrated) = other.migrate(again.clone()) {
        assert!(migrated.items().all(|item| again.number(item).is_ok()));
    }
}

/// Checks that a snapshot is encoded without leading zeros.
fn check_snapshot<R: Range>(range: R, text: &str, data: &[u8]) {
    let len = range.len();
    let bitmap = range.bitmap_range();
    let snapshot = RangeAllocation {
        range: text.into(),
        data: data.to_vec(),
    };
    let first = data.iter().position(|byte| *byte != 0);
    let meant = &data[first.unwrap_or(data.len())..];
    let allocator: Allocator<R> = match snapshot.allocator(range) {
        Ok(allocator) => allocator,
        Err(InvalidValue::TooManyItems { .. }) => {
            return assert!(bitmap.is_ok_and(|bitmap| bitmap.len() < len) || len > 1 << 20);
        }
        Err(InvalidValue::Outside { number, .. }) => return assert!(number >= len),
        Err(error) => panic!("{error}"),
    };
    let taken: u32 = meant.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(allocator.used(), taken.into());
    assert_eq!(allocator.items().count(), taken as usize);
    let written = RangeAllocation::of(&allocator).expect("a decoded snapshot is valid");
    assert_eq!((&*written.range, &*written.data), (text, meant));
}

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let text = parts.next().unwrap_or_default();
    let data = parts.next().unwrap_or_default();
    if let Ok(text) = std::str::from_utf8(text) {
        check::<AddressRange>(text, data);
        check::<PortRange>(text, data);
    }
}
