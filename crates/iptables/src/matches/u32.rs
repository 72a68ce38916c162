//! `-m u32`: numbers in a packet.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, at, position};
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;
use crate::options::number;

extension! {
    /// Matches numbers of four bytes in a packet: `-m u32 --u32 "0x6&0xff=0x1"`.
    pub struct U32 = "-m u32" {
        /// Tests, all of which must match.
        tests: Option<Negatable<U32Tests>> = "--u32",
    }
}

/// Tests of numbers in a packet, printed as `"0x0>>0x16&0x3c@0x4=0x1:0x5&&0x6=0x1"`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct U32Tests(Vec<U32Test>);

/// A test of a number in a packet.
///
/// Exhaustive: the fields of `struct xt_u32_test`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct U32Test {
    /// Offset of the number.
    pub offset: u32,
    /// Operations on the number, in order.
    pub operations: Vec<(U32Operation, u32)>,
    /// Ranges, one of which must contain the number.
    pub ranges: Vec<(u32, u32)>,
}

/// An operation on a number in a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum U32Operation {
    /// Bitwise and.
    And,
    /// Left shift.
    LeftShift,
    /// Right shift.
    RightShift,
    /// Reads a number at the offset of the number plus the operand.
    At,
}

impl U32Operation {
    const ALL: [(Self, &'static str); 4] = [
        (Self::And, "&"),
        (Self::LeftShift, "<<"),
        (Self::RightShift, ">>"),
        (Self::At, "@"),
    ];

    fn sign(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(it, _)| *it == self).map_or("", |(_, sign)| sign)
    }
}

impl U32Test {
    /// Parses a location and ranges: `0x6&0xff=0x1,0x3:0x5`.
    fn parse(text: &str) -> Option<Self> {
        let (location, ranges) = text.split_once('=')?;
        let (offset, mut rest) = take_number(location)?;
        let mut operations = Vec::new();
        while !rest.is_empty() {
            let find = |(_, sign): &&(U32Operation, &str)| rest.starts_with(sign);
            let (operation, sign) = U32Operation::ALL.iter().find(find)?;
            let (operand, after) = take_number(&rest[sign.len()..])?;
            operations.push((*operation, operand));
            rest = after;
        }
        let range = |text: &str| {
            let (first, last) = text.split_once(':').unwrap_or((text, text));
            let number = |text: &str| number::parse_as(text.trim_ascii());
            Some((number(first)?, number(last)?))
        };
        let ranges = ranges.split(',').map(range).collect::<Option<_>>()?;
        Some(Self {
            offset,
            operations,
            ranges,
        })
    }
}

/// Returns a number at the start of a text and the text after it, without blanks.
fn take_number(text: &str) -> Option<(u32, &str)> {
    let text = text.trim_ascii_start();
    let len = text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let (digits, rest) = text.split_at(len);
    Some((number::parse_as(digits)?, rest.trim_ascii_start()))
}

impl U32Tests {
    /// Maximum number of tests, and of the operations and ranges of each:
    /// `XT_U32_MAXSIZE`.
    const MAX: usize = 10;

    /// Creates 1 to 10 tests with at most 9 operations and 1 to 10 ranges each, otherwise
    /// returns `None`.
    pub fn new(tests: impl Into<Vec<U32Test>>) -> Option<Self> {
        let tests = tests.into();
        let fits = |test: &U32Test| {
            test.operations.len() < Self::MAX && (1..=Self::MAX).contains(&test.ranges.len())
        };
        let is_valid = (1..=Self::MAX).contains(&tests.len()) && tests.iter().all(fits);
        is_valid.then_some(Self(tests))
    }

    /// Returns the tests.
    pub fn get(&self) -> &[U32Test] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let tests: Option<Vec<_>> = text.split("&&").map(U32Test::parse).collect();
        Self::new(tests?)
    }
}

