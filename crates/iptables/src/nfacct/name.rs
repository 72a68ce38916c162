//! Names of counters.

use std::fmt;

/// The greatest length of a name: `NFACCT_NAME_MAX` of 32 bytes with the NUL byte.
const MAX_NAME: usize = 31;

/// The name of a counter: 1 to 31 bytes without a NUL byte.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Box<str>);

impl Name {
    /// Checks and keeps a name.
    ///
    /// # Errors
    ///
    /// No counter can have the name.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || text.len() > MAX_NAME || text.contains('\0') {
            return Err(InvalidName(text.into()));
        }
        Ok(Self(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A text that cannot name a counter.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} cannot name a counter of nfacct: those names have 1 to 31 bytes")]
pub struct InvalidName(Box<str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_to_31_bytes() {
        assert_eq!(Name::new("hits").unwrap().to_string(), "hits");
        assert!(Name::new(&"n".repeat(31)).is_ok());
        for text in ["", "a\0b", &"n".repeat(32)] {
            assert!(Name::new(text).is_err(), "{text:?}");
        }
    }
}
