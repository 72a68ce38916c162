//! Validation of written objects.

use serde_json::{Map, Value};
use testworld::validation::text::canonical_address;
use testworld::{Proposal, violations};
use vipline_service_model::Kind as Validated;

use crate::key::Key;
use crate::kind::{Kind, Part};
use crate::status::StatusError;

/// Longest note of an Event, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Longest name or reason of an Event, in bytes.
const TEXT_LIMIT: usize = 128;

type Object = Map<String, Value>;
type Checked = Result<(), StatusError>;

/// Validates an object as kube-apiserver does.
pub(crate) fn check(
    kind: Kind,
    key: &Key,
    part: Part,
    object: &Object,
    old: Option<&Object>,
) -> Checked {
    let validated = match (kind.api_version(), kind.name()) {
        ("events.k8s.io/v1", _) => return event(kind, key, object),
        (_, "IPAddress") => return address(kind, key, object, old),
        (_, "EndpointSlice") => Validated::EndpointSlice,
        (_, "Node") => Validated::Node,
        (_, "Service") => Validated::Service,
        (_, "ServiceCIDR") => Validated::ServiceCidr,
        _ => return Ok(()),
    };
    let new = Value::Object(object.clone());
    let old = old.map(|old| Value::Object(old.clone()));
    let proposal = match (part, &old) {
        (_, None) => Proposal::Create(validated, new),
        (Part::Rest, Some(_)) => Proposal::Update(validated, new),
        (Part::Status, Some(_)) => Proposal::UpdateStatus(validated, new),
    };
    match violations(proposal, old.as_ref()).first() {
        None => Ok(()),
        Some(violation) => {
            let (field, why) = violation.split_once(": ").unwrap_or(("", violation));
            Err(StatusError::invalid(kind, &key.name, field, why))
        }
    }
}

/// Validates an IPAddress: canonical name, complete and immutable `parentRef`.
fn address(kind: Kind, key: &Key, address: &Object, old: Option<&Object>) -> Checked {
    let invalid = |field: &str, why: &str| Err(StatusError::invalid(kind, &key.name, field, why));
    if canonical_address(&key.name).is_none() {
        return invalid("metadata.name", "must be a valid IP address");
    }
    let parent = |object: &Object| Some(object.get("spec")?.get("parentRef")?.clone());
    let reference = parent(address).unwrap_or_default();
    for field in ["resource", "name"] {
        if reference[field].as_str().is_none_or(str::is_empty) {
            return invalid(&format!("spec.parentRef.{field}"), "Required value");
        }
    }
    for field in ["resource", "name", "namespace"] {
        let text = reference[field].as_str().unwrap_or_default();
        if matches!(text, "." | "..") || text.contains(['/', '%']) {
            let field = format!("spec.parentRef.{field}");
            return invalid(&field, "may not be '.' or '..', or contain '/' or '%'");
        }
    }
    if old.is_some_and(|old| parent(old) != Some(reference)) {
        return invalid("spec.parentRef", "field is immutable");
    }
    Ok(())
}

fn event(kind: Kind, key: &Key, event: &Object) -> Checked {
    let invalid = |field: &str, why: &str| Err(StatusError::invalid(kind, &key.name, field, why));
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
        return invalid("type", "must be Normal or Warning");
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
