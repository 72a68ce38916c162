//! Defaults of Services and EndpointSlices, which an API server sets before validation.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::json::{at, list, number, remove, text, texts};
use crate::validation::Strictness;
use crate::validation::text::{address, is_v4};

/// Sets the defaults of a Service, and keeps values that an update omits.
pub(crate) fn fill(old: Option<&Value>, new: &mut Value) {
    defaults(new);
    if let Some(old) = old {
        keep_allocated(old, new);
    }
    synchronize(old, new);
    if text(new, "/spec/type") != "ExternalName" {
        families(old, new);
    }
}

/// Sets the defaults of an EndpointSlice.
pub(crate) fn fill_slice(slice: &mut Value) {
    let ports = slice.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        for (field, value) in [("name", ""), ("protocol", "TCP")] {
            if at(port, &format!("/{field}")).is_null() {
                port[field] = json!(value);
            }
        }
    }
}

/// Replaces empty texts and absent members by their defaults.
fn defaults(service: &mut Value) {
    set_default(service, "sessionAffinity", json!("None"));
    set_default(service, "type", json!("ClusterIP"));
    let kind = text(service, "/spec/type").to_owned();
    match text(service, "/spec/sessionAffinity") {
        "None" => remove(service, "/spec", "sessionAffinityConfig"),
        "ClientIP" => {
            let seconds = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
            if at(service, seconds).is_null() {
                let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
                service["spec"]["sessionAffinityConfig"] = config;
            }
        }
        _ => {}
    }
    if let Some(ports) = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut)
    {
        for port in ports {
            if text(port, "/protocol").is_empty() {
                port["protocol"] = json!("TCP");
            }
            let target = at(port, "/targetPort");
            if target.is_null() || target == 0 || target == "" {
                port["targetPort"] = port["port"].clone();
            }
        }
    }
    let is_balancer = kind == "LoadBalancer";
    let has_external_ips = !list(service, "/spec/externalIPs").is_empty();
    if is_balancer || kind == "NodePort" || (kind == "ClusterIP" && has_external_ips) {
        set_default(service, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer")
        && at(service, "/spec/internalTrafficPolicy").is_null()
    {
        service["spec"]["internalTrafficPolicy"] = json!("Cluster");
    }
    if is_balancer && at(service, "/spec/allocateLoadBalancerNodePorts").is_null() {
        service["spec"]["allocateLoadBalancerNodePorts"] = json!(true);
    }
}

fn set_default(service: &mut Value, field: &str, value: Value) {
    if text(service, &format!("/spec/{field}")).is_empty() {
        service["spec"][field] = value;
    }
}

/// Keeps addresses and node ports that an update omits.
fn keep_allocated(old: &Value, new: &mut Value) {
    let is_name = |service: &Value| text(service, "/spec/type") == "ExternalName";
    if !is_name(old) && !is_name(new) {
        for field in ["clusterIP", "clusterIPs"] {
            let pointer = format!("/spec/{field}");
            let is_left_out = text(new, &pointer).is_empty() && list(new, &pointer).is_empty();
            if is_left_out && !at(old, &pointer).is_null() {
                new["spec"][field] = at(old, &pointer).clone();
            }
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        keep_node_ports(old, new);
    }
    let is_asked = |service: &Value| {
        text(service, "/spec/type") == "LoadBalancer"
            && text(service, "/spec/externalTrafficPolicy") == "Local"
    };
    let field = "/spec/healthCheckNodePort";
    if is_asked(old) && is_asked(new) && number(new, field) == 0 {
        new["spec"]["healthCheckNodePort"] = at(old, field).clone();
    }
}

/// Returns whether the server allocates missing node ports of a Service.
pub(crate) fn needs_node_ports(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => at(service, "/spec/allocateLoadBalancerNodePorts") != false,
        _ => false,
    }
}

/// Sets missing node ports to the node port of the old port of the same name.
fn keep_node_ports(old: &Value, new: &mut Value) {
    let node_ports = |service: &Value| -> HashSet<i64> {
        let ports = list(service, "/spec/ports").iter();
        let ports = ports.map(|port| number(port, "/nodePort"));
        ports.filter(|port| *port != 0).collect()
    };
    let used: HashSet<_> = node_ports(old)
        .intersection(&node_ports(new))
        .copied()
        .collect();
    for index in 0..list(new, "/spec/ports").len() {
        let port = &new["spec"]["ports"][index];
        if number(port, "/nodePort") != 0 {
            continue;
        }
        let mut former = list(old, "/spec/ports").iter().rev();
        let former = former.find(|former| text(former, "/name") == text(port, "/name"));
        let former = former.map_or(0, |former| number(former, "/nodePort"));
        if former != 0 && !used.contains(&former) {
            new["spec"]["ports"][index]["nodePort"] = json!(former);
        }
    }
}

/// Derives `clusterIPs` from `clusterIP` if a request has only the latter.
fn synchronize(old: Option<&Value>, new: &mut Value) {
    let ip = text(new, "/spec/clusterIP").to_owned();
    let Some(old) = old else {
        if !ip.is_empty() && list(new, "/spec/clusterIPs").is_empty() {
            new["spec"]["clusterIPs"] = json!([ip]);
        }
        return;
    };
    let former = text(old, "/spec/clusterIP");
    let ips = texts(new, "/spec/clusterIPs");
    if ips.is_empty() && former == ip && !ip.is_empty() {
        new["spec"]["clusterIPs"] = at(old, "/spec/clusterIPs").clone();
    } else if former != ip && texts(old, "/spec/clusterIPs") == ips {
        match ip.is_empty() {
            true => remove(new, "/spec", "clusterIPs"),
            false => new["spec"]["clusterIPs"] = json!([ip]),
        }
    }
}

/// Infers families and family policy of a Service in a dual-stack cluster.
fn families(old: Option<&Value>, new: &mut Value) {
    let ips: Vec<_> = texts(new, "/spec/clusterIPs")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let is_headless = ips.first().is_some_and(|ip| ip == "None");
    if at(new, "/spec/ipFamilyPolicy").is_null() {
        let former = old.map(|old| at(old, "/spec/ipFamilyPolicy").clone());
        let has_selector = at(new, "/spec/selector").is_object();
        new["spec"]["ipFamilyPolicy"] = match former {
            Some(former) if !former.is_null() => former,
            _ if is_headless && !has_selector => json!("RequireDualStack"),
            _ => json!("SingleStack"),
        };
    }
    let is_single = text(new, "/spec/ipFamilyPolicy") == "SingleStack";
    if let Some(old) = old.filter(|_| is_single) {
        for field in ["clusterIPs", "ipFamilies"] {
            let pointer = format!("/spec/{field}");
            let (held, wanted) = (texts(old, &pointer), texts(new, &pointer));
            if held == wanted && wanted.len() > 1 {
                new["spec"][field] = json!([wanted[0]]);
            }
        }
    }
    let mut families: Vec<_> = texts(new, "/spec/ipFamilies")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let held = old.map_or(0, |old| list(old, "/spec/ipFamilies").len());
    if !is_single && !families.is_empty() && families.len() < held {
        return;
    }
    let ips = texts(new, "/spec/clusterIPs");
    for ip in ips.iter().skip(families.len()).filter(|ip| **ip != "None") {
        let is_v4 = address(ip, Strictness::Legacy).is_none_or(is_v4);
        families.push(if is_v4 { "IPv4" } else { "IPv6" }.to_owned());
    }
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if families.len() == 1 && !is_single {
        let other = if families[0] == "IPv4" {
            "IPv6"
        } else {
            "IPv4"
        };
        families.push(other.to_owned());
    }
    new["spec"]["ipFamilies"] = json!(families);
}
