//! Counter names.

use std::fmt;

/// Maximum length of a name: `NFACCT_NAME_MAX` is 32 bytes with the NUL byte.
const MAX_NAME: usize = 31;

/// A counter name: 1 to 31 bytes without NUL bytes.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Box<str>);

impl Name {
    /// Creates a name.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the text is empty, longer than 31 bytes, or contains NUL.
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

/// The error of an invalid name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid nfacct counter name {0:?}: expected 1 to 31 bytes without NUL bytes")]
pub struct InvalidName(Box<str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_31_bytes() {
        assert_eq!(Name::new("hits").unwrap().to_string(), "hits");
        assert!(Name::new(&"n".repeat(31)).is_ok());
        for text in ["", "a\0b", &"n".repeat(32)] {
            assert!(Name::new(text).is_err(), "{text:?}");
        }
    }
}
