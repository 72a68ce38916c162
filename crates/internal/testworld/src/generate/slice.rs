//! EndpointSlices.

use serde_json::{Value, json};
use vipline_service_model::Kind;
use vipline_service_model::arbitrary::Dice;

use super::{below, metadata, pool, some};
use crate::json::{list, text};
use crate::validation::text::is_dns_label;
use crate::{Cluster, Id};

/// Proposes the name of a slice: the name of a Service with a number.
pub(super) fn name(dice: &mut Dice) -> String {
    match dice.roll(12) {
        0 => format!("{0}.{0}.{0}.{1}", pool::LONG, &pool::LONG[2..]),
        _ => format!("{}-{}", dice.pick(&pool::SERVICES), dice.roll(3)),
    }
}

/// Returns a slice, possibly the old slice with small differences.
pub(super) fn object(cluster: &Cluster, dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    if let Some(old) = old.filter(|_| !dice.once_in(3)) {
        return touched(cluster, dice, id, old);
    }
    let kind = match old {
        Some(old) => text(old, "/addressType").to_owned(),
        None => dice
            .pick(&["IPv4", "IPv4", "IPv4", "IPv4", "IPv6", "IPv6", "FQDN"])
            .to_owned(),
    };
    let hinted = dice.pick(&[1, 4, 255]);
    let count = dice.roll(6);
    let endpoints = (0..count).map(|_| endpoint(cluster, dice, &kind, hinted));
    let endpoints: Vec<_> = endpoints.collect();
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata(dice, id, old),
        "addressType": kind,
        "endpoints": endpoints,
        "ports": ports(cluster, id, dice),
    });
    if dice.once_in(24) {
        slice["ports"] = Value::Null;
    }
    let labels = &mut slice["metadata"]["labels"];
    let own = id.name.rsplit_once('-').map(|(service, _)| service);
    let service = match (dice.roll(10), own) {
        (0, _) => dice.pick(&["web", "dns", "absent", "", "A_b.c"]),
        (_, Some(service)) if is_dns_label(service) => service,
        _ => "web",
    };
    labels["kubernetes.io/service-name"] = json!(service);
    if !dice.once_in(8) {
        let controllers = ["endpointslice-controller.k8s.io", "example.com", ""];
        let controller = dice.pick(&controllers);
        labels["endpointslice.kubernetes.io/managed-by"] = json!(controller);
    }
    if dice.once_in(20) {
        labels["service.kubernetes.io/headless"] = json!("");
    }
    if dice.once_in(20) {
        crate::json::remove(&mut slice, "/metadata/labels", "kubernetes.io/service-name");
    }
    if dice.once_in(4) {
        let key = "endpoints.kubernetes.io/last-change-trigger-time";
        let time = dice.pick(&["2026-02-02T02:02:02.5Z", "9999-12-31T23:59:59Z", "odd", ""]);
        slice["metadata"]["annotations"][key] = json!(time);
    }
    slice
}

/// Returns a slice in which an endpoint was added, removed, moved or changed, or in
/// which the ports were changed.
fn touched(cluster: &Cluster, dice: &mut Dice, id: &Id, old: &Value) -> Value {
    let mut slice = old.clone();
    let kind = text(old, "/addressType").to_owned();
    if dice.once_in(6) || list(old, "/endpoints").is_empty() {
        slice["ports"] = json!(ports(cluster, id, dice));
    }
    let new = endpoint(cluster, dice, &kind, 4);
    let Some(endpoints) = slice["endpoints"].as_array_mut() else {
        return slice;
    };
    let place = below(dice, endpoints.len());
    match dice.roll(5) {
        0 => endpoints.push(new),
        _ if endpoints.is_empty() => endpoints.push(new),
        1 => drop(endpoints.remove(place)),
        2 => endpoints[place] = new,
        3 => endpoints[place]["conditions"] = new["conditions"].clone(),
        _ => endpoints.reverse(),
    }
    slice
}

fn endpoint(cluster: &Cluster, dice: &mut Dice, kind: &str, hinted: u8) -> Value {
    let count = dice.pick(&[1, 1, 1, 1, 2, 3]);
    let addresses: Vec<_> = (0..count).map(|_| address(dice, kind)).collect();
    let mut endpoint = json!({"addresses": addresses, "conditions": conditions(dice)});
    if !dice.once_in(4) {
        endpoint["nodeName"] = json!(dice.pick(&pool::NODES));
    }
    if dice.once_in(8) {
        endpoint["hostname"] = json!(pool::LONG);
    }
    if dice.once_in(4) {
        endpoint["zone"] = json!(dice.pick(&["a", "b", pool::LONG]));
    }
    if dice.once_in(8) {
        let pod = json!({"kind": "Pod", "name": "web-0", "namespace": "default", "uid": "u"});
        endpoint["targetRef"] = pod;
    }
    if dice.once_in(hinted) {
        let name = |name: String| json!({"name": name});
        let zones = distinct(some(dice, 3, &["a", "b", pool::LONG, ""]));
        let nodes = distinct(some(dice, 2, &pool::NODES));
        let zones: Vec<_> = zones.into_iter().map(name).collect();
        let nodes: Vec<_> = nodes.into_iter().map(name).collect();
        endpoint["hints"] = match dice.roll(6) {
            0 => json!({"forZones": zones}),
            1 => json!({"forNodes": nodes}),
            _ => json!({"forZones": zones, "forNodes": nodes}),
        };
    }
    if dice.once_in(16) {
        endpoint["deprecatedTopology"] = json!({"kubernetes.io/hostname": "node-1"});
    }
    if dice.once_in(16) {
        crate::json::remove(&mut endpoint, "", "conditions");
    }
    let is_legacy = cluster.strictness() == crate::validation::Strictness::Legacy;
    if is_legacy && kind == "IPv4" && dice.once_in(4) {
        endpoint["addresses"] = json!([dice.pick(&["010.244.001.005", "::ffff:10.244.1.6"])]);
    }
    endpoint
}

