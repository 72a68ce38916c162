//! Services.

use std::collections::HashSet;

use serde_json::Value;

use super::text::{
    address, is_dns_label, is_dns_subdomain, is_endpoint, is_label_value, is_qualified_name, is_v4,
    network,
};
use super::{Strictness, Violations};
use crate::json::{at, labels, list, number, text, texts};

/// Longest timeout of session affinity, in seconds: one day.
const MAX_AFFINITY: i64 = 86_400;

/// Annotation that may replace the field `loadBalancerSourceRanges`.
const RANGES_ANNOTATION: &str =
    "/metadata/annotations/service.beta.kubernetes.io~1load-balancer-source-ranges";

/// Checks a new Service or, with `old`, an update.
pub(super) fn check(
    new: &Value,
    old: Option<&Value>,
    strictness: Strictness,
    found: &mut Violations,
) {
    topology(new, found);
    kind(new, found);
    ports(new, found);
    affinity(new, found);
    cluster_ips(new, old, strictness, found);
    external_ips(new, old, strictness, found);
    source_ranges(new, old, strictness, found);
    policies(new, found);
}

/// Checks whether a Service has no cluster IP.
pub(super) fn is_headless(service: &Value) -> bool {
    texts(service, "/spec/clusterIPs").first() == Some(&"None")
}

/// Checks whether a Service is reachable from outside the cluster.
pub(super) fn is_external(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, "/spec/externalIPs").is_empty(),
        _ => false,
    }
}

/// Checks whether a Service has a health check node port.
pub(super) fn has_health_check(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && text(service, "/spec/externalTrafficPolicy") == "Local"
}

fn topology(service: &Value, found: &mut Violations) {
    let annotations = "/metadata/annotations/service.kubernetes.io~1";
    let mode = at(service, &format!("{annotations}topology-mode"));
    let hints = at(service, &format!("{annotations}topology-aware-hints"));
    let agree = mode.is_null() || hints.is_null() || mode == hints;
    found.require(agree, "metadata.annotations", "must agree on topology");
    let distribution = at(service, "/spec/trafficDistribution");
    let words = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let is_word = distribution.as_str().is_none_or(|it| words.contains(&it));
    found.require(is_word, "spec.trafficDistribution", "must be a known word");
}

fn kind(service: &Value, found: &mut Violations) {
    let kind = text(service, "/spec/type");
    match kind {
        "ClusterIP" => {}
        "NodePort" | "LoadBalancer" => {
            let has_ip = !is_headless(service);
            found.require(has_ip, "spec.clusterIPs[0]", "must not be None");
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let value = at(service, &format!("/spec/{field}"));
                let is_unset = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
                found.require(is_unset, "spec", "must have no cluster IPs or families");
            }
            let name = text(service, "/spec/externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            found.require(
                is_dns_subdomain(name),
                "spec.externalName",
                "must be a DNS name",
            );
        }
        _ => found.require(false, "spec.type", "must be a known type"),
    }
    let is_balancer = kind == "LoadBalancer";
    if let Some(class) = at(service, "/spec/loadBalancerClass").as_str() {
        let is_class = is_balancer && is_qualified_name(class);
        found.require(
            is_class,
            "spec.loadBalancerClass",
            "must be of a LoadBalancer",
        );
    }
    let allocates = at(service, "/spec/allocateLoadBalancerNodePorts");
    let agree = allocates.is_null() != is_balancer;
    found.require(
        agree,
        "spec.allocateLoadBalancerNodePorts",
        "must be of a LoadBalancer",
    );
    let is_selector = labels(service, "/spec/selector")
        .all(|(key, value)| is_qualified_name(key) && is_label_value(value));
    found.require(is_selector, "spec.selector", "must be labels");
}

