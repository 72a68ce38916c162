//! Names of interfaces.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The greatest length: `IFNAMSIZ` of 16 bytes with the NUL byte.
const MAX: usize = 15;

/// The name of an interface.
///
/// Holds 1 to 15 bytes; those that the kernel told need be no UTF-8.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Invariant: the bytes of the name, none of them NUL, then NUL bytes.
    bytes: [u8; MAX],
}

impl Name {
    /// Checks and keeps a name.
    ///
    /// ```
    /// use vipline_rtnl::Name;
    ///
    /// assert_eq!(Name::new("kube-ipvs0")?.to_string(), "kube-ipvs0");
    /// assert!(Name::new("two words").is_err());
    /// # Ok::<(), vipline_rtnl::InvalidName>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is empty or longer than 15 bytes, is `.` or `..`, or holds white
    /// space, `/`, `:` or a NUL byte: no interface of Linux can have that name.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let is_bad = text.bytes().any(is_refused) || matches!(text, "." | "..");
        let name = Self::told(text.as_bytes()).filter(|_| !is_bad);
        name.ok_or_else(|| InvalidName { text: text.into() })
    }

    /// Keeps a name that the kernel told, if it can be one.
    pub(crate) fn told(told: &[u8]) -> Option<Self> {
        let end = told.iter().position(|byte| *byte == 0);
        let told = told.get(..end.unwrap_or(told.len()))?;
        if told.is_empty() {
            return None;
        }
        let mut bytes = [0; MAX];
        bytes.get_mut(..told.len())?.copy_from_slice(told);
        Some(Self { bytes })
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        self.bytes.get(..end.unwrap_or(MAX)).unwrap_or_default()
    }

    /// Returns the text of the name, if it is UTF-8.
    ///
    /// It always is unless the kernel told it.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
}

/// Tells whether the kernel refuses names with this byte (`dev_valid_name`).
///
/// It takes 0xa0 for the space of Latin-1, which is no character of its own in
/// UTF-8.
fn is_refused(byte: u8) -> bool {
    matches!(byte, 0 | b'\t'..=b'\r' | b' ' | b'/' | b':' | 0xa0)
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

/// A text that no interface can be named by.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "{text:?} is no name of an interface: \
     it needs 1 to 15 bytes without white space, slashes and colons"
)]
pub struct InvalidName {
    /// The text.
    pub text: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_the_kernel_takes() {
        for good in [
            "a",
            "kube-ipvs0",
            "fifteen-letters",
            "eth0.7",
            "...",
            "\u{e4}",
        ] {
            assert_eq!(Name::new(good).unwrap().to_str(), Some(good));
        }
        for bad in [
            "",
            ".",
            "..",
            "sixteen--letters",
            "two words",
            "a/b",
            "a:0",
            "nul\0",
            "a\n",
            "a\u{b}",
            // Its second byte is 0xa0.
            "\u{e0}",
        ] {
            let error = Name::new(bad).unwrap_err();
            assert_eq!(&*error.text, bad);
        }
    }

    #[test]
    fn a_name_that_the_kernel_told_is_kept_whatever_is_in_it() {
        let name = Name::told(b"a\xff:\0\0").unwrap();
        assert_eq!(name.as_bytes(), b"a\xff:");
        assert_eq!(name.to_str(), None);
        assert_eq!(name.to_string(), "a\u{fffd}:");
        assert_eq!(format!("{name:?}"), "\"a\\xff:\"");
        assert_eq!(Name::told(b"\0eth0"), None);
        assert_eq!(Name::told(b"sixteen--letters"), None);
    }
}
