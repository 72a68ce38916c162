//! `-j MARK`: packet mark.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::number::{self, Masked};
use crate::options::{Extension, Parsed, Unsupported, Values};

/// Changes the packet mark: `-j MARK --set-xmark 0x4000/0x4000`.
///
/// Clears the bits of the mask, then flips the bits of the value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark(pub Masked);

impl Mark {
    /// Sets the mark to a value.
    pub fn set(value: u32) -> Self {
        Self(value.into())
    }

    /// Sets these bits: `--or-mark`.
    pub fn or(bits: u32) -> Self {
        Self(or(bits))
    }

    /// Clears all bits except these: `--and-mark`.
    pub fn and(bits: u32) -> Self {
        Self(and(bits))
    }

    /// Flips these bits: `--xor-mark`.
    pub fn xor(bits: u32) -> Self {
        Self(xor(bits))
    }
}

fn or(bits: u32) -> Masked {
    Masked {
        value: bits,
        mask: bits,
    }
}

fn and(bits: u32) -> Masked {
    Masked {
        value: 0,
        mask: !bits,
    }
}

fn xor(bits: u32) -> Masked {
    Masked {
        value: bits,
        mask: 0,
    }
}

/// Parses an option that changes a mark, if it is one.
pub(super) fn change(
    option: &str,
    values: &mut Values<'_, '_>,
) -> Result<Option<Masked>, Unsupported> {
    let masked = match option {
        "--set-xmark" => values.parse(Masked::parse)?,
        // Bits of the value outside the mask are set, too.
        "--set-mark" => {
            let Masked { value, mask } = values.parse(Masked::parse)?;
            let mask = value | mask;
            Masked { value, mask }
        }
        "--and-mark" => and(values.parse(number::parse_as)?),
        "--or-mark" => or(values.parse(number::parse_as)?),
        "--xor-mark" => xor(values.parse(number::parse_as)?),
        _ => return Ok(None),
    };
    Ok(Some(masked))
}

impl<'a> Extension<'a> for Mark {
    fn open() -> Self {
        Self::xor(0)
    }

    fn options() -> &'static [&'static str] {
        &[
            "--set-xmark",
            "--set-mark",
            "--and-mark",
            "--or-mark",
            "--xor-mark",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        let Some(masked) = change(option, values)? else {
            return Ok(false);
        };
        values.expect_index(0)?;
        self.0 = masked;
        Ok(true)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-j MARK --set-xmark {}", self.0)
    }
}

/// `struct xt_mark_tginfo2`.
impl Structure for Mark {
    const NAME: &'static str = "MARK";
    const REVISION: u32 = 2;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let Masked { value, mask } = self.0;
        out.u32(value).u32(mask);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (value, mask) = (reader.u32()?, reader.u32()?);
        Some(Self(Masked { value, mask }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn every_option_to_change_a_mark_is_parsed() {
        let table = [
            (
                "--set-xmark 0x4000/0x4000",
                Mark::or(0x4000),
                "0x4000/0x4000",
            ),
            ("--or-mark 0x00004000", Mark::or(0x4000), "0x4000/0x4000"),
            ("--xor-mark 0x00004000", Mark::xor(0x4000), "0x4000/0x0"),
            ("--and-mark 0xff", Mark::and(0xff), "0x0/0xffffff00"),
            ("--set-mark 1", Mark::set(1), "0x1/0xffffffff"),
            (
                "--set-mark 0x5/0x3",
                Mark(Masked { value: 5, mask: 7 }),
                "0x5/0x7",
            ),
        ];
        for (text, mark, printed) in table {
            let rule = Rule::parse(text_of(text).leak()).unwrap();
            assert_eq!(rule, Rule::new().with_target(mark), "{text}");
            assert_eq!(rule.to_string(), text_of(&format!("--set-xmark {printed}")));
        }
    }

    fn text_of(option: &str) -> String {
        format!("-j MARK {option}")
    }
}
