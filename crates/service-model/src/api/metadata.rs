//! Object metadata (`metav1.ObjectMeta`).

use std::collections::BTreeMap;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::MetadataKey;
use crate::ObjectName;

/// Metadata of an object.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize, Serialize),
    serde(rename_all = "camelCase")
)]
pub struct ObjectMeta {
    /// Name, unique for the kind within the namespace.
    pub name: String,
    /// Namespace, empty for cluster-scoped objects.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub namespace: String,
    /// Labels.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "super::nullable")
    )]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub annotations: BTreeMap<String, String>,
    /// Creation time, in RFC 3339.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub creation_timestamp: Option<String>,
    /// Time of the deletion request, in RFC 3339.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub deletion_timestamp: Option<String>,
}

impl ObjectMeta {
    /// Returns metadata with namespace and name.
    pub fn named(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            ..Self::default()
        }
    }

    /// Returns namespace and name.
    pub fn object_name(&self) -> ObjectName {
        ObjectName::new(&*self.namespace, &*self.name)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: MetadataKey) -> Option<&str> {
        self.labels.get(key.as_str()).map(String::as_str)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: MetadataKey) -> Option<&str> {
        self.annotations.get(key.as_str()).map(String::as_str)
    }
}
