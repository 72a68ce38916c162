//! Names of kernel objects, and comments.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The greatest length of a name: `NFT_NAME_MAXLEN` of 256 bytes with the NUL byte.
const MAX_NAME: usize = 255;
/// The greatest length of a comment that nft lists, without the NUL byte.
const MAX_COMMENT: usize = 128;

/// The name of a table, chain, set, device or other kernel object.
///
/// Holds 1 to 255 bytes without a NUL byte; a clone shares the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks and keeps a name.
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

/// A text that cannot be a name or a comment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a text of {len} bytes is too short, too long or holds a character that nft cannot print")]
pub struct InvalidName {
    /// How long the text is, in bytes.
    pub len: usize,
}

/// A comment on a table, chain, rule, set or element.
///
/// The kernel keeps it as opaque user data and `nft` lists it.
/// Holds 1 to 128 bytes without NUL bytes, line ends and double quotes, which
/// nft has no way to write.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Comment(Arc<str>);

impl Comment {
    /// Checks and keeps a comment.
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
    fn a_comment_holds_only_what_nft_can_read_back() {
        assert_eq!(Comment::new("x y").unwrap().to_string(), "comment \"x y\"");
        assert!(Comment::new("say \"x\"").is_err());
        assert!(Comment::new("two\nlines").is_err());
        assert!(Comment::new(&"c".repeat(129)).is_err());
    }
}