/// Returns any combination of conditions. An absent condition is unknown.
fn conditions(dice: &mut Dice) -> Value {
    let mut conditions = json!({});
    for name in ["ready", "serving", "terminating"] {
        if let Some(value) =
            dice.pick(&[None, Some(name != "terminating"), Some(true), Some(false)])
        {
            conditions[name] = json!(value);
        }
    }
    conditions
}

fn address(dice: &mut Dice, kind: &str) -> &'static str {
    let is_odd = dice.once_in(5);
    match (kind, is_odd) {
        ("IPv4", false) => dice.pick(&pool::PODS_V4),
        ("IPv4", true) => dice.pick(&pool::HOSTILE_V4),
        ("IPv6", false) => dice.pick(&pool::PODS_V6),
        ("IPv6", true) => dice.pick(&pool::HOSTILE_V6),
        _ => dice.pick(&["a.example", "b.example.", "a.b"]),
    }
}

/// Returns ports with unique names, as validation requires, and arbitrary numbers. Names
/// and protocols are mostly those of the Service.
fn ports(cluster: &Cluster, id: &Id, dice: &mut Dice) -> Vec<Value> {
    let service = id.name.rsplit_once('-').map(|(service, _)| Id {
        kind: Kind::Service,
        namespace: id.namespace.clone(),
        name: service.to_owned(),
    });
    let service = service.and_then(|service| cluster.get(&service));
    if let Some(service) = service.filter(|_| !dice.once_in(4)) {
        let own = list(service, "/spec/ports").iter();
        let own = own.map(|own| (text(own, "/name"), text(own, "/protocol")));
        return own
            .map(|(name, protocol)| port(dice, name, protocol))
            .collect();
    }
    let mut names = some(dice, 3, &pool::PORT_NAMES);
    if dice.once_in(2) {
        names.push(String::new());
    }
    let names = distinct(names).into_iter();
    let protocols = names.map(|name| (protocol(dice, &name), name));
    let named: Vec<_> = protocols.collect();
    let ports = named
        .iter()
        .map(|(protocol, name)| port(dice, name, protocol));
    ports.collect()
}

fn port(dice: &mut Dice, name: &str, protocol: &str) -> Value {
    let mut port = json!({"name": name, "protocol": protocol});
    match dice.roll(16) {
        0 => {}
        1 => port["port"] = json!(dice.pick(&pool::ODD_TARGETS)),
        _ => port["port"] = json!(dice.pick(&pool::TARGETS)),
    }
    if dice.once_in(8) {
        port["appProtocol"] = json!("kubernetes.io/h2c");
    }
    port
}

/// Returns a protocol, mostly the usual one for a port's name.
pub(super) fn protocol(dice: &mut Dice, name: &str) -> &'static str {
    match (dice.once_in(8), name) {
        (true, _) => dice.pick(&["TCP", "UDP", "SCTP"]),
        (false, "dns") => "UDP",
        (false, _) => "TCP",
    }
}

fn distinct(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts.dedup();
    texts
}

/// Adds 1,000 endpoints or hundreds of ports to a slice.
pub(super) fn grow(slice: &mut Value, dice: &mut Dice) {
    if dice.once_in(3) {
        let ports = (0..300).map(|number| {
            let target = match dice.once_in(100) {
                true => dice.pick(&pool::ODD_TARGETS),
                false => dice.pick(&pool::TARGETS),
            };
            json!({"name": format!("p-{number}"), "protocol": "TCP", "port": target})
        });
        slice["ports"] = ports.collect();
        return;
    }
    let is_v6 = slice["addressType"] == "IPv6";
    let endpoints = (0..1_000).map(|number| {
        let address = match is_v6 {
            true => format!("fd00:244:3::{:x}", number + 1),
            false => format!("10.244.{}.{}", 100 + number / 250, number % 250),
        };
        json!({"addresses": [address], "conditions": {}, "nodeName": dice.pick(&pool::NODES)})
    });
    slice["endpoints"] = endpoints.collect();
}
