//! `RangeAllocation` objects of Kubernetes.

use crate::{Allocator, InvalidValue, Pool, Range};

/// Bits of a byte.
const BITS: u128 = u8::BITS as u128;

/// The allocated items of a range: a `RangeAllocation` object of Kubernetes.
///
/// Exhaustive: these are the fields of the object of Kubernetes that hold state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RangeAllocation {
    /// Range as text. Empty if the object has not been initialized.
    pub range: Box<str>,
    /// Bitmap as big-endian number, without leading zeros.
    ///
    /// The lowest bit of the last byte belongs to item 0.
    pub data: Vec<u8>,
}

impl RangeAllocation {
    /// Returns the object of an allocator.
    ///
    /// # Errors
    ///
    /// [`InvalidValue::TooManyItems`]: Kubernetes does not support a bitmap for the range.
    pub fn of<R: Range>(allocator: &Allocator<R>) -> Result<Self, InvalidValue> {
        let range = checked_text(allocator.range())?;
        let mut data = Vec::new();
        for number in allocator.numbers() {
            let (byte, bit) = place(number);
            if byte >= data.len() {
                data.resize(byte + 1, 0_u8);
            }
            data[byte] |= bit;
        }
        data.reverse();
        Ok(Self { range, data })
    }

    /// Returns whether the object has neither a range nor an allocated item.
    #[must_use]
    pub fn is_uninitialized(&self) -> bool {
        self.range.is_empty() && self.data.iter().all(|byte| *byte == 0)
    }

