//! Reads, creates and changes single objects.

use std::time::SystemTime;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::check::check;
use crate::key::Key;
use crate::kind::{Kind, Part};
use crate::state::State;
use crate::status::{StatusError, json as json_answer};
use crate::store::{Object, Store};

/// Response to a request.
pub(crate) type Outcome = Result<Response, StatusError>;

pub(crate) fn get(state: &State, kind: Kind, key: &Key) -> Outcome {
    let store = state.store();
    let object = store.get(kind, key);
    let object = object.ok_or_else(|| StatusError::not_found(kind, &key.name))?;
    Ok(whole(StatusCode::OK, object))
}

pub(crate) fn create(state: &State, kind: Kind, namespace: Option<String>, body: &[u8]) -> Outcome {
    let mut object = parse(kind, body)?;
    state.change(|store| {
        name(&mut object, store);
        let key = placed(kind, &mut object, namespace.as_deref())?;
        if kind.name() == "Service" {
            object.remove("status");
        }
        check(kind, &key, Part::Rest, &object, None)?;
        if store.get(kind, &key).is_some() {
            let error = StatusError::conflict(kind, &key.name, "AlreadyExists", "already exists");
            return Err(error);
        }
        Ok(put(StatusCode::CREATED, store, kind, key, object))
    })
}

pub(crate) fn update(state: &State, kind: Kind, key: &Key, part: Part, body: &[u8]) -> Outcome {
    let object = parse(kind, body)?;
    if Key::of(kind, &object).as_ref() != Some(key) {
        let message = "the name of the object does not match the name on the URL";
        return Err(StatusError::bad_request(message));
    }
    state.change(|store| {
        let old = store.get(kind, key);
        let old = old.ok_or_else(|| StatusError::not_found(kind, &key.name))?;
        same_version(old, &object)?;
        let old = old.value();
        let object = written(kind, part, &old, object);
        check(kind, key, part, &object, Some(&old))?;
        Ok(put(StatusCode::OK, store, kind, key.clone(), object))
    })
}

pub(crate) fn patch(
    state: &State,
    kind: Kind,
    key: &Key,
    part: Part,
    content_type: &str,
    body: &[u8],
) -> Outcome {
    let applied = content_type.starts_with("application/apply-patch");
    let merged = [
        "application/merge-patch",
        "application/strategic-merge-patch",
    ];
    if !applied && !merged.iter().any(|kind| content_type.starts_with(kind)) {
        let message = format!("the body of the request was in an unknown format: {content_type}");
        return Err(StatusError::new(415, "UnsupportedMediaType", message));
    }
    let patch: Value = serde_json::from_slice(body)
        .map_err(|error| StatusError::bad_request(error.to_string()))?;
    state.change(|store| {
        let old = store.get(kind, key);
        let mut object = match old {
            Some(old) => Value::Object(old.value()),
            None if applied => json!({}),
            None => return Err(StatusError::not_found(kind, &key.name)),
        };
        let status = old.map_or(StatusCode::CREATED, |_| StatusCode::OK);
        merge(&mut object, &patch);
        let Value::Object(mut object) = object else {
            return Err(StatusError::bad_request(
                "a patch of an object is an object",
            ));
        };
        if let Some(old) = old {
            same_version(old, &object)?;
        }
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        metadata["name"] = key.name.as_str().into();
        let namespace = kind.namespaced().then_some(key.namespace.as_str());
        let key = placed(kind, &mut object, namespace)?;
        let old = old.map(|old| old.value());
        if let Some(old) = &old {
            object = written(kind, part, old, object);
        }
        check(kind, &key, part, &object, old.as_ref())?;
        Ok(put(status, store, kind, key, object))
    })
}

/// Returns the object after a part is written.
fn written(
    kind: Kind,
    part: Part,
    old: &Map<String, Value>,
    new: Map<String, Value>,
) -> Map<String, Value> {
    if !kind.has_status() {
        return new;
    }
    let (mut object, from) = match part {
        Part::Status => (old.clone(), &new),
        Part::Rest => (new.clone(), old),
    };
    match from.get("status") {
        Some(status) => object.insert("status".into(), status.clone()),
        None => object.remove("status"),
    };
    object
}

