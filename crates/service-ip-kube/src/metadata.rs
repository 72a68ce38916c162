//! Required metadata of objects.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use thiserror::Error;

/// A required field is missing.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("missing {0}")]
pub(crate) struct Missing(pub(crate) &'static str);

pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Missing> {
    value.ok_or(Missing(field))
}

/// Returns the creation time of an object.
pub(crate) fn time(created: Option<&Time>) -> Result<SystemTime, Missing> {
    let created = required(created, "creationTimestamp")?;
    Ok(created.0.into())
}
