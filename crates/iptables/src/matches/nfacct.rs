//! `-m nfacct`: named counter.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::quote::Quoted;
use crate::options::{Extension, Parsed, Values};

/// Counts packets in a named object: `-m nfacct --nfacct-name hits`.
///
/// The object must exist before the rule is added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nfacct<'a> {
    /// Name of the object.
    pub name: Cow<'a, str>,
}

impl<'a> Nfacct<'a> {
    /// Counts packets in the object with this name.
    pub fn new(name: impl Into<Cow<'a, str>>) -> Self {
        Self { name: name.into() }
    }
}

impl<'a> Extension<'a> for Nfacct<'a> {
    fn open() -> Self {
        Self::new("")
    }

    fn options() -> &'static [&'static str] {
        &["--nfacct-name"]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--nfacct-name" {
            return Ok(false);
        }
        values.expect_index(0)?;
        self.name = values.word()?;
        Ok(true)
    }
}

impl fmt::Display for Nfacct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // iptables-save prints two spaces before the name.
        write!(f, "-m nfacct --nfacct-name  {}", Quoted(&self.name))
    }
}

/// Length of the name of an object with its NUL byte.
const NFACCT_NAME_MAX: usize = 32;

/// `struct xt_nfacct_match_info_v1`.
impl Structure for Nfacct<'_> {
    const NAME: &'static str = "nfacct";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.text(&self.name, NFACCT_NAME_MAX)?.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self::new(reader.text(NFACCT_NAME_MAX)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn nfacct_is_printed_with_two_spaces() {
        let rule = Rule::new().with_match(Nfacct::new("a.b"));
        assert_eq!(rule.to_string(), r#"-m nfacct --nfacct-name  "a.b""#);
        assert_eq!(Rule::parse("-m nfacct --nfacct-name a.b"), Ok(rule));
    }
}
