//! Names of kernel objects.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

/// Defines a type for the names of one kind of kernel objects: chains, sets, interfaces.
///
/// The kernel bounds the length of every name and the tools that print it refuse some
/// characters, each kind in its own way. The types differ in that only: all have `new`, which
/// returns [`InvalidName`], `as_str`, [`FromStr`](std::str::FromStr), `TryFrom<&str>`,
/// `Borrow<str>`, and `Debug` and [`Display`](std::fmt::Display) with the text.
///
/// `refuses` returns whether a text of a good length is no name. The storage is [`Arc<str>`] if clones shall share the text, or [`Inline`] if the type shall
/// be [`Copy`].
///
/// ```
/// use vipline_inet::{Inline, InvalidName, kernel_name};
///
/// kernel_name! {
///     /// The name of a queueing discipline.
///     #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
///     pub struct QdiscName(Inline<15>);
///     kind: "name of a queueing discipline",
///     max: 15,
///     without: "white space",
///     refuses: has_space,
/// }
///
/// fn has_space(text: &str) -> bool {
///     text.contains(char::is_whitespace)
/// }
///
/// let name: QdiscName = "fq_codel".parse()?;
/// assert_eq!(name.as_str(), "fq_codel");
/// assert_eq!(
///     QdiscName::new("fq codel").unwrap_err().to_string(),
///     "invalid name of a queueing discipline \"fq codel\": \
///      expected 1 to 15 bytes without white space"
/// );
/// # Ok::<(), InvalidName>(())
/// ```
#[macro_export]
macro_rules! kernel_name {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($storage:ty); $($rules:tt)*) => {
        $crate::kernel_text! {
            $(#[$meta])*
            $vis struct $name($storage);
            $($rules)*
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Defines a type like [`kernel_name!`](crate::kernel_name), without `Display`: for texts that
/// are printed with more around them, such as comments.
#[macro_export]
macro_rules! kernel_text {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($storage:ty);
        kind: $kind:literal,
        max: $max:expr,
        without: $without:literal,
        refuses: $refuses:path $(,)?
    ) => {
        $(#[$meta])*
        $vis struct $name($storage);

        impl $name {
            /// Checks a text.
            ///
            /// # Errors
            ///
            #[doc = concat!("`InvalidName` if the text is empty, too long, or has ", $without, ".")]
            $vis fn new(text: &str) -> ::std::result::Result<Self, $crate::InvalidName> {
                let is_refused = text.is_empty() || text.len() > $max || $refuses(text);
                let storage = (!is_refused).then(|| $crate::NameStorage::store(text));
                let invalid = || $crate::InvalidName::new($kind, text, $max, $without);
                storage.flatten().map(Self).ok_or_else(invalid)
            }

            /// Returns the text.
            $vis fn as_str(&self) -> &str {
                $crate::NameStorage::text(&self.0)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl ::std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::InvalidName;

            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::InvalidName> {
                Self::new(text)
            }
        }

        impl ::std::convert::TryFrom<&str> for $name {
            type Error = $crate::InvalidName;

            fn try_from(text: &str) -> ::std::result::Result<Self, $crate::InvalidName> {
                Self::new(text)
            }
        }
    };
}

/// The error of a text that is not a name of a kernel object, not a comment, or not the name
/// of an IP protocol.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text cannot be a name of its kind.
    #[error("invalid {kind} {text:?}: expected 1 to {max} bytes without {without}")]
    Text {
        /// What the text should be, such as `chain name`.
        kind: &'static str,
        /// The text.
        text: Box<str>,
        /// Maximum length in bytes.
        max: usize,
        /// What the text must not have, such as `white space`.
        without: &'static str,
    },
    /// The text is neither the name of an IP protocol nor its number.
    #[error(
        "unknown IP protocol {text:?}: expected a name of /etc/protocols or a number up to 255"
    )]
    Protocol {
        /// The text.
        text: Box<str>,
    },
}

impl InvalidName {
    /// Creates the error for a text.
    pub fn new(kind: &'static str, text: &str, max: usize, without: &'static str) -> Self {
        Self::Text {
            kind,
            text: text.into(),
            max,
            without,
        }
    }

    /// Returns the text that is not a name.
    pub fn text(&self) -> &str {
        match self {
            Self::Text { text, .. } | Self::Protocol { text } => text,
        }
    }
}

/// How a [kernel name](crate::kernel_name) keeps its text.
pub trait NameStorage: Sized {
    /// Keeps a text. `None` if it is too long.
    fn store(text: &str) -> Option<Self>;

    /// Returns the text.
    fn text(&self) -> &str;
}

/// Clones share the text.
impl NameStorage for Arc<str> {
    fn store(text: &str) -> Option<Self> {
        Some(text.into())
    }

    fn text(&self) -> &str {
        self
    }
}

/// A text of at most `MAX` bytes, without heap allocation. `MAX` is at most 255.
///
/// Sorts and hashes like the text.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Inline<const MAX: usize> {
    len: u8,
    /// The text, padded with zeros.
    bytes: [u8; MAX],
}

