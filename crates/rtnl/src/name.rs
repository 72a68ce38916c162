//! Names of interfaces.

use std::fmt;
use std::str::FromStr;

use vipline_inet::InvalidName;

use crate::uapi::*;

/// Maximum length: the kernel's size without the NUL byte.
const MAX: usize = IFNAMSIZ - 1;

/// Words of errors.
const KIND: &str = "interface name";
const WITHOUT: &str = "white space, slashes and colons";

/// The name of an interface: 1 to 15 bytes.
///
/// Names from the kernel are not necessarily UTF-8, so that the type has
/// [`as_bytes`](Self::as_bytes) and [`to_str`](Self::to_str) instead of `as_str`. Otherwise it
/// is like the [names](vipline_inet::kernel_name) of other kernel objects.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Invariant: the bytes of the name, which are not NUL, then NUL bytes.
    bytes: [u8; MAX],
}

impl Name {
    /// Validates a name.
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
    /// [`InvalidName`] if the text is empty, longer than 15 bytes, `.` or `..`, or contains
    /// white space, `/`, `:` or a NUL byte. Linux rejects such interface names.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let is_bad = text.bytes().any(is_refused) || matches!(text, "." | "..");
        let name = Self::from_kernel(text.as_bytes()).filter(|_| !is_bad);
        name.ok_or_else(|| InvalidName::new(KIND, text, MAX, WITHOUT))
    }

    /// Creates a name from the value of an attribute; `None` if the length is invalid.
    pub(crate) fn from_kernel(value: &[u8]) -> Option<Self> {
        let end = value.iter().position(|byte| *byte == 0);
        let value = value.get(..end.unwrap_or(value.len()))?;
        if value.is_empty() {
            return None;
        }
        let mut bytes = [0; MAX];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { bytes })
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        self.bytes.get(..end.unwrap_or(MAX)).unwrap_or_default()
    }

    /// Returns the name as a string, if it is UTF-8.
    ///
    /// Names of [`new`](Self::new) always are.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
}

/// Returns whether the kernel rejects names with this byte (`dev_valid_name`).
///
/// The kernel treats 0xa0 as the no-break space of Latin-1, also within UTF-8.
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

impl TryFrom<&str> for Name {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_valid_if_the_kernel_accepts_it() {
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
            // The second byte is 0xa0.
            "\u{e0}",
        ] {
            let error = Name::new(bad).unwrap_err();
            assert_eq!(error.text(), bad);
        }
    }

    #[test]
    fn a_name_from_the_kernel_may_contain_any_bytes() {
        let name = Name::from_kernel(b"a\xff:\0\0").unwrap();
        assert_eq!(name.as_bytes(), b"a\xff:");
        assert_eq!(name.to_str(), None);
        assert_eq!(name.to_string(), "a\u{fffd}:");
        assert_eq!(format!("{name:?}"), "\"a\\xff:\"");
        assert_eq!(Name::from_kernel(b"\0eth0"), None);
        assert_eq!(Name::from_kernel(b"sixteen--letters"), None);
    }
}
