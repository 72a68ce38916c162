//! Metadata of all kinds.

use serde_json::Value;
use vipline_service_model::Kind;

use super::Violations;
use super::text::{is_dns_label, is_dns_subdomain, is_label_value, is_qualified_name};
use crate::json::{labels, text};

/// Largest size of all annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Checks a new object.
pub(super) fn check(kind: Kind, object: &Value, found: &mut Violations) {
    let (namespace, name) = (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    let is_name = match kind {
        Kind::Namespace | Kind::Service => is_dns_label(name),
        Kind::EndpointSlice | Kind::Node | Kind::ServiceCidr => is_dns_subdomain(name),
    };
    found.require(is_name, "metadata.name", "must be a DNS name");
    let is_namespace = match kind {
        Kind::Service | Kind::EndpointSlice => is_dns_label(namespace),
        Kind::Namespace | Kind::Node | Kind::ServiceCidr => namespace.is_empty(),
    };
    found.require(is_namespace, "metadata.namespace", "must be a DNS label");
    check_update(object, found);
}

/// Checks an update.
pub(super) fn check_update(object: &Value, found: &mut Violations) {
    for (key, value) in labels(object, "/metadata/labels") {
        let path = "metadata.labels";
        found.require(is_qualified_name(key), path, "must have qualified keys");
        found.require(is_label_value(value), path, "must have label values");
    }
    let mut bytes = 0;
    for (key, value) in labels(object, "/metadata/annotations") {
        bytes += key.len() + value.len();
        let is_key = is_qualified_name(&key.to_lowercase());
        found.require(is_key, "metadata.annotations", "must have qualified keys");
    }
    let path = "metadata.annotations";
    found.require(bytes <= MAX_ANNOTATIONS, path, "must have at most 256 KiB");
}
