//! What is allocated, in the form that Kubernetes keeps it in.

use thiserror::Error;

use crate::{Allocator, Pool, Range};

/// Bits of a byte.
const BITS: u128 = u8::BITS as u128;

/// What is taken of a range: the object `RangeAllocation` of Kubernetes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RangeAllocation {
    /// The range as text; none if nobody has written the object yet.
    pub range: Box<str>,
    /// A number with a bit for each item, the highest ones first.
    ///
    /// The lowest bit of the last byte is that of item 0; there are no leading
    /// zeros.
    pub data: Vec<u8>,
}

/// Why something is no snapshot of a range.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is of another range.
    #[error("it is of the range {found:?}, not of {expected}")]
    OtherRange {
        /// The range it is of.
        found: Box<str>,
        /// The range it should be of.
        expected: Box<str>,
    },
    /// It cannot be read.
    #[error("{what}, at byte {at}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// An item is taken that the range does not have.
    #[error("item {number} is taken, and the range {range} has {len}")]
    Outside {
        /// The number of the item.
        number: u128,
        /// The range.
        range: Box<str>,
        /// How many items the range has.
        len: u128,
    },
    /// The range has more items than a bitmap has room for.
    #[error("the range {range} has {len} items, too many for a bitmap")]
    TooLarge {
        /// The range.
        range: Box<str>,
        /// How many items the range has.
        len: u128,
    },
}

impl RangeAllocation {
    /// Returns what is taken of a range.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::TooLarge`] of a range that Kubernetes keeps in no
    /// bitmap.
    pub fn of<R: Range>(allocator: &Allocator<R>) -> Result<Self, SnapshotError> {
        let range = fitting(allocator.range())?;
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

    /// Returns whether the object is not initialized: it has neither a range nor an
    /// item.
    #[must_use]
    pub fn is_uninitialized(&self) -> bool {
        self.range.is_empty() && self.data.iter().all(|byte| *byte == 0)
    }

    /// Returns the items taken that another range has as well.
    ///
    /// ```text
    /// 30000-32767 {30007, 32700} → 30000-31000 {30007}
    /// ```
    ///
    /// # Errors
    ///
    /// A [`SnapshotError`] if the object cannot be read as that of its own range.
    pub fn migrate<R: Range>(&self, range: R) -> Result<Allocator<R>, SnapshotError> {
        let other_range = |_| SnapshotError::OtherRange {
            found: self.range.clone(),
            expected: range.to_string().into(),
        };
        let former: R = self.range.parse().map_err(other_range)?;
        let former = former.bitmap_range().map_err(other_range)?;
        let former = self.allocator(former)?;
        let mut allocator = Allocator::new(range);
        for item in former.items() {
            // An item that the range does not have is refused, and left out.
            let _ = allocator.reserve(item);
        }
        Ok(allocator)
    }

    /// Returns what is taken, of the range that it should be of.
    ///
    /// Zeros at the front do not matter. If nobody has written the object yet,
    /// nothing is taken.
    ///
    /// # Errors
    ///
    /// A [`SnapshotError`] that names what is wrong.
    pub fn allocator<R: Range>(&self, range: R) -> Result<Allocator<R>, SnapshotError> {
        let expected = fitting(&range)?;
        if self.range != expected && !self.is_uninitialized() {
            return Err(SnapshotError::OtherRange {
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
                    return Err(SnapshotError::Outside {
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

/// Returns the text of a range that a bitmap has room for.
fn fitting<R: Range>(range: &R) -> Result<Box<str>, SnapshotError> {
    let (text, len) = (range.to_string().into(), range.len());
    let most = range.bitmap_range().map_or(0, |bitmap| bitmap.len());
    if len > most {
        return Err(SnapshotError::TooLarge { range: text, len });
    }
    Ok(text)
}

/// Returns which byte from the last on has the bit of an item, and that bit.
fn place(number: u128) -> (usize, u8) {
    let byte = usize::try_from(number / BITS).expect("a bitmap of that size has few bytes");
    (byte, 1 << (number % BITS))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use crate::AddressRange;

    use super::*;

    /// Returns an allocator of which some addresses are taken.
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
    fn it_is_what_kubernetes_writes() {
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
        let text = "item 14 is taken, and the range 10.0.0.0/28 has 14";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn zeros_at_the_front_do_not_matter() {
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
    fn nothing_is_taken_of_what_nobody_has_written() {
        let range: AddressRange = "10.0.0.0/24".parse().unwrap();
        let read = RangeAllocation::default().allocator(range).unwrap();
        assert_eq!(read.used(), 0);
        let nameless = RangeAllocation {
            range: "".into(),
            data: vec![1],
        };
        let error = nameless.allocator(range).unwrap_err().to_string();
        assert_eq!(error, r#"it is of the range "", not of 10.0.0.0/24"#);
    }

    #[test]
    fn that_of_another_range_is_refused() {
        let snapshot = RangeAllocation::of(&allocator("10.0.0.0/24", &["10.0.0.1"])).unwrap();
        for other in ["10.0.1.0/24", "10.0.0.0/25", "fd00::/120"] {
            let error = snapshot.allocator(other.parse::<AddressRange>().unwrap());
            let expected = SnapshotError::OtherRange {
                found: "10.0.0.0/24".into(),
                expected: other.into(),
            };
            assert_eq!(error.unwrap_err(), expected);
        }
    }

    #[test]
    fn the_items_of_another_range_are_kept_if_the_new_one_has_them() {
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
                matches!(error, Err(SnapshotError::OtherRange { .. })),
                "{range}"
            );
        }
    }

    #[test]
    fn a_large_range_has_no_bitmap() {
        let large = allocator("fd00::/64", &["fd00::ffff:ffff:ffff:ffff"]);
        let error = RangeAllocation::of(&large).unwrap_err();
        assert!(matches!(error, SnapshotError::TooLarge { .. }), "{error}");
        let read = RangeAllocation::default().allocator(*large.range());
        assert_eq!(read.unwrap_err(), error);
        // An API server keeps the first 65,535 addresses of a /108.
        let wide = allocator("fd00::/108", &["fd00::1"]);
        let error = RangeAllocation::of(&wide).unwrap_err();
        assert!(matches!(error, SnapshotError::TooLarge { .. }), "{error}");
        let bitmap = wide.range().bitmap_range().unwrap();
        assert_eq!(bitmap.to_string(), "fd00::/108");
        assert!(RangeAllocation::of(&Allocator::new(bitmap)).is_ok());
        let largest = allocator("10.0.0.0/12", &["10.15.255.254"]);
        let snapshot = RangeAllocation::of(&largest).unwrap();
        assert_eq!(snapshot.data.len(), 1 << 17);
        assert_eq!(snapshot.data[0], 0b0010_0000);
    }
}