/// Stores an object, or removes a terminating object without finalizers.
fn put(
    status: StatusCode,
    store: &mut Store,
    kind: Kind,
    key: Key,
    mut object: Map<String, Value>,
) -> Response {
    let old = store.get(kind, &key).map(|old| old.value());
    let deleted = old.and_then(|old| old["metadata"].get("deletionTimestamp").cloned());
    // Only the server sets `deletionTimestamp`, and does not unset it.
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    match &deleted {
        Some(time) => metadata["deletionTimestamp"] = time.clone(),
        None => drop(
            metadata
                .as_object_mut()
                .and_then(|metadata| metadata.remove("deletionTimestamp")),
        ),
    }
    let is_done = deleted.is_some() && !has_finalizers(&object);
    let stored = store.put(kind, key.clone(), object, SystemTime::now());
    let last = is_done.then(|| store.remove(kind, &key)).flatten();
    whole(status, &last.unwrap_or(stored))
}

/// Returns whether an object has finalizers.
pub(crate) fn has_finalizers(object: &Map<String, Value>) -> bool {
    let metadata = object.get("metadata");
    let finalizers = metadata.and_then(|metadata| metadata["finalizers"].as_array());
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

pub(crate) fn whole(status: StatusCode, object: &Object) -> Response {
    let mut text = Vec::new();
    object.push_whole(&mut text);
    json_answer(status, text)
}

/// Parses an object and checks that its kind matches the path.
fn parse(kind: Kind, body: &[u8]) -> Result<Map<String, Value>, StatusError> {
    let object: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| StatusError::bad_request(error.to_string()))?;
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.name())] {
        let actual = object.get(field).and_then(Value::as_str);
        if actual.is_some_and(|actual| actual != expected) {
            let message = format!("the {field} of the object is not {expected}");
            return Err(StatusError::bad_request(message));
        }
    }
    Ok(object)
}

/// Generates a name from `generateName`.
fn name(object: &mut Map<String, Value>, store: &Store) {
    let Some(metadata) = object.get_mut("metadata") else {
        return;
    };
    if metadata["name"].as_str().is_none_or(str::is_empty)
        && let Some(begin) = metadata["generateName"].as_str()
    {
        metadata["name"] = format!("{begin}{:05x}", store.version()).into();
    }
}

/// Sets the namespace of an object to the namespace of the path.
fn placed(
    kind: Kind,
    object: &mut Map<String, Value>,
    namespace: Option<&str>,
) -> Result<Key, StatusError> {
    if kind.namespaced() {
        let namespace = namespace.ok_or_else(StatusError::not_allowed)?;
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        let own = metadata["namespace"].as_str().unwrap_or_default();
        if !own.is_empty() && own != namespace {
            let message = "the namespace of the object does not match the namespace on the request";
            return Err(StatusError::bad_request(message));
        }
        metadata["namespace"] = namespace.into();
    }
    Key::of(kind, object).ok_or_else(|| {
        StatusError::invalid(
            kind,
            "",
            "metadata.name",
            "name or generateName is required",
        )
    })
}

/// Returns a conflict if `resourceVersion` is outdated.
fn same_version(old: &Object, object: &Map<String, Value>) -> Result<(), StatusError> {
    let version = object
        .get("metadata")
        .map(|metadata| &metadata["resourceVersion"]);
    let version = version.and_then(Value::as_str).unwrap_or_default();
    if version.is_empty() || version == old.version.to_string() {
        return Ok(());
    }
    let why = "was changed meanwhile: the object has been modified; apply your changes to the latest version";
    Err(StatusError::conflict(
        old.kind,
        &old.key.name,
        "Conflict",
        why,
    ))
}

/// Applies a JSON merge patch: null removes, objects are merged, other values replace.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}
