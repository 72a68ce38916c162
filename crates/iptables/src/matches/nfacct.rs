//! `-m nfacct`: counts in an object that has a name.

use std::borrow::Cow;
use std::fmt;

use crate::options::{Extension, Parsed, Values};
use crate::quote::Quoted;

/// Counts in an object that has a name: `-m nfacct --nfacct-name hits`.
///
/// The object has to be there before the rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nfacct<'a> {
    /// The name.
    pub name: Cow<'a, str>,
}

impl<'a> Nfacct<'a> {
    /// Counts in the object of this name.
    pub fn new(name: impl Into<Cow<'a, str>>) -> Self {
        Self { name: name.into() }
    }
}

impl<'a> Extension<'a> for Nfacct<'a> {
    fn open() -> Self {
        Self::new("")
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
        // A save has two blanks before the name.
        write!(f, "-m nfacct --nfacct-name  {}", Quoted(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_printed_with_two_blanks() {
        let rule = Rule::new().matching(Nfacct::new("a.b"));
        assert_eq!(rule.to_string(), r#"-m nfacct --nfacct-name  "a.b""#);
        assert_eq!(Rule::parse("-m nfacct --nfacct-name a.b"), Ok(rule));
    }
}
