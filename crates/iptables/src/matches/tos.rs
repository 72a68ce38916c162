//! `-m tos`: type of service.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{Value, extension};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::{Unsupported, Values};

extension! {
    /// Matches the type of service: `-m tos --tos 0x10/0x3f`.
    pub struct Tos = "-m tos" {
        /// Value and mask.
        tos: Option<Negatable<TosValue>> = "--tos",
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

/// `struct xt_tos_match_info`.
impl Structure for Tos {
    const NAME: &'static str = "tos";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let tos = self.tos?;
        let TosValue { value, mask } = *tos.value();
        out.u8(mask).u8(value).u8(tos.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (mask, value) = (reader.u8()?, reader.u8()?);
        let tos = TosValue { value, mask };
        let tos = Some(Negatable::new(reader.u8()? != 0, tos));
        Some(Self { tos })
    }
}
