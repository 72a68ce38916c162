//! Namespaces (`v1`).

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::ObjectMeta;

/// A Namespace.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct Namespace {
    /// The name.
    pub metadata: ObjectMeta,
}

impl Namespace {
    /// The API group and version of the kind.
    pub const API_VERSION: &'static str = "v1";
    /// The name of the kind.
    pub const KIND: &'static str = "Namespace";
}
