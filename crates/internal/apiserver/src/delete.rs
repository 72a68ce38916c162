//! Deletion of one object.

use std::time::SystemTime;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::key::Key;
use crate::kind::Kind;
use crate::metadata::timestamp;
use crate::state::State;
use crate::status::{StatusError, json as json_answer};
use crate::write::{Outcome, has_finalizers, whole};

pub(crate) fn delete(state: &State, kind: Kind, key: &Key, body: &[u8]) -> Outcome {
    let options = match body {
        [] => Value::Null,
        body => serde_json::from_slice(body)
            .map_err(|error| StatusError::bad_request(error.to_string()))?,
    };
    state.change(|store| {
        let old = store.get(kind, key);
        let mut object = old
            .ok_or_else(|| StatusError::not_found(kind, &key.name))?
            .value();
        check(kind, key, &object, &options["preconditions"])?;
        if has_finalizers(&object) {
            let metadata = &mut object["metadata"];
            if metadata["deletionTimestamp"].is_null() {
                metadata["deletionTimestamp"] = timestamp(SystemTime::now()).into();
            }
            let stored = store.put(kind, key.clone(), object, SystemTime::now());
            return Ok(whole(StatusCode::OK, &stored));
        }
        store.remove(kind, key);
        let uid = &object["metadata"]["uid"];
        let status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": { "name": key.name, "group": kind.group(), "kind": kind.plural(), "uid": uid },
        });
        Ok(json_answer(StatusCode::OK, status.to_string().into_bytes()))
    })
}

/// Checks the preconditions of a deletion.
fn check(
    kind: Kind,
    key: &Key,
    object: &Map<String, Value>,
    wanted: &Value,
) -> Result<(), StatusError> {
    for field in ["uid", "resourceVersion"] {
        let (wanted, found) = (&wanted[field], &object["metadata"][field]);
        if !wanted.is_null() && wanted != found {
            let why =
                format!("is not deleted: precondition failed: {field} is {found}, not {wanted}");
            return Err(StatusError::conflict(kind, &key.name, "Conflict", &why));
        }
    }
    Ok(())
}
