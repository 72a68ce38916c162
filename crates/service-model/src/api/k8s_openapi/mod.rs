//! Conversions between the objects of the model and those of the crate `k8s-openapi`.
//!
//! `read` converts from `k8s-openapi`, and `write` to it.

mod read;

mod write;

use std::fmt;

/// A field that cannot be converted.
///
/// Displays as `spec.ports[0].port: 70000 is not in the range 0-65535`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConversionError {
    /// Path of the field, such as `spec.ports[0].port`.
    pub path: String,
    /// Reason.
    pub reason: String,
}

impl ConversionError {
    fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

impl std::error::Error for ConversionError {}

/// A list that is optional in some versions of the Kubernetes API.
trait List<T> {
    /// Returns the items.
    fn items(&self) -> &[T];

    /// Creates a list.
    fn from_items(items: Vec<T>) -> Self;
}

impl<T> List<T> for Vec<T> {
    fn items(&self) -> &[T] {
        self
    }

    fn from_items(items: Self) -> Self {
        items
    }
}

impl<T> List<T> for Option<Vec<T>> {
    fn items(&self) -> &[T] {
        self.as_deref().unwrap_or_default()
    }

    fn from_items(items: Vec<T>) -> Self {
        Some(items)
    }
}
