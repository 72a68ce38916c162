//! Numbers in iptables syntax.

use std::fmt;
use std::ops::RangeInclusive;

use crate::options::service;

/// Parses a decimal, hexadecimal (`0x`) or octal (`0`) number.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let (digits, radix) = match bytes {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // `from_str_radix` also accepts a sign.
    if !digits.as_bytes().first()?.is_ascii_hexdigit() {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Parses a number that fits into `T`.
pub(crate) fn parse_as<T: TryFrom<u64>>(text: &str) -> Option<T> {
    parse(text)?.try_into().ok()
}

/// Splits a decimal number with an optional fraction from its unit: `1.5` and `ms`.
pub(crate) fn split_decimal(text: &str) -> Option<(f64, &str)> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let end = text.bytes().position(|byte| !is_digit(byte));
    let (count, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((count.parse().ok()?, unit))
}

/// Returns the integral part of a number that is not negative and fits.
pub(crate) fn truncate(number: f64) -> Option<u32> {
    let fits = (0.0..=f64::from(u32::MAX)).contains(&number);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number fits"
    )]
    fits.then_some(number as u32)
}

/// A range of numbers, both ends included, printed as `1:5`, or `1` if the ends are
/// equal.
///
/// Exhaustive: first and last value are the whole range.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Range<T> {
    /// First number.
    pub first: T,
    /// Last number.
    pub last: T,
}

/// Parses a port or a name of a service.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    parse_as(text).or_else(|| service::port(text))
}

/// A range of ports.
pub type Ports = Range<u16>;

impl<T: Copy + PartialOrd + TryFrom<u64>> Range<T> {
    /// Parses `1`, `1:5`, `1:` or `:5`. Returns `None` if the last number is less than
    /// the first.
    ///
    /// Omitted ends are those of `all`.
    pub(crate) fn parse(text: &str, separator: char, all: Self) -> Option<Self> {
        let Some((first, last)) = text.split_once(separator) else {
            return parse_as::<T>(text).map(Self::from);
        };
        let end = |text: &str, open| {
            if text.is_empty() {
                Some(open)
            } else {
                parse_as(text)
            }
        };
        let range = Self {
            first: end(first, all.first)?,
            last: end(last, all.last)?,
        };
        Some(range).filter(|range| range.first <= range.last)
    }
}

impl Ports {
    /// Parses ports like [`Range::parse`], or a name of a service in place of a number.
    pub(crate) fn parse_services(text: &str, separator: char) -> Option<Self> {
        if let Some(ports) = Self::parse(text, separator, Self::ALL) {
            return Some(ports);
        }
        let end = |text: &str, open| match text {
            "" => Some(open),
            text => parse_port(text),
        };
        // Names contain the separator of NAT.
        let (first, last) = match parse_port(text) {
            Some(port) => (port, port),
            None => {
                let (first, last) = text.split_once(separator)?;
                (end(first, 0)?, end(last, u16::MAX)?)
            }
        };
        (first <= last).then_some(Self { first, last })
    }

    /// All ports.
    pub const ALL: Self = Self {
        first: 0,
        last: u16::MAX,
    };
}

impl Range<u32> {
    /// All numbers.
    pub const ALL: Self = Self {
        first: 0,
        last: u32::MAX,
    };
}

impl<T: Copy> From<T> for Range<T> {
    fn from(only: T) -> Self {
        Self {
            first: only,
            last: only,
        }
    }
}

impl<T: Copy> From<RangeInclusive<T>> for Range<T> {
    fn from(range: RangeInclusive<T>) -> Self {
        Self {
            first: *range.start(),
            last: *range.end(),
        }
    }
}

impl<T: PartialEq + fmt::Display> fmt::Display for Range<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        if self.first != self.last {
            write!(f, ":{}", self.last)?;
        }
        Ok(())
    }
}

/// A value and a mask, printed as `0x4000/0x4000`.
///
/// Exhaustive: value and mask are the whole condition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Masked {
    /// Value.
    pub value: u32,
    /// Mask.
    pub mask: u32,
}

impl Masked {
    /// Parses `VALUE` or `VALUE/MASK`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (value, parse_as(mask)?),
            None => (text, u32::MAX),
        };
        let value = parse_as(value)?;
        Some(Self { value, mask })
    }
}

impl From<u32> for Masked {
    fn from(value: u32) -> Self {
        Self {
            value,
            mask: u32::MAX,
        }
    }
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// A value that is compared under a mask. A mask of all bits is not printed.
///
/// Exhaustive: value and mask are the whole condition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MaskedMatch(pub Masked);

impl<T: Into<Masked>> From<T> for MaskedMatch {
    fn from(value: T) -> Self {
        Self(value.into())
    }
}

impl fmt::Display for MaskedMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.mask {
            u32::MAX => write!(f, "{:#x}", self.0.value),
            _ => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_hexadecimal_or_octal() {
        let table = [
            ("0", Some(0)),
            ("10", Some(10)),
            ("010", Some(8)),
            ("0x10", Some(16)),
            ("0X1f", Some(31)),
            ("", None),
            ("0x", None),
            ("+1", None),
            ("-1", None),
            ("0x+1", None),
            ("08", None),
            ("ff", None),
            ("99999999999999999999", None),
        ];
        for (text, number) in table {
            assert_eq!(parse(text), number, "{text}");
        }
        assert_eq!(parse_as::<u16>("65536"), None);
    }

    #[test]
    fn ranges_and_masks_are_parsed_and_printed() {
        let ports = |text| Ports::parse(text, ':', Ports::ALL);
        for (text, printed) in [
            ("80", "80"),
            ("1:2", "1:2"),
            (":3", "0:3"),
            ("4:", "4:65535"),
        ] {
            assert_eq!(ports(text).unwrap().to_string(), printed);
        }
        assert_eq!(ports("5:5"), Some(5.into()));
        assert_eq!(ports("http"), None);
        let services = |text| Ports::parse_services(text, ':');
        assert_eq!(services("http"), Some(80.into()));
        assert_eq!(services("ssh:"), Some((22..=65535).into()));
        assert_eq!(services("no-such-service"), None);
        assert_eq!(Masked::parse("5"), Some(5.into()));
        assert_eq!(
            Masked::parse("0x00004000/0x00004000").unwrap().to_string(),
            "0x4000/0x4000"
        );
        assert_eq!(Masked::parse("1/"), None);
    }
}
