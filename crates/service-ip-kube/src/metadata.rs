//! Required metadata of objects.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use thiserror::Error;

/// An object of the API lacks a required field.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("missing {field}")]
#[non_exhaustive]
pub struct MissingField {
    /// The field.
    pub field: &'static str,
}

pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, MissingField> {
    value.ok_or(MissingField { field })
}

/// Returns the creation time of an object.
pub(crate) fn time(created: Option<&Time>) -> Result<SystemTime, MissingField> {
    let created = required(created, "creationTimestamp")?;
    Ok(created.0.into())
}