    /// Returns an allocator for another range with the allocated items within it.
    ///
    /// ```text
    /// 30000-32767 {30007, 32700} → 30000-31000 {30007}
    /// ```
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::OtherRange`]: the range of the object is not of the same kind, or
    ///   not supported.
    /// - [`InvalidValue::Outside`]: an allocated item is outside of the range of the
    ///   object.
    pub fn migrate<R: Range>(&self, range: R) -> Result<Allocator<R>, InvalidValue> {
        let other_range = |_| InvalidValue::OtherRange {
            found: self.range.clone(),
            expected: range.to_string().into(),
        };
        let former: R = self.range.parse().map_err(other_range)?;
        let former = former.bitmap_range().map_err(other_range)?;
        let former = self.allocator(former)?;
        let mut allocator = Allocator::new(range);
        for item in former.items() {
            // An item outside of the range is rejected, and left out.
            let _ = allocator.reserve(item);
        }
        Ok(allocator)
    }

    /// Returns the allocator for the expected range.
    ///
    /// Leading zeros are ignored. An uninitialized object has no allocated items.
    ///
    /// # Errors
    ///
    /// - [`InvalidValue::OtherRange`]: the object has another range.
    /// - [`InvalidValue::Outside`]: an allocated item is outside of the range.
    /// - [`InvalidValue::TooManyItems`]: Kubernetes does not support a bitmap for the range.
    pub fn allocator<R: Range>(&self, range: R) -> Result<Allocator<R>, InvalidValue> {
        let expected = checked_text(&range)?;
        if self.range != expected && !self.is_uninitialized() {
            return Err(InvalidValue::OtherRange {
                found: self.range.clone(),
                expected,
            });
        }
        let len = range.len();
        let mut allocator = Allocator::new(range);
        for (byte, first) in self.data.iter().rev().zip((0..).step_by(8)) {
            let taken = (0..BITS).filter(|bit| byte >> bit & 1 == 1);
            for number in taken.map(|bit| first + bit) {
                let item = allocator.range().item(number);
                let reserved = item.map(|item| allocator.reserve(item));
                if !matches!(reserved, Some(Ok(()))) {
                    return Err(InvalidValue::Outside {
                        number,
                        range: expected,
                        len,
                    });
                }
            }
        }
        Ok(allocator)
    }
}

/// Returns the text of a range that fits in a bitmap.
fn checked_text<R: Range>(range: &R) -> Result<Box<str>, InvalidValue> {
    let (text, len) = (range.to_string().into(), range.len());
    let most = range.bitmap_range().map_or(0, |bitmap| bitmap.len());
    if len > most {
        return Err(InvalidValue::TooManyItems { range: text, len });
    }
    Ok(text)
}

/// Returns the byte, counted from the last one, and the mask of the bit of an item.
fn place(number: u128) -> (usize, u8) {
    let byte =
        usize::try_from(number / BITS).expect("a bitmap of Kubernetes has at most 2^20 bits");
    (byte, 1 << (number % BITS))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use crate::AddressRange;

    use super::*;

    /// Returns an allocator with allocated addresses.
    fn allocator(range: &str, taken: &[&str]) -> Allocator<AddressRange> {
        let mut allocator = Allocator::new(range.parse().unwrap());
        for address in taken {
            allocator.reserve(address.parse().unwrap()).unwrap();
        }
        allocator
    }

    fn items(allocator: &Allocator<AddressRange>) -> Vec<IpAddr> {
        allocator.items().collect()
    }

    #[test]
    fn the_bitmap_of_addresses_equals_the_bitmap_of_kubernetes() {
        for (range, taken, data) in [
            ("10.0.0.0/24", &[][..], &[][..]),
            ("10.0.0.0/24", &["10.0.0.1"], &[0x01]),
            ("10.0.0.0/24", &["10.0.0.8"], &[0x80]),
            ("10.0.0.0/24", &["10.0.0.9"], &[0x01, 0x00]),
            ("10.0.0.0/16", &["10.0.0.1", "10.0.0.10"], &[0x02, 0x01]),
            ("fd00::/112", &["fd00::1", "fd00::12"], &[0x02, 0x00, 0x01]),
        ] {
            let allocator = allocator(range, taken);
            let snapshot = RangeAllocation::of(&allocator).unwrap();
            assert_eq!(snapshot.data, data, "{taken:?}");
            assert_eq!(&*snapshot.range, range);
            let again = snapshot.allocator(*allocator.range()).unwrap();
            assert_eq!(items(&again), items(&allocator));
            assert_eq!(again.used(), allocator.used());
        }
    }

    #[test]
    fn the_last_item_has_the_highest_bit() {
        let taken = allocator("10.0.0.0/28", &["10.0.0.14"]);
        let snapshot = RangeAllocation::of(&taken).unwrap();
        assert_eq!(snapshot.data, [0b0010_0000, 0]);
        let beyond = RangeAllocation {
            data: vec![0b0100_0000, 0],
            ..snapshot
        };
        let error = beyond.allocator(*taken.range()).unwrap_err();
        let text = "item 14 is allocated, but the range 10.0.0.0/28 has 14 items";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn leading_zeros_are_ignored() {
        let snapshot = RangeAllocation {
            range: "10.0.0.0/30".into(),
            data: vec![0, 0, 0, 0, 0x02],
        };
        let read = snapshot.allocator("10.0.0.0/30".parse().unwrap()).unwrap();
        assert_eq!(items(&read), ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        let written = RangeAllocation::of(&read).unwrap();
        assert_eq!(written.data, [0x02]);
    }

    #[test]
    fn an_uninitialized_object_has_no_allocated_items() {
        let range: AddressRange = "10.0.0.0/24".parse().unwrap();
        let read = RangeAllocation::default().allocator(range).unwrap();
        assert_eq!(read.used(), 0);
        let nameless = RangeAllocation {
            range: "".into(),
            data: vec![1],
        };
        let error = nameless.allocator(range).unwrap_err().to_string();
        assert_eq!(error, r#"the object has the range "", not 10.0.0.0/24"#);
    }

    #[test]
    fn an_object_of_another_range_is_rejected() {
        let snapshot = RangeAllocation::of(&allocator("10.0.0.0/24", &["10.0.0.1"])).unwrap();
        for other in ["10.0.1.0/24", "10.0.0.0/25", "fd00::/120"] {
            let error = snapshot.allocator(other.parse::<AddressRange>().unwrap());
            let expected = InvalidValue::OtherRange {
                found: "10.0.0.0/24".into(),
                expected: other.into(),
            };
            assert_eq!(error.unwrap_err(), expected);
        }
    }

    #[test]
    fn migration_keeps_the_items_within_the_new_range() {
        let stored = allocator("10.0.0.0/24", &["10.0.0.1", "10.0.0.200"]);
        let stored = RangeAllocation::of(&stored).unwrap();
        for (range, expected) in [
            ("10.0.0.0/16", &["10.0.0.1", "10.0.0.200"][..]),
            ("10.0.0.0/25", &["10.0.0.1"]),
            ("10.0.0.128/25", &["10.0.0.200"]),
            ("10.1.0.0/16", &[]),
            ("fd00::/112", &[]),
        ] {
            let range: AddressRange = range.parse().unwrap();
            let migrated = stored.migrate(range).unwrap();
            let found: Vec<String> = items(&migrated).iter().map(ToString::to_string).collect();
            assert_eq!(
                (migrated.range(), &*found),
                (
                    &range,
                    &*expected
                        .iter()
                        .map(|text| (*text).to_owned())
                        .collect::<Vec<_>>()
                )
            );
        }
        for range in ["", "30000-32767", "fd00::/64", "10.0.0.1/24"] {
            let unknown = RangeAllocation {
                range: range.into(),
                data: vec![1],
            };
            let error = unknown.migrate::<AddressRange>("10.0.0.0/24".parse().unwrap());
            assert!(
                matches!(error, Err(InvalidValue::OtherRange { .. })),
                "{range}"
            );
        }
    }

    #[test]
    fn a_large_range_has_no_bitmap() {
        let large = allocator("fd00::/64", &["fd00::ffff:ffff:ffff:ffff"]);
        let error = RangeAllocation::of(&large).unwrap_err();
        assert!(
            matches!(error, InvalidValue::TooManyItems { .. }),
            "{error}"
        );
        let read = RangeAllocation::default().allocator(*large.range());
        assert_eq!(read.unwrap_err(), error);
        // An API server keeps the first 65,535 addresses of a /108.
        let wide = allocator("fd00::/108", &["fd00::1"]);
        let error = RangeAllocation::of(&wide).unwrap_err();
        assert!(
            matches!(error, InvalidValue::TooManyItems { .. }),
            "{error}"
        );
        let bitmap = wide.range().bitmap_range().unwrap();
        assert_eq!(bitmap.to_string(), "fd00::/108");
        assert!(RangeAllocation::of(&Allocator::new(bitmap)).is_ok());
        let largest = allocator("10.0.0.0/12", &["10.15.255.254"]);
        let snapshot = RangeAllocation::of(&largest).unwrap();
        assert_eq!(snapshot.data.len(), 1 << 17);
        assert_eq!(snapshot.data[0], 0b0010_0000);
    }
}
