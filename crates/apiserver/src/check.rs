//! What a server refuses to store.

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::status::Refusal;
use crate::store::Key;

/// How long the note of an Event may be, in bytes.
const NOTE_LIMIT: usize = 1024;
/// How long its names and reasons may be.
const TEXT_LIMIT: usize = 128;

type Object = Map<String, Value>;
type Checked = Result<(), Refusal>;

/// Refuses the Events, IPAddresses and ServiceCIDRs that a server refuses.
pub(crate) fn check(kind: Kind, key: &Key, object: &Object, old: Option<&Object>) -> Checked {
    match (kind.api_version(), kind.name()) {
        ("events.k8s.io/v1", _) => event(kind, key, object),
        (_, "IPAddress") => address(kind, key, object, old),
        (_, "ServiceCIDR") => service_cidr(kind, key, object, old),
        _ => Ok(()),
    }
}

/// An address is named as it is written, and refers to the same thing for ever.
fn address(kind: Kind, key: &Key, address: &Object, old: Option<&Object>) -> Checked {
    let invalid = |field: &str, why: &str| Err(Refusal::invalid(kind, &key.name, field, why));
    let canonical = key.name.parse::<IpAddr>().map(|ip| ip.to_string());
    if canonical.as_ref() != Ok(&key.name) {
        return invalid("metadata.name", "must be a valid IP address");
    }
    let parent = |object: &Object| Some(object.get("spec")?.get("parentRef")?.clone());
    let reference = parent(address).unwrap_or_default();
    for field in ["resource", "name"] {
        if reference[field].as_str().is_none_or(str::is_empty) {
            return invalid(&format!("spec.parentRef.{field}"), "Required value");
        }
    }
    if old.is_some_and(|old| parent(old) != Some(reference)) {
        return invalid("spec.parentRef", "field is immutable");
    }
    Ok(())
}

/// A ServiceCIDR has one network, or one of each family of which the second
/// may be added later.
fn service_cidr(kind: Kind, key: &Key, cidr: &Object, old: Option<&Object>) -> Checked {
    let invalid = |why: &str| Err(Refusal::invalid(kind, &key.name, "spec.cidrs", why));
    let networks = |object: &Object| object.get("spec")?["cidrs"].as_array().cloned();
    let new = networks(cidr).unwrap_or_default();
    if !(1..=2).contains(&new.len()) {
        return invalid("must have one or two");
    }
    let is_ipv6 = |network: &Value| network.as_str().is_some_and(|text| text.contains(':'));
    if new.len() == 2 && is_ipv6(&new[0]) == is_ipv6(&new[1]) {
        return invalid("may specify no more than one IP for each IP family");
    }
    if old.is_some_and(|old| !new.starts_with(&networks(old).unwrap_or_default())) {
        return invalid("field is immutable");
    }
    Ok(())
}

fn event(kind: Kind, key: &Key, event: &Object) -> Checked {
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
