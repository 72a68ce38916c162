//! `-m dscp`: differentiated services code point.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{Value, extension};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::{Unsupported, Values};

extension! {
    /// Matches the differentiated services code point: `-m dscp --dscp 0x2e`.
    pub struct Dscp = "-m dscp" {
        /// Code point.
        dscp: Option<Negatable<DscpValue>> = "--dscp" | "--dscp-class",
    }
}

/// A differentiated services code point, printed as `0x2e`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DscpValue(u8);

impl DscpValue {
    /// Creates a code point from 0 to 63, otherwise returns `None`.
    pub fn new(value: u8) -> Option<Self> {
        (value < 64).then_some(Self(value))
    }

    /// Returns the number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Returns the code point of a class: `CS0` to `CS7`, `AF11` to `AF43`, `BE` or `EF`.
    pub fn of_class(name: &str) -> Option<Self> {
        let name = name.to_ascii_uppercase();
        let digit = |at: usize, most| {
            let digit = name.as_bytes().get(at)?.checked_sub(b'0')?;
            (digit <= most).then_some(digit)
        };
        match (name.get(..2)?, name.len()) {
            ("BE", 2) => Some(Self(0)),
            ("EF", 2) => Some(Self(0x2e)),
            ("CS", 3) => Some(Self(digit(2, 7)? << 3)),
            ("AF", 4) => match (digit(2, 4)?, digit(3, 3)?) {
                (0, _) | (_, 0) => None,
                (class, precedence) => Some(Self(class << 3 | precedence << 1)),
            },
            _ => None,
        }
    }
}

impl fmt::Display for DscpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

impl Value<'_> for DscpValue {
    fn take(option: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        if option.ends_with("-class") {
            values.parse(Self::of_class)
        } else {
            values.parse(|text| Self::new(number::parse_as(text)?))
        }
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {self}")
    }
}

/// `struct xt_dscp_info`.
impl Structure for Dscp {
    const NAME: &'static str = "dscp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let dscp = self.dscp?;
        out.u8(dscp.value().get()).u8(dscp.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let dscp = DscpValue::new(reader.u8()?)?;
        let dscp = Some(Negatable::new(reader.u8()? != 0, dscp));
        Some(Self { dscp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_code_points() {
        for (name, value) in [
            ("cs1", 8),
            ("CS7", 56),
            ("AF11", 10),
            ("AF43", 38),
            ("EF", 46),
        ] {
            assert_eq!(DscpValue::of_class(name), DscpValue::new(value), "{name}");
        }
        for name in [
            "", "CS", "CS8", "AF", "AF1", "AF10", "AF44", "AF51", "EF1", "ü",
        ] {
            assert_eq!(DscpValue::of_class(name), None, "{name}");
        }
    }
}
