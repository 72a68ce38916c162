//! `-m dscp`, `-m tos` and `-m ecn`: the type of service of IP packets.

use std::fmt;

use crate::field::{Value, extension};
use crate::negatable::Negatable;
use crate::number;
use crate::options::{Unsupported, Values};

extension! {
    /// Matches the differentiated services code point: `-m dscp --dscp 0x2e`.
    pub struct Dscp = "-m dscp" {
        /// Code point.
        dscp: Option<Negatable<DscpValue>> = "--dscp" | "--dscp-class",
    }
}

extension! {
    /// Matches the type of service: `-m tos --tos 0x10/0x3f`.
    pub struct Tos = "-m tos" {
        /// Value and mask.
        tos: Option<Negatable<TosValue>> = "--tos",
    }
}

extension! {
    /// Matches explicit congestion notification: `-p tcp -m ecn --ecn-tcp-ece`.
    pub struct Ecn = "-m ecn" {
        /// TCP flag ECE.
        tcp_ece: Option<Negatable<()>> = "--ecn-tcp-ece",
        /// TCP flag CWR.
        tcp_cwr: Option<Negatable<()>> = "--ecn-tcp-cwr",
        /// ECN field of the IP header, 0 to 3.
        ip_ect: Option<Negatable<u8>> = "--ecn-ip-ect",
    }
    complete |it| (it.tcp_ece.is_some() || it.tcp_cwr.is_some() || it.ip_ect.is_some())
        && it.ip_ect.is_none_or(|ect| *ect.value() < 4);
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

/// A type of service and a mask, printed as `0x10/0x3f`.
///
/// Exhaustive: value and mask are the whole condition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TosValue {
    /// Value.
    pub value: u8,
    /// Mask.
    pub mask: u8,
}

/// Types of service with names, whose mask is 0x3f.
const SERVICES: [(&str, u8); 5] = [
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0),
];

impl TosValue {
    /// Parses `VALUE`, `VALUE/MASK` or a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_it = |(name, _): &&(&str, u8)| name.eq_ignore_ascii_case(text);
        if let Some((_, value)) = SERVICES.iter().find(is_it) {
            let mask = 0x3f;
            return Some(Self {
                value: *value,
                mask,
            });
        }
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (value, number::parse_as(mask)?),
            None => (text, u8::MAX),
        };
        let value = number::parse_as(value)?;
        Some(Self { value, mask })
    }
}

impl fmt::Display for TosValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}/{:#04x}", self.value, self.mask)
    }
}

/// The options of match and target `TOS`.
impl Value<'_> for TosValue {
    fn take(option: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        let bits = |values: &mut Values<'_, '_>| values.parse(number::parse_as::<u8>);
        Ok(match option {
            "--and-tos" => Self {
                value: 0,
                mask: !bits(values)?,
            },
            "--or-tos" => {
                let bits = bits(values)?;
                Self {
                    value: bits,
                    mask: bits,
                }
            }
            "--xor-tos" => Self {
                value: bits(values)?,
                mask: 0,
            },
            _ => values.parse(Self::parse)?,
        })
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {self}")
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
