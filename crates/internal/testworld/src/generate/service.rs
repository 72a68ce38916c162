//! Services.

use serde_json::{Value, json};
use vipline_service_model::arbitrary::Dice;

use super::slice::protocol;
use super::{metadata, pool, some};
use crate::allocation::Allocation;
use crate::json::{list, remove, text, texts};
use crate::validation::Strictness;
use crate::{Cluster, Id};

/// Groups of related members of a specification.
const GROUPS: [&[&str]; 8] = [
    &["ports"],
    &["sessionAffinity", "sessionAffinityConfig"],
    &["externalIPs"],
    &["loadBalancerSourceRanges"],
    &["externalTrafficPolicy", "healthCheckNodePort"],
    &["internalTrafficPolicy"],
    &["trafficDistribution"],
    &["publishNotReadyAddresses", "selector"],
];

/// Returns a Service, possibly the old Service with one difference.
pub(super) fn object(cluster: &Cluster, dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    let others = Allocation::of_others(id, cluster.objects());
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": service_metadata(dice, id, old),
        "spec": spec(cluster, &others, dice, old),
    });
    if let Some(old) = old.filter(|_| dice.once_in(2)) {
        let new = service["spec"].take();
        service["spec"] = old["spec"].clone();
        for field in dice.pick(&GROUPS) {
            remove(&mut service, "/spec", field);
            if let Some(value) = new.get(*field) {
                service["spec"][*field] = value.clone();
            }
        }
    }
    service
}

