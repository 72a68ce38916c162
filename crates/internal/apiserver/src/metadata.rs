//! Object metadata that the server sets.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::key::Key;

const SECONDS_OF_DAY: u64 = 86_400;

type Object = Map<String, Value>;

/// Completes the metadata of an object that replaces `old`.
///
/// Keeps `resourceVersion` and `managedFields` of `old`, so that an unchanged object
/// is equal to `old`.
pub(crate) fn complete(
    object: &mut Object,
    key: &Key,
    old: Option<&Object>,
    number: u64,
    now: SystemTime,
) {
    let generation = generation(object, old);
    let metadata = metadata(object);
    metadata.insert("name".into(), key.name.clone().into());
    if !key.namespace.is_empty() {
        metadata.insert("namespace".into(), key.namespace.clone().into());
    }
    metadata.insert("generation".into(), generation.into());
    let kept = [
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "managedFields",
    ];
    if let Some(old) = old.and_then(|old| old["metadata"].as_object()) {
        for field in kept {
            metadata.insert(field.into(), old[field].clone());
        }
    } else {
        metadata.insert("uid".into(), uid(number).into());
        metadata.insert("creationTimestamp".into(), timestamp(now).into());
    }
}

/// Sets `resourceVersion`.
pub(crate) fn set_version(object: &mut Object, version: u64) {
    metadata(object).insert("resourceVersion".into(), version.to_string().into());
}

/// Sets `managedFields`, so that objects have a realistic size.
pub(crate) fn set_managers(object: &mut Object, now: SystemTime) {
    let api_version = object["apiVersion"].clone();
    let mut fields = Object::new();
    for (name, value) in object.iter().filter(|(name, _)| *name != "metadata") {
        if value.is_object() || value.is_array() {
            fields.insert(format!("f:{name}"), owned(value));
        }
    }
    let metadata = metadata(object);
    let labels: Object = ["labels", "annotations"]
        .into_iter()
        .filter_map(|name| Some((format!("f:{name}"), owned(metadata.get(name)?))))
        .collect();
    fields.insert("f:metadata".into(), labels.into());
    let managers = json!([{
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": api_version,
        "time": timestamp(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }]);
    metadata.insert("managedFields".into(), managers);
}

/// Formats a time as in objects (RFC 3339).
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs();
    let (year, month, day) = date(since / SECONDS_OF_DAY);
    let second = since % SECONDS_OF_DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn metadata(object: &mut Object) -> &mut Object {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("metadata is an object")
}

/// Returns `generation`, which changes outside metadata and status increase.
fn generation(object: &Object, old: Option<&Object>) -> u64 {
    let Some(old) = old else { return 1 };
    let last = old["metadata"]["generation"].as_u64().unwrap_or(1);
    let content = |object: &Object| {
        let mut object = object.clone();
        object.remove("metadata");
        object.remove("status");
        object
    };
    last + u64::from(content(object) != content(old))
}

/// Returns the field tree of a value in the format of `managedFields`. A list is one field.
fn owned(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten();
    let tree: Object = fields
        .map(|(name, value)| (format!("f:{name}"), owned(value)))
        .collect();
    tree.into()
}

/// Returns a UID in UUID format.
fn uid(number: u64) -> String {
    format!("5a1d0f3e-7b2c-4e6d-9f80-{number:012x}")
}

/// Returns year, month and day of a number of days since 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Years start in March, so that the leap day is the last day of a year. An era
    // has 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let january = u64::from(month >= 10);
    (era * 400 + year + january, (month + 2) % 12 + 1, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_format_of_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(timestamp(time), text);
        }
    }
}
