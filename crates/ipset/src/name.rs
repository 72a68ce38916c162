//! Set names and entry comments.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Maximum length of a name: `IPSET_MAXNAMELEN` without the NUL byte.
const MAX_NAME: usize = 31;
/// Maximum length of a comment: `IPSET_MAX_COMMENT_SIZE`.
const MAX_COMMENT: usize = 255;

/// A set name.
///
/// A name has 1 to 31 bytes without white space, double quotes and NUL bytes. Clones
/// share the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Arc<str>);

impl Name {
    /// Creates a name.
    ///
    /// ```
    /// use vipline_ipset::Name;
    ///
    /// assert_eq!(Name::new("KUBE-CLUSTER-IP")?.as_str(), "KUBE-CLUSTER-IP");
    /// assert!(Name::new("two words").is_err());
    /// # Ok::<(), vipline_ipset::InvalidName>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the text is empty, longer than 31 bytes, or contains white
    /// space, double quotes or NUL bytes.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let bad = |c: char| c.is_whitespace() || matches!(c, '\0' | '"');
        if text.is_empty() || text.len() > MAX_NAME || text.contains(bad) {
            return Err(InvalidName { len: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates a name from a kernel message, without checks.
    pub(crate) fn from_kernel(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the temporary name of the set that replaces this one.
    pub(crate) fn successor(&self) -> Self {
        let mut end = self.0.len().min(MAX_NAME - 1);
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        let start = self.0.get(..end).unwrap_or_default();
        Self(format!("{start}~").into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for Name {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

/// The error of an invalid name or comment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "invalid name or comment of {len} bytes: empty, too long, or with a character that ipset cannot read"
)]
#[non_exhaustive]
pub struct InvalidName {
    /// Length of the text in bytes.
    pub len: usize,
}

/// An entry comment.
///
/// A comment has 1 to 255 bytes without NUL bytes, newlines and double quotes.
/// `ipset` has no syntax to escape newlines and double quotes.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Comment(Arc<str>);

impl Comment {
    /// Creates a comment.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the text is empty, longer than 255 bytes, or contains NUL
    /// bytes, newlines or double quotes.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let bad = |c: char| matches!(c, '\0' | '\n' | '"');
        if text.is_empty() || text.len() > MAX_COMMENT || text.contains(bad) {
            return Err(InvalidName { len: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// Creates a comment from a kernel message, without checks.
    pub(crate) fn from_kernel(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "comment \"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_31_bytes_that_ipset_can_parse() {
        assert!(Name::new(&"a".repeat(31)).is_ok());
        assert!(Name::new(&"a".repeat(32)).is_err());
        assert_eq!(Name::new("a b"), Err(InvalidName { len: 3 }));
        assert!(Name::new("").is_err());
    }

    #[test]
    fn successor_names_are_valid_and_differ_from_the_name() {
        for text in ["a", &"a".repeat(31), &"ä".repeat(15)] {
            let name = Name::new(text).unwrap();
            let successor = name.successor();
            assert_ne!(successor, name);
            assert_eq!(Name::new(successor.as_str()), Ok(successor));
        }
    }

    #[test]
    fn comments_hold_only_text_that_ipset_can_parse() {
        assert_eq!(Comment::new("x y").unwrap().to_string(), "comment \"x y\"");
        assert!(Comment::new("say \"x\"").is_err());
        assert!(Comment::new("two\nlines").is_err());
        assert!(Comment::new(&"c".repeat(256)).is_err());
    }
}
