//! Ranges of node ports.

use std::fmt;
use std::str::FromStr;

use crate::range::band;
use crate::{AllocationError, InvalidValue, Range};

/// An inclusive range of ports, such as `30000-32767`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Returns the range from `first` to `last`, inclusive.
    ///
    /// # Errors
    ///
    /// [`InvalidValue::Ports`]: `first` is 0, or `last` is below `first`.
    pub const fn new(first: u16, last: u16) -> Result<Self, InvalidValue> {
        if first == 0 || last < first {
            return Err(InvalidValue::Ports { first, last });
        }
        Ok(Self { first, last })
    }

    /// Returns the first port.
    #[must_use]
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// Returns the last port.
    #[must_use]
    pub const fn last(&self) -> u16 {
        self.last
    }
}

impl Default for PortRange {
    /// Returns the default of Kubernetes: 30000-32767.
    fn default() -> Self {
        Self {
            first: 30_000,
            last: 32_767,
        }
    }
}

impl Range for PortRange {
    type Item = u16;

    fn len(&self) -> u128 {
        u128::from(self.last - self.first) + 1
    }

    /// Returns `min(max(16, size / 32), 128)`, or 0 for up to 16 ports.
    fn static_band(&self) -> u128 {
        band(self.len(), 32, 128)
    }

    fn number(&self, item: u16) -> Result<u128, AllocationError> {
        if (self.first..=self.last).contains(&item) {
            Ok((item - self.first).into())
        } else {
            Err(AllocationError::not_in_range(&item, self))
        }
    }

    fn item(&self, number: u128) -> Option<u16> {
        let item = self.first.checked_add(u16::try_from(number).ok()?)?;
        (item <= self.last).then_some(item)
    }
}

impl FromStr for PortRange {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let syntax = || InvalidValue::Syntax {
            text: text.into(),
            what: "range of ports, such as 30000-32767",
        };
        let port = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok();
            number.filter(|_| is_number).ok_or_else(syntax)
        };
        let (first, last) = text.split_once('-').ok_or_else(syntax)?;
        Self::new(port(first)?, port(last)?)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Allocator, Pool, RangeAllocation};

    use super::*;

    #[test]
    fn bands_are_those_of_kubernetes() {
        for (range, len, lower) in [
            ("30000-30000", 1, 0),
            ("30000-30015", 16, 0),
            ("30000-30016", 17, 16),
            ("30000-30542", 543, 16),
            ("30000-30543", 544, 17),
            ("30000-32767", 2768, 86),
            ("30000-34095", 4096, 128),
            ("1-65535", 65_535, 128),
        ] {
            let range: PortRange = range.parse().unwrap();
            assert_eq!((range.len(), range.static_band()), (len, lower), "{range}");
            let ends = (range.item(0), range.item(len - 1));
            assert_eq!(ends, (Some(range.first()), Some(range.last())));
            assert_eq!(range.item(len), None);
        }
        assert_eq!(PortRange::default().to_string(), "30000-32767");
    }

    #[test]
    fn ports_outside_of_the_range_are_rejected() {
        let range = PortRange::default();
        assert_eq!(range.number(30_000), Ok(0));
        assert_eq!(range.number(32_767), Ok(2767));
        for port in [0, 29_999, 32_768, 65_535] {
            let error = range.number(port).unwrap_err().to_string();
            let expected = format!("{port} is not in the valid range 30000-32767");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn invalid_port_ranges_are_reported() {
        for (text, part) in [
            ("", r#""" is not a range of ports"#),
            ("30000", "is not a range of ports"),
            ("-", "is not a range of ports"),
            ("+30000-32767", "is not a range of ports"),
            ("30000-65536", "is not a range of ports"),
            ("30000-32767 ", "is not a range of ports"),
            ("32767-30000", "ports 32767-30000: "),
            ("0-10", "ports 0-10: "),
        ] {
            let error = text.parse::<PortRange>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_bitmap_of_ports_equals_the_bitmap_of_kubernetes() {
        let mut allocator = Allocator::new(PortRange::default());
        allocator.reserve(30_008).unwrap();
        let snapshot = RangeAllocation::of(&allocator).unwrap();
        assert_eq!(&*snapshot.range, "30000-32767");
        assert_eq!(snapshot.data, [0x01, 0x00]);
    }
}
