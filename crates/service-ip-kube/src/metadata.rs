//! Required metadata of objects.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::Error;

pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Error> {
    value.ok_or(Error::MissingField { field })
}

/// Returns the creation time of an object.
pub(crate) fn time(created: Option<&Time>) -> Result<SystemTime, Error> {
    let created = required(created, "creationTimestamp")?;
    Ok(created.0.into())
}
