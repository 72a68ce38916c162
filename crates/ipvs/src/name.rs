//! Names of schedulers and persistence engines.

use std::fmt;

/// Maximum length: `IP_VS_SCHEDNAME_MAXLEN` is 16 bytes with the NUL byte.
const MAX: usize = 15;

/// The name of a scheduler or a persistence engine.
///
/// A name has 1 to 15 printable ASCII characters without spaces.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Invariant: printable ASCII, then NUL bytes to the end.
    bytes: [u8; MAX],
}

impl Name {
    /// Creates a name, or returns `None` if the text is invalid.
    ///
    /// ```
    /// use vipline_ipvs::Name;
    ///
    /// assert_eq!(Name::new("rr").expect("a good name").as_str(), "rr");
    /// assert!(Name::new("round robin").is_none());
    /// ```
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut bytes = [0; MAX];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self { bytes })
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        let text = self.bytes.get(..end.unwrap_or(MAX)).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_15_printable_characters() {
        assert_eq!(
            Name::new("fifteen-letters").unwrap().as_str(),
            "fifteen-letters"
        );
        for bad in ["", "sixteen--letters", "two words", "nul\0", "\u{e9}"] {
            assert_eq!(Name::new(bad), None, "{bad}");
        }
    }
}
