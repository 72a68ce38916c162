//! Versions of HNS and of the schema of its documents.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of HNS, or of the schema of a document.
///
/// Versions are ordered. This struct is exhaustive, because a version has two numbers.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(default, rename_all = "PascalCase")]
pub struct Version {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Version {
    /// Version 2.0 of the schema, which this crate reads and writes.
    pub const SCHEMA: Self = Self::new(2, 0);

    /// Creates a version.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
