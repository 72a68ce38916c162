//! One object: read, created, changed, deleted.

use std::time::SystemTime;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::state::State;
use crate::status::{Refusal, json as json_answer};
use crate::store::{Key, Object, Store};

/// How long the note of an Event may be, in bytes.
const NOTE_LIMIT: usize = 1024;
/// How long its names and reasons may be.
const TEXT_LIMIT: usize = 128;

type Answer = Result<Response, Refusal>;

pub(crate) fn get(state: &State, kind: Kind, key: &Key) -> Answer {
    let store = state.store();
    let object = store.get(kind, key);
    let object = object.ok_or_else(|| Refusal::not_found(kind, &key.name))?;
    Ok(whole(StatusCode::OK, object))
}

pub(crate) fn create(state: &State, kind: Kind, namespace: Option<String>, body: &[u8]) -> Answer {
    let mut object = parse(kind, body)?;
    state.change(|store| {
        name(&mut object, store);
        let key = placed(kind, &mut object, namespace.as_deref())?;
        check(kind, &key, &object)?;
        if store.get(kind, &key).is_some() {
            let refusal = Refusal::conflict(kind, &key.name, "AlreadyExists", "already exists");
            return Err(refusal);
        }
        Ok(put(StatusCode::CREATED, store, kind, key, object))
    })
}

pub(crate) fn update(state: &State, kind: Kind, key: &Key, body: &[u8]) -> Answer {
    let object = parse(kind, body)?;
    if Key::of(kind, &object).as_ref() != Some(key) {
        let message = "the name of the object does not match the name on the URL";
        return Err(Refusal::bad_request(message));
    }
    state.change(|store| {
        let old = store.get(kind, key);
        let old = old.ok_or_else(|| Refusal::not_found(kind, &key.name))?;
        same_version(old, &object)?;
        check(kind, key, &object)?;
        Ok(put(StatusCode::OK, store, kind, key.clone(), object))
    })
}

pub(crate) fn patch(
    state: &State,
    kind: Kind,
    key: &Key,
    content_type: &str,
    body: &[u8],
) -> Answer {
    let applied = content_type.starts_with("application/apply-patch");
    let merged = [
        "application/merge-patch",
        "application/strategic-merge-patch",
    ];
    if !applied && !merged.iter().any(|kind| content_type.starts_with(kind)) {
        let message = format!("the body of the request was in an unknown format: {content_type}");
        return Err(Refusal::new(415, "UnsupportedMediaType", message));
    }
    let patch: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    state.change(|store| {
        let old = store.get(kind, key);
        let mut object = match old {
            Some(old) => Value::Object(old.value()),
            None if applied => json!({}),
            None => return Err(Refusal::not_found(kind, &key.name)),
        };
        let status = old.map_or(StatusCode::CREATED, |_| StatusCode::OK);
        merge(&mut object, &patch);
        let Value::Object(mut object) = object else {
            return Err(Refusal::bad_request("a patch of an object is an object"));
        };
        if let Some(old) = old {
            same_version(old, &object)?;
        }
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        metadata["name"] = key.name.as_str().into();
        let namespace = kind.namespaced().then_some(key.namespace.as_str());
        let key = placed(kind, &mut object, namespace)?;
        check(kind, &key, &object)?;
        Ok(put(status, store, kind, key, object))
    })
}

pub(crate) fn delete(state: &State, kind: Kind, key: &Key) -> Answer {
    let removed = state.change(|store| store.remove(kind, key));
    let removed = removed.ok_or_else(|| Refusal::not_found(kind, &key.name))?;
    let uid = removed.value()["metadata"]["uid"].clone();
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": { "name": key.name, "group": kind.group(), "kind": kind.plural(), "uid": uid },
    });
    Ok(json_answer(StatusCode::OK, status.to_string().into_bytes()))
}

fn put(
    status: StatusCode,
    store: &mut Store,
    kind: Kind,
    key: Key,
    object: Map<String, Value>,
) -> Response {
    whole(status, &store.put(kind, key, object, SystemTime::now()))
}

fn whole(status: StatusCode, object: &Object) -> Response {
    let mut text = Vec::new();
    object.push_whole(&mut text);
    json_answer(status, text)
}

/// Reads an object that is of the kind that the path says.
fn parse(kind: Kind, body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let object: Map<String, Value> =
        serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.name())] {
        let actual = object.get(field).and_then(Value::as_str);
        if actual.is_some_and(|actual| actual != expected) {
            let message = format!("the {field} of the object is not {expected}");
            return Err(Refusal::bad_request(message));
        }
    }
    Ok(object)
}

/// Makes up a name if only its beginning is given.
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

/// Puts an object into the namespace of the path.
fn placed(
    kind: Kind,
    object: &mut Map<String, Value>,
    namespace: Option<&str>,
) -> Result<Key, Refusal> {
    if kind.namespaced() {
        let namespace = namespace.ok_or_else(Refusal::not_allowed)?;
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        let own = metadata["namespace"].as_str().unwrap_or_default();
        if !own.is_empty() && own != namespace {
            let message = "the namespace of the object does not match the namespace on the request";
            return Err(Refusal::bad_request(message));
        }
        metadata["namespace"] = namespace.into();
    }
    Key::of(kind, object).ok_or_else(|| {
        Refusal::invalid(
            kind,
            "",
            "metadata.name",
            "name or generateName is required",
        )
    })
}

/// Refuses a change of something that changed meanwhile.
fn same_version(old: &Object, object: &Map<String, Value>) -> Result<(), Refusal> {
    let version = object
        .get("metadata")
        .map(|metadata| &metadata["resourceVersion"]);
    let version = version.and_then(Value::as_str).unwrap_or_default();
    if version.is_empty() || version == old.version.to_string() {
        return Ok(());
    }
    let why = "was changed meanwhile: the object has been modified; apply your changes to the latest version";
    Err(Refusal::conflict(old.kind, &old.key.name, "Conflict", why))
}

/// Applies a merge patch: null removes, objects are merged, all else replaces.
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

/// Refuses the Events that a server refuses.
fn check(kind: Kind, key: &Key, event: &Map<String, Value>) -> Result<(), Refusal> {
    if kind.api_version() != "events.k8s.io/v1" {
        return Ok(());
    }
    let invalid = |field: &str, why: &str| Err(Refusal::invalid(kind, &key.name, field, why));
    let text = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default();
    for field in [
        "eventTime",
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        if text(field).is_empty() {
            return invalid(field, "Required value");
        }
        if text(field).len() > TEXT_LIMIT {
            return invalid(field, "can have at most 128 characters");
        }
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        return invalid("type", "has to be Normal or Warning");
    }
    if text("note").len() > NOTE_LIMIT {
        return invalid("note", "can have at most 1024 characters");
    }
    let regarding = event
        .get("regarding")
        .map(|regarding| &regarding["namespace"]);
    let namespace = regarding.and_then(Value::as_str).unwrap_or_default();
    let agrees = match namespace {
        "" => matches!(key.namespace.as_str(), "default" | "kube-system"),
        namespace => namespace == key.namespace,
    };
    if !agrees {
        return invalid("regarding.namespace", "does not match event.namespace");
    }
    if let Some(series) = event.get("series").filter(|series| !series.is_null()) {
        if series["count"].as_u64().is_none_or(|count| count < 2) {
            return invalid("series.count", "should be at least 2");
        }
        if !series["lastObservedTime"].is_string() {
            return invalid("series.lastObservedTime", "Required value");
        }
    }
    Ok(())
}