impl<const MAX: usize> Inline<MAX> {
    /// Stores a text of the program, for constants of names. Does not check what the text
    /// consists of.
    ///
    /// ```
    /// use vipline_inet::{Inline, NameStorage};
    ///
    /// const NAT: Inline<28> = Inline::constant("nat");
    /// assert_eq!(NAT.text(), "nat");
    /// ```
    ///
    /// # Panics
    ///
    /// If the text is longer than `MAX` or 255 bytes: a constant does not compile.
    pub const fn constant(text: &'static str) -> Self {
        let text = text.as_bytes();
        assert!(
            text.len() <= MAX && text.len() <= 255,
            "the text is too long"
        );
        let mut bytes = [0; MAX];
        let mut at = 0;
        while at < text.len() {
            bytes[at] = text[at];
            at += 1;
        }
        let [len, ..] = text.len().to_le_bytes();
        Self { len, bytes }
    }
}

impl<const MAX: usize> NameStorage for Inline<MAX> {
    fn store(text: &str) -> Option<Self> {
        let mut bytes = [0; MAX];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        let len = u8::try_from(text.len()).ok()?;
        Some(Self { len, bytes })
    }

    fn text(&self) -> &str {
        let text = self.bytes.get(..self.len.into()).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl<const MAX: usize> Hash for Inline<MAX> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl<const MAX: usize> Ord for Inline<MAX> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(other.text())
    }
}

impl<const MAX: usize> PartialOrd for Inline<MAX> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    kernel_name! {
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        struct Short(Inline<4>);
        kind: "short name",
        max: 4,
        without: "spaces",
        refuses: has_space,
    }

    kernel_name! {
        #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
        struct Shared(Arc<str>);
        kind: "shared name",
        max: 4,
        without: "spaces",
        refuses: has_space,
    }

    fn has_space(text: &str) -> bool {
        text.contains(' ')
    }

    #[test]
    fn names_have_1_to_max_bytes_without_refused_characters() {
        for text in ["a", "four", "\u{e4}\u{e4}"] {
            assert_eq!(Short::new(text).unwrap().as_str(), text);
            assert_eq!(text.parse::<Shared>().unwrap().to_string(), text);
        }
        for text in ["", "fiver", "a b", "\u{e4}\u{e4}\u{e4}"] {
            let error = Short::try_from(text).unwrap_err();
            assert_eq!(error.text(), text);
            assert!(matches!(
                Shared::new(text),
                Err(InvalidName::Text { max: 4, .. })
            ));
        }
        assert_eq!(
            Short::new("a b").unwrap_err().to_string(),
            "invalid short name \"a b\": expected 1 to 4 bytes without spaces"
        );
    }

    #[test]
    fn a_text_longer_than_the_storage_is_refused() {
        assert!(Inline::<4>::store("fiver").is_none());
        assert!(Inline::<300>::store(&"a".repeat(256)).is_none());
        assert_eq!(Inline::<4>::store("four").unwrap().text(), "four");
    }

    #[test]
    fn names_sort_hash_and_print_like_their_text() {
        let mut names = ["b", "ab", "a"].map(|text| Short::new(text).unwrap());
        names.sort();
        assert_eq!(names.map(|name| name.to_string()), ["a", "ab", "b"]);
        assert_eq!(format!("{:<3}|{:?}", names[0], names[0]), "a  |\"a\"");
        let map = HashMap::from([(names[0], 1)]);
        assert_eq!((map.get("a"), map.get("b")), (Some(&1), None));
    }
}
