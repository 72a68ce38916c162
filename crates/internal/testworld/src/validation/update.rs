//! Updates of Services.

use std::collections::HashSet;

use serde_json::Value;

use super::Violations;
use super::service::{has_health_check, is_external, is_headless};
use crate::json::{at, list, number, remove, text, texts};

/// Checks an update of a Service.
pub(super) fn check(old: &Value, new: &Value, found: &mut Violations) {
    let is_name = |service| text(service, "/spec/type") == "ExternalName";
    if has_health_check(old) && has_health_check(new) {
        let pointer = "/spec/healthCheckNodePort";
        let stays = number(old, pointer) == number(new, pointer);
        found.require(stays, "spec.healthCheckNodePort", "must not change");
    }
    let is_balancer = |service| text(service, "/spec/type") == "LoadBalancer";
    if is_balancer(old) && is_balancer(new) {
        let pointer = "/spec/loadBalancerClass";
        let stays = at(old, pointer) == at(new, pointer);
        found.require(stays, "spec.loadBalancerClass", "must not change");
    }
    let is_single = text(new, "/spec/ipFamilyPolicy") == "SingleStack";
    let path = "spec.ipFamilyPolicy";
    let families = |service| list(service, "/spec/ipFamilies").len();
    let is_reduced = families(new) < families(old) && !is_name(new);
    found.require(
        !is_reduced || is_single,
        path,
        "must be SingleStack to release a family",
    );
    if is_name(old) || is_name(new) || (is_headless(old) && is_headless(new)) {
        return;
    }
    let field = |service, name: &str| texts(service, &format!("/spec/{name}"));
    keeps_first(
        "spec.clusterIPs",
        &field(old, "clusterIPs"),
        &field(new, "clusterIPs"),
        found,
    );
    if is_headless(old) == is_headless(new) {
        keeps_first(
            "spec.ipFamilies",
            &field(old, "ipFamilies"),
            &field(new, "ipFamilies"),
            found,
        );
    }
    let is_reduced = list(old, "/spec/clusterIPs").len() > list(new, "/spec/clusterIPs").len();
    let is_single = text(new, "/spec/ipFamilyPolicy") == "SingleStack";
    let path = "spec.ipFamilyPolicy";
    found.require(
        !is_reduced || is_single,
        path,
        "must be SingleStack to release an address",
    );
}

/// Checks that the first entry does not change. The second one may be added or removed.
fn keeps_first(path: &str, old: &[&str], new: &[&str], found: &mut Violations) {
    let shared = old.len().min(new.len());
    let keeps = old[..shared] == new[..shared] && (old.is_empty() || !new.is_empty());
    found.require(keeps, path, "must not change once set");
}

/// Removes unchanged fields that only the old type of a Service has.
pub(crate) fn drop_fields_of_former_type(old: &Value, new: &mut Value) {
    let kind = |service: &Value| text(service, "/spec/type").to_owned();
    let same = |new: &Value, field: &str| {
        let pointer = format!("/spec/{field}");
        at(old, &pointer) == at(new, &pointer)
    };
    let (before, after) = (kind(old), kind(new));
    if before != "ExternalName" && after == "ExternalName" {
        if same(new, "clusterIP") && same(new, "clusterIPs") {
            remove(new, "/spec", "clusterIP");
            remove(new, "/spec", "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(new, field) {
                remove(new, "/spec", field);
            }
        }
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let ports = |service: &Value| {
        let ports = list(service, "/spec/ports").iter();
        let ports = ports.map(|port| number(port, "/nodePort"));
        ports.filter(|port| *port != 0).collect::<HashSet<_>>()
    };
    if has_node_ports(&before) && !has_node_ports(&after) && ports(new).is_subset(&ports(old)) {
        for index in 0..list(new, "/spec/ports").len() {
            remove(new, &format!("/spec/ports/{index}"), "nodePort");
        }
    }
    if has_health_check(old) && !has_health_check(new) && same(new, "healthCheckNodePort") {
        remove(new, "/spec", "healthCheckNodePort");
    }
    if before == "LoadBalancer" && after != before && same(new, "allocateLoadBalancerNodePorts") {
        remove(new, "/spec", "allocateLoadBalancerNodePorts");
    }
    if before == "LoadBalancer" && after != before && same(new, "loadBalancerClass") {
        remove(new, "/spec", "loadBalancerClass");
    }
    if is_external(old) && !is_external(new) && same(new, "externalTrafficPolicy") {
        remove(new, "/spec", "externalTrafficPolicy");
    }
    if after != "LoadBalancer" {
        remove(new, "", "status");
    }
}
