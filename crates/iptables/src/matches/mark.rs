//! `-m mark`: packet mark.

use std::fmt;

use crate::extensions::structure::Structure;
use crate::options::negatable::Negatable;
use crate::options::number::Masked;
use crate::options::{Extension, Parsed, Values};

/// Matches the packet mark: `-m mark --mark 0x4000/0x4000`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mark {
    /// Value and mask.
    pub mark: Negatable<Masked>,
}

impl Mark {
    /// Matches marks that equal `value` after applying `mask`.
    pub fn is(value: u32, mask: u32) -> Self {
        Self {
            mark: Negatable::Is(Masked { value, mask }),
        }
    }

    /// Matches marks that differ from `value` after applying `mask`.
    pub fn is_not(value: u32, mask: u32) -> Self {
        Self {
            mark: Negatable::Not(Masked { value, mask }),
        }
    }
}

impl<'a> Extension<'a> for Mark {
    fn open() -> Self {
        Self::is(0, u32::MAX)
    }

    fn options() -> &'static [&'static str] {
        &["--mark"]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--mark" {
            return Ok(false);
        }
        values.expect_index(0)?;
        self.mark = values.negatable(Masked::parse)?;
        Ok(true)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m mark")?;
        let Masked { value, mask } = self.mark.value();
        match *mask {
            u32::MAX => write!(f, " {}--mark {value:#x}", self.mark.bang()),
            _ => self.mark.write(f, "--mark"),
        }
    }
}

/// Rules contain the expression `meta mark` of nf_tables, not a structure.
impl Structure for Mark {
    const NAME: &'static str = "mark";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn mark_is_parsed_and_printed() {
        let table = [
            (
                "--mark 0x4000/0x4000",
                Mark::is(0x4000, 0x4000),
                "--mark 0x4000/0x4000",
            ),
            (
                "! --mark 0x00004000/0x00004000",
                Mark::is_not(0x4000, 0x4000),
                "! --mark 0x4000/0x4000",
            ),
            ("--mark 5", Mark::is(5, u32::MAX), "--mark 0x5"),
            (
                "! --mark 010/0xffffffff",
                Mark::is_not(8, u32::MAX),
                "! --mark 0x8",
            ),
            ("--mark 0/0", Mark::is(0, 0), "--mark 0x0/0x0"),
        ];
        for (options, mark, printed) in table {
            let text = format!("-m mark {options}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule, Rule::new().with_match(mark));
            assert_eq!(rule.to_string(), format!("-m mark {printed}"));
        }
        for text in ["-m mark", "-m mark --mark 1 --mark 2", "-m mark --mark x"] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