fn service_metadata(dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    let mut metadata = metadata(dice, id, old);
    if dice.once_in(24) {
        let name = dice.pick(&["other", ""]);
        metadata["labels"]["service.kubernetes.io/service-proxy-name"] = json!(name);
    }
    if dice.once_in(24) {
        metadata["labels"]["service.kubernetes.io/headless"] = json!("");
    }
    if dice.once_in(8) {
        metadata["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    }
    if dice.once_in(6) {
        let schedulers = ["rr", "lc", "sh", "mh", "odd", "", pool::ODD_TEXTS[21]];
        let key = "service.kubernetes.io/ipvs-scheduler";
        metadata["annotations"][key] = json!(dice.pick(&schedulers));
    }
    if dice.once_in(12) {
        let key = "service.kubernetes.io/topology-mode";
        metadata["annotations"][key] = json!(dice.pick(&["Auto", "Disabled", "odd"]));
    }
    if dice.once_in(24) {
        let key = "service.kubernetes.io/topology-aware-hints";
        metadata["annotations"][key] = json!(dice.pick(&["Auto", "auto"]));
    }
    if dice.once_in(12) {
        let key = "service.beta.kubernetes.io/load-balancer-source-ranges";
        let ranges = ["", " ", "10.0.0.0/8", " 10.244.0.0/16 ,::/0\t"];
        metadata["annotations"][key] = json!(dice.pick(&ranges));
    }
    metadata
}

fn spec(cluster: &Cluster, others: &Allocation, dice: &mut Dice, old: Option<&Value>) -> Value {
    let kinds = [
        "ClusterIP",
        "ClusterIP",
        "NodePort",
        "LoadBalancer",
        "LoadBalancer",
    ];
    let mut kind = dice.pick(&kinds);
    if dice.once_in(12) {
        kind = "ExternalName";
    }
    let is_headless = match old {
        Some(old) if text(old, "/spec/type") != "ExternalName" => {
            texts(old, "/spec/clusterIPs") == ["None"]
        }
        _ => dice.once_in(16),
    };
    if is_headless && kind != "ExternalName" {
        kind = "ClusterIP";
    }
    let mut spec = json!({"type": kind, "selector": {"app": "web"}});
    if dice.once_in(6) {
        remove(&mut spec, "", "selector");
    }
    if dice.once_in(6) {
        spec["publishNotReadyAddresses"] = json!(true);
    }
    if kind == "ExternalName" {
        spec["externalName"] = json!(dice.pick(&["a.example", "b.example.", pool::LONG]));
    } else {
        addresses(&mut spec, others, dice, old, is_headless);
        if cluster.strictness() == Strictness::Legacy && old.is_none() && dice.once_in(6) {
            legacy_address(&mut spec, dice);
        }
    }
    let names_node_ports = matches!(kind, "NodePort" | "LoadBalancer");
    let may_lack_ports = is_headless || kind == "ExternalName";
    if !may_lack_ports || !dice.once_in(3) {
        spec["ports"] = json!(ports(others, dice, names_node_ports));
    }
    affinity(&mut spec, dice);
    if dice.once_in(3) {
        let mut ips = some(dice, 3, &pool::HOSTILE_V4);
        ips.extend(some(dice, 1, &pool::HOSTILE_V6));
        if cluster.strictness() == Strictness::Legacy {
            ips.extend(some(dice, 1, &pool::LEGACY));
        }
        spec["externalIPs"] = json!(ips);
    }
    if kind == "LoadBalancer" {
        balancer(&mut spec, cluster, dice);
        class(&mut spec, dice, old);
    }
    policies(&mut spec, others, dice);
    spec
}

/// Sets cluster IPs: new ones, or those of the old Service with the second one added or
/// removed.
fn addresses(
    spec: &mut Value,
    others: &Allocation,
    dice: &mut Dice,
    old: Option<&Value>,
    is_headless: bool,
) {
    let held = old
        .map(|old| texts(old, "/spec/clusterIPs"))
        .unwrap_or_default();
    let mut ips: Vec<String> = match held[..] {
        [] => vec![free_address(others, dice, dice_is_v6)],
        _ => held.iter().map(|&ip| ip.to_owned()).collect(),
    };
    let is_v6 = |ip: &str| ip.contains(':') && !ip.contains('.');
    if is_headless {
        ips = vec!["None".to_owned()];
        let families = ["IPv4", "IPv6"];
        let count = 1 + usize::from(dice.roll(2));
        spec["ipFamilies"] = json!(families[..count]);
        spec["ipFamilyPolicy"] = json!(["SingleStack", "RequireDualStack"][count - 1]);
    } else {
        let is_dual = dice.once_in(2);
        match (ips.len(), is_dual) {
            (1, true) => {
                let other = !is_v6(&ips[0]);
                ips.push(free_address(others, dice, |_| other));
            }
            (2, false) => drop(ips.pop()),
            _ => {}
        }
        let families = ips.iter().map(|ip| if is_v6(ip) { "IPv6" } else { "IPv4" });
        spec["ipFamilies"] = json!(families.collect::<Vec<_>>());
        let policies = ["PreferDualStack", "RequireDualStack"];
        spec["ipFamilyPolicy"] = match ips.len() {
            1 => json!("SingleStack"),
            _ => json!(dice.pick(&policies)),
        };
    }
    spec["clusterIP"] = json!(ips[0]);
    spec["clusterIPs"] = json!(ips);
}

/// Replaces the cluster IP of a Service by a form that only older servers admit.
fn legacy_address(spec: &mut Value, dice: &mut Dice) {
    let ips = list(spec, "/clusterIPs");
    if ips.len() == 1 && !text(spec, "/clusterIP").contains(':') && ips[0] != "None" {
        let ip = dice.pick(&pool::LEGACY_CLUSTER);
        spec["clusterIP"] = json!(ip);
        spec["clusterIPs"] = json!([ip]);
    }
}

/// Sets the immutable class of a load balancer and its deprecated address field, which
/// may be any string.
fn class(spec: &mut Value, dice: &mut Dice, old: Option<&Value>) {
    let balancer = old.filter(|old| text(old, "/spec/type") == "LoadBalancer");
    let class = match balancer {
        Some(old) => text(old, "/spec/loadBalancerClass").to_owned(),
        None => dice.pick(&["", "", "", "example.com/lb", "lb"]).to_owned(),
    };
    if !class.is_empty() {
        spec["loadBalancerClass"] = json!(class);
    }
    if dice.once_in(8) {
        spec["loadBalancerIP"] = json!(dice.pick(&["", "x", "203.0.113.1", "fe80::1%eth0"]));
    }
}

/// Chooses IPv6 with probability 1/4.
fn dice_is_v6(dice: &mut Dice) -> bool {
    dice.once_in(4)
}

/// Returns a free address, if any.
fn free_address(
    others: &Allocation,
    dice: &mut Dice,
    is_v6: impl FnOnce(&mut Dice) -> bool,
) -> String {
    let pool: &[&str] = match is_v6(dice) {
        true => &pool::CLUSTER_V6,
        false => &pool::CLUSTER_V4,
    };
    let free: Vec<_> = pool
        .iter()
        .filter(|ip| others.is_free_address(ip))
        .collect();
    match free.is_empty() {
        true => pool[0].to_owned(),
        false => (*dice.pick(&free)).to_owned(),
    }
}

fn ports(others: &Allocation, dice: &mut Dice, has_node_ports: bool) -> Vec<Value> {
    let count = dice.pick(&[1, 1, 2, 3]);
    let mut ports: Vec<Value> = Vec::new();
    for place in 0..count {
        let name = match (count, dice.once_in(2)) {
            (1, true) => "",
            _ => pool::PORT_NAMES[(place + usize::from(dice.roll(2)) * 3) % 5],
        };
        let number = dice.pick(&[80, 80, 443, 53, 1, 65_535, 30_001]);
        let protocol = protocol(dice, name);
        let is_taken = |port: &Value| {
            text(port, "/name") == name
                || (text(port, "/protocol") == protocol && port["port"] == number)
        };
        if ports.iter().any(is_taken) {
            continue;
        }
        let target = dice.pick(&[json!(8080), json!("http"), json!(number)]);
        let mut port =
            json!({"name": name, "protocol": protocol, "port": number, "targetPort": target});
        if name.is_empty() {
            remove(&mut port, "", "name");
        }
        if dice.once_in(12) {
            port["appProtocol"] = json!(dice.pick(&["http", "kubernetes.io/h2c", "Odd_1"]));
        }
        if has_node_ports {
            port["nodePort"] = json!(free_port(others, dice));
        }
        ports.push(port);
    }
    if ports.len() == 1 || ports.iter().all(|port| port.get("name").is_some()) {
        return ports;
    }
    ports.truncate(1);
    ports
}

/// Returns a free node port.
fn free_port(others: &Allocation, dice: &mut Dice) -> i64 {
    let ports: Vec<i64> = (30_000..30_012).chain([32_767]).collect();
    let free: Vec<_> = ports
        .into_iter()
        .filter(|port| others.is_free_port(*port))
        .collect();
    match free.is_empty() {
        true => 31_000 + i64::from(dice.roll(u8::MAX)),
        false => dice.pick(&free),
    }
}

fn affinity(spec: &mut Value, dice: &mut Dice) {
    if dice.once_in(3) {
        let seconds = match dice.once_in(2) {
            true => dice.pick(&pool::TIMEOUTS),
            false => 1 + i64::from(dice.roll(u8::MAX)) * 255 + i64::from(dice.roll(u8::MAX)),
        };
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    } else {
        spec["sessionAffinity"] = json!("None");
    }
}

fn balancer(spec: &mut Value, cluster: &Cluster, dice: &mut Dice) {
    spec["allocateLoadBalancerNodePorts"] = json!(true);
    if dice.once_in(4) {
        spec["allocateLoadBalancerNodePorts"] = json!(false);
        for index in 0..list(spec, "/ports").len() {
            remove(spec, &format!("/ports/{index}"), "nodePort");
        }
    }
    if dice.once_in(2) {
        let mut ranges = some(dice, 4, &pool::NETWORKS);
        if cluster.strictness() == Strictness::Legacy {
            ranges.extend(some(dice, 2, &pool::LEGACY_NETWORKS));
        }
        if dice.once_in(3) {
            ranges = ranges.iter().map(|range| format!(" {range}\t")).collect();
        }
        spec["loadBalancerSourceRanges"] = json!(ranges);
    }
}

fn policies(spec: &mut Value, others: &Allocation, dice: &mut Dice) {
    let policies = ["Cluster", "Cluster", "Local"];
    spec["internalTrafficPolicy"] = json!(dice.pick(&policies));
    if dice.once_in(8) {
        let words = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        spec["trafficDistribution"] = json!(dice.pick(&words));
    }
    let kind = text(spec, "/type").to_owned();
    let is_external = match &*kind {
        "ClusterIP" => !list(spec, "/externalIPs").is_empty(),
        kind => kind != "ExternalName",
    };
    if !is_external {
        return;
    }
    let policy = dice.pick(&policies);
    spec["externalTrafficPolicy"] = json!(policy);
    if kind == "LoadBalancer" && policy == "Local" {
        spec["healthCheckNodePort"] = json!(free_port(others, dice));
    }
}

/// Returns the status of a Service with addresses of load balancers.
pub(super) fn status(dice: &mut Dice) -> Value {
    let mut ips = some(dice, 2, &pool::HOSTILE_V4);
    ips.extend(some(dice, 1, &pool::HOSTILE_V6));
    ips.extend(some(dice, 1, &pool::HOSTILE_INGRESS));
    if dice.once_in(8) {
        ips.extend(some(dice, 1, &pool::LEGACY));
    }
    let mut ingress: Vec<_> = ips
        .into_iter()
        .map(|ip| json!({"ip": ip, "ipMode": dice.pick(&["VIP", "VIP", "Proxy"])}))
        .collect();
    if dice.once_in(6) {
        ingress.push(json!({"hostname": "lb.example"}));
    }
    if dice.once_in(12) {
        ingress.push(json!({}));
    }
    if let Some(first) = ingress.first_mut().filter(|_| dice.once_in(8)) {
        let port = json!({"port": 80, "protocol": "TCP", "error": "example.com/MixedProtocol"});
        first["ports"] = json!([port]);
    }
    json!({"loadBalancer": {"ingress": ingress}})
}

/// Adds hundreds of ports to a Service.
pub(super) fn grow(service: &mut Value, dice: &mut Dice) {
    let kind = text(service, "/spec/type");
    let protocols = ["TCP", "UDP"];
    if matches!(kind, "NodePort" | "LoadBalancer") {
        service["spec"]["type"] = json!("ClusterIP");
        let fields = [
            "allocateLoadBalancerNodePorts",
            "loadBalancerSourceRanges",
            "loadBalancerClass",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "externalIPs",
        ];
        for field in fields {
            remove(service, "/spec", field);
        }
    }
    let ports = (0..300).map(|number| {
        let protocol = dice.pick(&protocols);
        json!({
            "name": format!("p-{number}"), "protocol": protocol, "port": number + 1,
            "targetPort": "http",
        })
    });
    service["spec"]["ports"] = ports.collect();
}