impl fmt::Display for U32Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for (at, test) in self.0.iter().enumerate() {
            write!(f, "{}{:#x}", if at == 0 { "" } else { "&&" }, test.offset)?;
            for (operation, operand) in &test.operations {
                write!(f, "{}{operand:#x}", operation.sign())?;
            }
            for (at, (first, last)) in test.ranges.iter().enumerate() {
                write!(f, "{}{first:#x}", if at == 0 { "=" } else { "," })?;
                if first != last {
                    write!(f, ":{last:#x}")?;
                }
            }
        }
        f.write_str("\"")
    }
}

word_values! { U32Tests = U32Tests::parse, }

/// Number of tests, and of operations and ranges of each: `XT_U32_MAXSIZE` and one.
const ENTRIES: usize = U32Tests::MAX + 1;
/// Length of `struct xt_u32_test`.
const TEST_LEN: usize = 180;

/// `enum xt_u32_ops`: `XT_U32_AND`, `XT_U32_LEFTSH`, `XT_U32_RIGHTSH`, `XT_U32_AT`.
const OPERATIONS: [U32Operation; 4] = [
    U32Operation::And,
    U32Operation::LeftShift,
    U32Operation::RightShift,
    U32Operation::At,
];

/// `struct xt_u32`.
impl Structure for U32 {
    const NAME: &'static str = "u32";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let tests = self.tests.as_ref()?;
        let all = tests.value().get();
        for test in all {
            test.write(out)?;
        }
        let unused = ENTRIES.checked_sub(all.len())?;
        out.zeros(unused * TEST_LEN);
        out.u8(all.len().try_into().ok()?);
        out.u8(tests.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut all = Vec::new();
        for _ in 0..ENTRIES {
            all.push(U32Test::read(reader)?);
        }
        let [count, inverted] = reader.array()?;
        all.truncate(count.into());
        // Unused tests have no ranges.
        let tests = U32Tests::new(all)?;
        let tests = Some(Negatable::new(inverted != 0, tests));
        Some(Self { tests })
    }
}

/// `struct xt_u32_test`: `struct xt_u32_location_element`, whose first one is the offset, and
/// `struct xt_u32_value_element`.
impl U32Test {
    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u32(self.offset).zeros(4);
        for (operation, operand) in &self.operations {
            out.u32(*operand);
            out.u8(position(&OPERATIONS, operation)?).zeros(3);
        }
        let numbers = self.operations.len() + 1;
        out.zeros(ENTRIES.checked_sub(numbers)? * 8);
        for (first, last) in &self.ranges {
            out.u32(*first).u32(*last);
        }
        out.zeros(ENTRIES.checked_sub(self.ranges.len())? * 8);
        out.u8(numbers.try_into().ok()?);
        out.u8(self.ranges.len().try_into().ok()?).zeros(2);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (mut locations, mut ranges) = (Vec::new(), Vec::new());
        for _ in 0..ENTRIES {
            let operand = reader.u32()?;
            let [operation, ..]: [u8; 4] = reader.array()?;
            locations.push((at(&OPERATIONS, operation)?, operand));
        }
        for _ in 0..ENTRIES {
            ranges.push((reader.u32()?, reader.u32()?));
        }
        let [numbers, values, ..]: [u8; 4] = reader.array()?;
        locations.truncate(numbers.into());
        ranges.truncate(values.into());
        let mut locations = locations.into_iter();
        // The first location has no operation.
        let offset = locations.next().map_or(0, |(_, offset)| offset);
        Some(Self {
            offset,
            operations: locations.collect(),
            ranges,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_numbers_are_printed_in_hexadecimal() {
        let text = "0>>22&0x3C@ 4 >>8&0xff=1:5,7 && 6&0xff=1";
        let printed = "\"0x0>>0x16&0x3c@0x4>>0x8&0xff=0x1:0x5,0x7&&0x6&0xff=0x1\"";
        assert_eq!(U32Tests::parse(text).unwrap().to_string(), printed);
        for text in ["", "0", "0=", "=1", "0&=1", "0<1=1", "0=1&&", "0=1,"] {
            assert_eq!(U32Tests::parse(text), None, "{text}");
        }
    }
}
