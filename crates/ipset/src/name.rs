//! Set names and entry comments.

use std::fmt;
use std::sync::Arc;

use vipline_inet::{kernel_name, kernel_text};

use crate::uapi::*;

/// Maximum length of a name: the kernel's size without the NUL byte.
const MAX_NAME: usize = IPSET_MAXNAMELEN - 1;

kernel_name! {
    /// A set name.
    ///
    /// A name has 1 to 31 bytes without white space, double quotes and NUL bytes. Clones
    /// share the text.
    ///
    /// ```
    /// use vipline_ipset::Name;
    ///
    /// assert_eq!(Name::new("KUBE-CLUSTER-IP")?.as_str(), "KUBE-CLUSTER-IP");
    /// assert!(Name::new("two words").is_err());
    /// # Ok::<(), vipline_ipset::InvalidName>(())
    /// ```
    #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Name(Arc<str>);
    kind: "name of a set",
    max: MAX_NAME,
    without: "white space, double quotes and NUL bytes",
    refuses: is_unreadable,
}

fn is_unreadable(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() || matches!(c, '\0' | '"'))
}

impl Name {
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

kernel_text! {
    /// An entry comment.
    ///
    /// A comment has 1 to 255 bytes (`IPSET_MAX_COMMENT_SIZE`) without NUL bytes, newlines and
    /// double quotes. `ipset` has no syntax to escape newlines and double quotes.
    #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Comment(Arc<str>);
    kind: "comment",
    max: IPSET_MAX_COMMENT_SIZE,
    without: "NUL bytes, newlines and double quotes",
    refuses: is_unprintable,
}

fn is_unprintable(text: &str) -> bool {
    text.contains(['\0', '\n', '"'])
}

impl Comment {
    /// Creates a comment from a kernel message, without checks.
    pub(crate) fn from_kernel(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "comment \"{}\"", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_31_bytes_that_ipset_can_parse() {
        assert!(Name::new(&"a".repeat(31)).is_ok());
        assert!(Name::new(&"a".repeat(32)).is_err());
        assert!(Name::new("a b").is_err());
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
