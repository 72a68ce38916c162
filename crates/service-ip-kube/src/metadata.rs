//! What every object says of itself.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use thiserror::Error;

/// Something that every object of its kind has, and this one has not.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("it has not {0}")]
pub(crate) struct Missing(pub(crate) &'static str);

pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Missing> {
    value.ok_or(Missing(field))
}

/// Returns when an object was made.
pub(crate) fn time(created: Option<&Time>) -> Result<SystemTime, Missing> {
    let created = required(created, "creationTimestamp")?;
    Ok(created.0.into())
}
