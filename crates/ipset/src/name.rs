//! Names of sets, and comments on entries.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The greatest length of a name: `IPSET_MAXNAMELEN` without the NUL byte.
const MAX_NAME: usize = 31;
/// The greatest length of a comment: `IPSET_MAX_COMMENT_SIZE`.
const MAX_COMMENT: usize = 255;

/// The name of a set.
///
/// Holds 1 to 31 bytes without white space, quotes and NUL bytes; a clone
/// shares the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks and keeps a name.
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
    /// The text is too long, empty, or `ipset` could not read it back.
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

    /// Keeps a name that the kernel told, whatever is in it.
    pub(crate) fn from_kernel(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the name that a set has while it is made to replace this one.
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

/// A text that cannot be a name or a comment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a text of {len} bytes is too short, too long or holds a character that ipset cannot read")]
pub struct InvalidName {
    /// How long the text is, in bytes.
    pub len: usize,
}

/// A comment on an entry.
///
/// Holds 1 to 255 bytes without NUL bytes, line ends and double quotes, which
/// `ipset` has no way to write.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Comment(Arc<str>);

impl Comment {
    /// Checks and keeps a comment.
    ///
    /// # Errors
    ///
    /// The text is empty or too long, or `ipset` could not read it back.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let bad = |c: char| matches!(c, '\0' | '\n' | '"');
        if text.is_empty() || text.len() > MAX_COMMENT || text.contains(bad) {
            return Err(InvalidName { len: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// Keeps a comment that the kernel told, whatever is in it.
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
    fn a_name_has_one_to_31_bytes_that_ipset_can_read() {
        assert!(Name::new(&"a".repeat(31)).is_ok());
        assert!(Name::new(&"a".repeat(32)).is_err());
        assert_eq!(Name::new("a b"), Err(InvalidName { len: 3 }));
        assert!(Name::new("").is_err());
    }

    #[test]
    fn a_successor_has_a_name_of_its_own_that_is_a_name() {
        for text in ["a", &"a".repeat(31), &"ä".repeat(15)] {
            let name = Name::new(text).unwrap();
            let successor = name.successor();
            assert_ne!(successor, name);
            assert_eq!(Name::new(successor.as_str()), Ok(successor));
        }
    }

    #[test]
    fn a_comment_holds_only_what_ipset_can_read_back() {
        assert_eq!(Comment::new("x y").unwrap().to_string(), "comment \"x y\"");
        assert!(Comment::new("say \"x\"").is_err());
        assert!(Comment::new("two\nlines").is_err());
        assert!(Comment::new(&"c".repeat(256)).is_err());
    }
}
