//! Names and comments of kernel objects.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Maximum length of a name: `NFT_NAME_MAXLEN` (256 bytes) without the NUL byte.
const MAX_NAME: usize = 255;
/// Maximum length of a comment that nft lists, without the NUL byte.
const MAX_COMMENT: usize = 128;

/// The name of a table, chain, set, device or other kernel object.
///
/// 1 to 255 bytes without a NUL byte. Clones share the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Arc<str>);

impl Name {
    /// Creates a name.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the text is empty, longer than 255 bytes, or contains NUL.
    ///
    /// ```
    /// use vipline_nftables::Name;
    ///
    /// assert_eq!(Name::new("service-ips")?.as_str(), "service-ips");
    /// assert!(Name::new("").is_err());
    /// # Ok::<(), vipline_nftables::InvalidName>(())
    /// ```
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || text.len() > MAX_NAME || text.contains('\0') {
            return Err(InvalidName { len: text.len() });
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

/// Error: the text is not a valid name or comment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "invalid name or comment of {len} bytes: empty, too long, or with a character that nft cannot print"
)]
#[non_exhaustive]
pub struct InvalidName {
    /// Length of the text in bytes.
    pub len: usize,
}

/// A comment on a table, chain, rule, set or element.
///
/// The kernel stores a comment as opaque user data; `nft` lists it.
/// 1 to 128 bytes without NUL bytes, newlines and double quotes, which nft
/// cannot print.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Comment(Arc<str>);

impl Comment {
    /// Creates a comment.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the text is empty, longer than 128 bytes, or contains NUL,
    /// a newline or a double quote.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let unprintable = |c: char| matches!(c, '\0' | '\n' | '"');
        if text.is_empty() || text.len() > MAX_COMMENT || text.contains(unprintable) {
            return Err(InvalidName { len: text.len() });
        }
        Ok(Self(text.into()))
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
    fn a_name_has_one_to_255_bytes_and_no_nul() {
        assert!(Name::new("a").is_ok());
        assert!(Name::new(&"a".repeat(255)).is_ok());
        assert!(Name::new(&"a".repeat(256)).is_err());
        assert_eq!(Name::new("a\0b"), Err(InvalidName { len: 3 }));
        assert!(Name::new("").is_err());
    }

    #[test]
    fn a_comment_contains_only_characters_that_nft_can_parse() {
        assert_eq!(Comment::new("x y").unwrap().to_string(), "comment \"x y\"");
        assert!(Comment::new("say \"x\"").is_err());
        assert!(Comment::new("two\nlines").is_err());
        assert!(Comment::new(&"c".repeat(129)).is_err());
    }
}
