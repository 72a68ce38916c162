//! Keys of objects.

use serde_json::{Map, Value};

use crate::kind::Kind;

/// Namespace and name of an object. The namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    #[cfg(test)]
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the key of an object, or [`None`] if the object has no name.
    pub(crate) fn of(kind: Kind, object: &Map<String, Value>) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let name = metadata["name"].as_str().filter(|name| !name.is_empty())?;
        let namespace = if kind.namespaced() {
            metadata["namespace"].as_str().unwrap_or("default")
        } else {
            ""
        };
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}
