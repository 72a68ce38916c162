//! Table and chain names.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str;

/// Maximum length of a name: `XT_EXTENSION_MAXNAMELEN` of linux/netfilter/x_tables.h
/// is 29 bytes with the NUL byte.
pub(crate) const MAX_NAME: usize = 28;

/// A short string without heap allocation.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Short {
    len: u8,
    /// The text, padded with zeros.
    bytes: [u8; MAX_NAME],
}

impl Short {
    fn new(text: &str) -> Result<Self, InvalidName> {
        let is_invalid = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'');
        if text.is_empty() || text.len() > MAX_NAME || text.contains(is_invalid) {
            return Err(InvalidName(text.into()));
        }
        let mut bytes = [0; MAX_NAME];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let len = u8::try_from(text.len()).expect("28 fits");
        Ok(Self { len, bytes })
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len.into()]).expect("it was made of a text")
    }
}

impl Hash for Short {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// A table name, such as `filter`, `nat`, `mangle`, `raw` or `security`.
///
/// A name has 1 to 28 bytes without white space, control characters and quotes.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct TableName(Short);

/// A chain name.
///
/// A name has 1 to 28 bytes without white space, control characters and quotes, and
/// does not begin with `-` or `!`.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ChainName(Short);

impl TableName {
    /// Creates a name.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the length or a character is not allowed.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        Short::new(text).map(Self)
    }
}

impl ChainName {
    /// Creates a name.
    ///
    /// ```
    /// use vipline_iptables::ChainName;
    ///
    /// assert_eq!(ChainName::new("KUBE-SERVICES")?.as_str(), "KUBE-SERVICES");
    /// assert!(ChainName::new("longer than twenty-eight bytes").is_err());
    /// # Ok::<(), vipline_iptables::InvalidName>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if the length or a character is not allowed.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if text.starts_with(['-', '!']) {
            return Err(InvalidName(text.into()));
        }
        Short::new(text).map(Self)
    }
}

/// Implements the common traits of both name types.
macro_rules! name {
    ($($name:ident)*) => {$(
        impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.as_str().fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidName;

            fn try_from(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
    )*};
}

name!(TableName ChainName);

/// The error of an invalid name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid table or chain name {0:?}: expected 1 to 28 bytes without white space and quotes")]
pub struct InvalidName(Box<str>);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_have_1_to_28_bytes_without_white_space_and_quotes() {
        assert!(ChainName::new("KUBE-SVC-67NZLRHBNDSAWJRO").is_ok());
        assert!(ChainName::new(&"c".repeat(28)).is_ok());
        assert!(TableName::new("nat").is_ok());
        for text in ["", &"c".repeat(29), "a b", "a\"b", "a\nb", "-a", "!a"] {
            assert!(ChainName::new(text).is_err(), "{text:?}");
        }
        assert_eq!(
            ChainName::new("a b").unwrap_err().to_string(),
            r#"invalid table or chain name "a b": expected 1 to 28 bytes without white space and quotes"#
        );
    }

    #[test]
    fn names_sort_and_hash_like_their_text() {
        let name = |text| ChainName::new(text).unwrap();
        let mut names = [name("b"), name("ab"), name("a")];
        names.sort();
        assert_eq!(names, [name("a"), name("ab"), name("b")]);
        let map = HashMap::from([(name("a"), 1)]);
        assert_eq!(map.get("a"), Some(&1));
    }
}
