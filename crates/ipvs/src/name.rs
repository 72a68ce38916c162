//! Names of schedulers and persistence engines that we do not know.

use std::fmt;

/// The greatest length: `IP_VS_SCHEDNAME_MAXLEN` of 16 bytes with the NUL byte.
const MAX: usize = 15;

/// The name of a scheduler or a persistence engine.
///
/// Holds 1 to 15 visible ASCII characters, which stand alone in text.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Invariant: visible ASCII, then NUL bytes to the end.
    bytes: [u8; MAX],
}

impl Name {
    /// Checks and keeps a name.
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
    fn a_name_has_room_in_the_kernel_and_stands_alone_in_text() {
        assert_eq!(
            Name::new("fifteen-letters").unwrap().as_str(),
            "fifteen-letters"
        );
        for bad in ["", "sixteen--letters", "two words", "nul\0", "\u{e9}"] {
            assert_eq!(Name::new(bad), None, "{bad}");
        }
    }
}