fn ports(service: &Value, found: &mut Violations) {
    let ports = list(service, "/spec/ports");
    let kind = text(service, "/spec/type");
    let may_lack = is_headless(service) || kind == "ExternalName";
    found.require(
        may_lack || !ports.is_empty(),
        "spec.ports",
        "must have one port",
    );
    let mut names = HashSet::new();
    let (mut numbers, mut node_ports) = (HashSet::new(), HashSet::new());
    for port in ports {
        let (name, protocol) = (text(port, "/name"), text(port, "/protocol"));
        let path = "spec.ports[].name";
        let is_name = match name {
            "" => ports.len() == 1,
            name => is_dns_label(name),
        };
        found.require(is_name, path, "must be a DNS label");
        found.require(names.insert(name), path, "must be unique");
        let is_protocol = matches!(protocol, "TCP" | "UDP" | "SCTP");
        found.require(
            is_protocol,
            "spec.ports[].protocol",
            "must be TCP, UDP or SCTP",
        );
        let (number, node_port) = (number(port, "/port"), number(port, "/nodePort"));
        let path = "spec.ports[].port";
        found.require(is_port(number), path, "must be a port");
        found.require(numbers.insert((protocol, number)), path, "must be unique");
        target(at(port, "/targetPort"), found);
        let application = at(port, "/appProtocol").as_str();
        let is_name = application.is_none_or(is_qualified_name);
        found.require(
            is_name,
            "spec.ports[].appProtocol",
            "must be a qualified name",
        );
        let path = "spec.ports[].nodePort";
        if node_port != 0 {
            found.require(kind != "ClusterIP", path, "must be of another type");
            let is_first = node_ports.insert((protocol, node_port));
            found.require(is_first, path, "must be unique");
        }
    }
}

/// Checks a target port: a number, or the name of a container port.
fn target(target: &Value, found: &mut Violations) {
    let is_valid = match target {
        Value::String(name) => {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            name.len() <= 15
                && is_dns_label(name)
                && !name.contains("--")
                && name.bytes().all(|byte| inner(byte) || byte == b'-')
                && name.bytes().any(|byte| byte.is_ascii_lowercase())
        }
        number => number.as_i64().is_some_and(is_port),
    };
    found.require(
        is_valid,
        "spec.ports[].targetPort",
        "must be a port or a name",
    );
}

fn is_port(number: i64) -> bool {
    (1..=65_535).contains(&number)
}

fn affinity(service: &Value, found: &mut Violations) {
    let pointer = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
    match text(service, "/spec/sessionAffinity") {
        "None" => {}
        "ClientIP" => {
            let seconds = number(service, pointer);
            let is_time = (1..=MAX_AFFINITY).contains(&seconds);
            found.require(
                is_time,
                "spec.sessionAffinityConfig",
                "must last 1 s to a day",
            );
        }
        _ => found.require(false, "spec.sessionAffinity", "must be None or ClientIP"),
    }
}

fn cluster_ips(new: &Value, old: Option<&Value>, strictness: Strictness, found: &mut Violations) {
    if text(new, "/spec/type") == "ExternalName" {
        return;
    }
    let path = "spec.clusterIPs";
    let texts = |service, field: &str| texts(service, &format!("/spec/{field}"));
    let (ips, families) = (texts(new, "clusterIPs"), texts(new, "ipFamilies"));
    let first = ips.first().copied().unwrap_or_default();
    let agrees = text(new, "/spec/clusterIP") == first;
    found.require(agrees, path, "must begin with spec.clusterIP");
    let are_families = match families[..] {
        [] => true,
        [one] => is_family(one),
        [one, other] => is_family(one) && is_family(other) && one != other,
        _ => false,
    };
    found.require(
        are_families,
        "spec.ipFamilies",
        "must be families, once each",
    );
    let policy = at(new, "/spec/ipFamilyPolicy").as_str();
    let policies = ["SingleStack", "PreferDualStack", "RequireDualStack"];
    let is_policy = policy.is_none_or(|it| policies.contains(&it));
    found.require(is_policy, "spec.ipFamilyPolicy", "must be a known word");
    if is_headless(new) {
        found.require(ips.len() == 1, path, "must be None alone");
        return;
    }
    let former = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default();
    let are_addresses = ips
        .iter()
        .all(|ip| former.contains(ip) || address(ip, strictness).is_some());
    found.require(
        are_addresses && ips.len() <= 2,
        path,
        "must be two addresses at most",
    );
    let parsed: Vec<_> = ips
        .iter()
        .map(|ip| address(ip, Strictness::Legacy))
        .collect();
    if let [Some(one), Some(other)] = parsed[..] {
        found.require(
            is_v4(one) != is_v4(other),
            path,
            "must be one of each family",
        );
    }
    for (ip, family) in parsed.iter().flatten().zip(&families) {
        let agrees = is_v4(*ip) == (*family == "IPv4");
        found.require(agrees, path, "must be of the families");
    }
}

