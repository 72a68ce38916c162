//! EndpointSlices.

use std::collections::HashSet;

use serde_json::Value;

use super::text::{
    address, canonical_address, is_dns_label, is_dns_subdomain, is_endpoint, is_fqdn,
    is_label_value, is_qualified_name, is_v4,
};
use super::{Strictness, Violations};
use crate::json::{at, labels, list, text, texts};

/// Largest number of ports of a slice.
const MAX_PORTS: usize = 20_000;

/// Largest number of endpoints of a slice.
const MAX_ENDPOINTS: usize = 1_000;

/// Largest number of addresses of an endpoint.
const MAX_ADDRESSES: usize = 100;

/// Largest number of zone hints, and of node hints, of an endpoint.
const MAX_HINTS: usize = 8;

/// Checks a new slice or, with `old`, an update.
pub(super) fn check(
    new: &Value,
    old: Option<&Value>,
    strictness: Strictness,
    found: &mut Violations,
) {
    let kind = text(new, "/addressType");
    let is_known = matches!(kind, "IPv4" | "IPv6" | "FQDN");
    found.require(is_known, "addressType", "must be IPv4, IPv6 or FQDN");
    if let Some(old) = old {
        let stays = text(old, "/addressType") == kind;
        found.require(stays, "addressType", "must not change");
    }
    ports(list(new, "/ports"), found);
    // Unchanged endpoints stay valid: an older server may have admitted them.
    if old.is_some_and(|old| list(old, "/endpoints") == list(new, "/endpoints")) {
        return;
    }
    let all = list(new, "/endpoints");
    found.require(
        all.len() <= MAX_ENDPOINTS,
        "endpoints",
        "must be 1,000 at most",
    );
    for each in all {
        endpoint(each, kind, strictness, found);
    }
}

/// Checks ports. A number may be any 32-bit integer, or absent.
fn ports(ports: &[Value], found: &mut Violations) {
    found.require(ports.len() <= MAX_PORTS, "ports", "must be 20,000 at most");
    let mut names = HashSet::new();
    for port in ports {
        let (name, protocol) = (text(port, "/name"), text(port, "/protocol"));
        let is_name = name.is_empty() || is_dns_label(name);
        found.require(is_name, "ports[].name", "must be empty or a DNS label");
        found.require(names.insert(name), "ports[].name", "must be unique");
        let is_protocol = matches!(protocol, "TCP" | "UDP" | "SCTP");
        found.require(is_protocol, "ports[].protocol", "must be TCP, UDP or SCTP");
        let application = at(port, "/appProtocol").as_str();
        let is_name = application.is_none_or(is_qualified_name);
        found.require(is_name, "ports[].appProtocol", "must be a qualified name");
    }
}

fn endpoint(endpoint: &Value, kind: &str, strictness: Strictness, found: &mut Violations) {
    let addresses = texts(endpoint, "/addresses");
    let path = "endpoints[].addresses";
    let count = (1..=MAX_ADDRESSES).contains(&addresses.len());
    found.require(count, path, "must be between 1 and 100");
    for each in addresses {
        let is_valid = match kind {
            "IPv4" => address(each, strictness).is_some_and(|it| is_v4(it) && is_endpoint(it)),
            "IPv6" => canonical_address(each).is_some_and(|it| !is_v4(it) && is_endpoint(it)),
            "FQDN" => is_fqdn(each),
            _ => true,
        };
        found.require(is_valid, path, "must be of the slice's type and reachable");
    }
    if let Some(name) = at(endpoint, "/nodeName").as_str() {
        let path = "endpoints[].nodeName";
        found.require(is_dns_subdomain(name), path, "must be a DNS name");
    }
    if let Some(name) = at(endpoint, "/hostname").as_str() {
        let path = "endpoints[].hostname";
        found.require(is_dns_label(name), path, "must be a DNS label");
    }
    for (key, value) in labels(endpoint, "/deprecatedTopology") {
        let path = "endpoints[].deprecatedTopology";
        let is_label = is_qualified_name(key) && is_label_value(value);
        found.require(is_label, path, "must be labels");
    }
    let zones = list(endpoint, "/hints/forZones");
    hints(zones, is_label_value, found);
    hints(list(endpoint, "/hints/forNodes"), is_dns_subdomain, found);
}

fn hints(hints: &[Value], is_name: fn(&str) -> bool, found: &mut Violations) {
    let path = "endpoints[].hints";
    found.require(hints.len() <= MAX_HINTS, path, "must be 8 at most");
    let names: HashSet<_> = hints.iter().map(|hint| text(hint, "/name")).collect();
    found.require(names.len() == hints.len(), path, "must be unique");
    let are_names = names.into_iter().all(is_name);
    found.require(are_names, path, "must be names");
}
