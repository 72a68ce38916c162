//! Identifiers of objects.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// The identifier of an object of HNS: a GUID as text, without braces.
///
/// Two identifiers are equal if they differ in case only: HNS does not preserve the case.
/// The empty identifier is the default. HNS assigns an identifier to a new object that
/// has the empty one.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Id(Box<str>);

impl Id {
    /// Creates an identifier from text, which is not checked.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Creates an identifier from the number of a GUID.
    pub fn from_u128(guid: u128) -> Self {
        let hex = format!("{guid:032X}");
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
        Self(parts.join("-").into())
    }

    /// Returns the identifier as text, as HNS wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the object has no identifier yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of the GUID, or `None` if the text is no GUID.
    ///
    /// The digits are read from left to right: `00112233-4455-6677-8899-AABBCCDDEEFF` is
    /// `0x00112233445566778899AABBCCDDEEFF`.
    pub fn to_u128(&self) -> Option<u128> {
        let lengths = self.0.split('-').map(str::len);
        let is_guid = lengths.eq([8, 4, 4, 4, 12]);
        let digits: String = self.0.chars().filter(|it| it.is_ascii_hexdigit()).collect();
        (is_guid && digits.len() == 32)
            .then(|| u128::from_str_radix(&digits, 16).ok())
            .flatten()
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let upper = self.0.bytes().map(|byte| byte.to_ascii_uppercase());
        upper.for_each(|byte| state.write_u8(byte));
        state.write_u8(0xff);
    }
}

impl Ord for Id {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let upper = |id: &'_ Self| id.0.to_ascii_uppercase();
        upper(self).cmp(&upper(other))
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_case_of_an_identifier_is_kept_and_does_not_count() {
        let lower = Id::new("0a1b2c3d-0000-4000-8000-0123456789ab");
        let upper = Id::new("0A1B2C3D-0000-4000-8000-0123456789AB");
        assert_eq!(lower, upper);
        assert_eq!(lower.cmp(&upper), std::cmp::Ordering::Equal);
        assert_eq!(HashSet::from([lower.clone(), upper]).len(), 1);
        assert_eq!(lower.to_string(), "0a1b2c3d-0000-4000-8000-0123456789ab");
        assert_ne!(lower, Id::default());
    }

    #[test]
    fn a_guid_is_a_number() {
        let guid = 0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF;
        let id = Id::from_u128(guid);
        assert_eq!(id.as_str(), "00112233-4455-6677-8899-AABBCCDDEEFF");
        assert_eq!(id.to_u128(), Some(guid));
        for text in ["", "EPID-1", "00112233-4455-6677-8899-AABBCCDDEEFG"] {
            assert_eq!(Id::new(text).to_u128(), None, "{text}");
        }
        assert_eq!(
            Id::new("001122334-455-6677-8899-AABBCCDDEEFF").to_u128(),
            None
        );
    }
}