fn is_family(word: &str) -> bool {
    matches!(word, "IPv4" | "IPv6")
}

/// Checks external IPs. Addresses of the old Service may have a legacy form.
fn external_ips(new: &Value, old: Option<&Value>, strictness: Strictness, found: &mut Violations) {
    let pointer = "/spec/externalIPs";
    let former = old.map(|old| texts(old, pointer)).unwrap_or_default();
    for ip in texts(new, pointer) {
        let is_known = former.contains(&ip);
        let strictness = if is_known {
            Strictness::Legacy
        } else {
            strictness
        };
        let is_valid = address(ip, strictness).is_some_and(is_endpoint);
        found.require(is_valid, "spec.externalIPs", "must be reachable addresses");
    }
}

/// Checks source ranges. The API allows whitespace around a range.
fn source_ranges(new: &Value, old: Option<&Value>, strictness: Strictness, found: &mut Violations) {
    let (pointer, path) = (
        "/spec/loadBalancerSourceRanges",
        "spec.loadBalancerSourceRanges",
    );
    let is_balancer = text(new, "/spec/type") == "LoadBalancer";
    let ranges = texts(new, pointer);
    if ranges.is_empty() {
        let Some(ranges) = at(new, RANGES_ANNOTATION).as_str() else {
            return;
        };
        found.require(
            is_balancer,
            "metadata.annotations",
            "must be of a LoadBalancer",
        );
        let is_known = old.is_some_and(|old| at(old, RANGES_ANNOTATION) == ranges);
        let mut each = ranges.split(',').map(str::trim);
        let are_ranges =
            ranges.trim().is_empty() || each.all(|it| network(it, strictness).is_some());
        found.require(
            is_known || are_ranges,
            "metadata.annotations",
            "must be networks",
        );
        return;
    }
    found.require(is_balancer, path, "must be of a LoadBalancer");
    let former = old.map(|old| texts(old, pointer)).unwrap_or_default();
    for range in ranges.into_iter().map(str::trim) {
        let is_known = former.iter().any(|former| former.trim() == range);
        let is_valid = is_known || network(range, strictness).is_some();
        found.require(is_valid, path, "must be networks");
    }
}

fn policies(service: &Value, found: &mut Violations) {
    let external = text(service, "/spec/externalTrafficPolicy");
    let is_policy = match is_external(service) {
        true => matches!(external, "Cluster" | "Local"),
        false => external.is_empty(),
    };
    found.require(
        is_policy,
        "spec.externalTrafficPolicy",
        "must be of an external Service",
    );
    let port = number(service, "/spec/healthCheckNodePort");
    let is_port = match has_health_check(service) {
        true => is_port(port),
        false => port == 0,
    };
    found.require(
        is_port,
        "spec.healthCheckNodePort",
        "must be of policy Local",
    );
    let internal = at(service, "/spec/internalTrafficPolicy").as_str();
    let is_policy = match internal {
        Some(internal) => matches!(internal, "Cluster" | "Local"),
        None => text(service, "/spec/type") == "ExternalName",
    };
    found.require(
        is_policy,
        "spec.internalTrafficPolicy",
        "must be Cluster or Local",
    );
}
