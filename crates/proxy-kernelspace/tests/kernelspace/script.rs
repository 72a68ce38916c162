//! Runs a case: commands, and the expected state and calls of HNS after each sync.

use proxy_engine::{Event, Family};
use proxy_kernelspace::Settings;
use serde_json::{Value, json};
use vipline_hcn::{Call, Endpoint, HResult, Id, LoadBalancer, Memory, Version};
use vipline_service_model::{ObjectName, api};

use crate::node::{NODE, Node, SharedHns, l2bridge, overlay, settings};

/// Runs the lines of a case. Returns the difference to the expectations, or nothing.
pub(crate) fn run(lines: &[&str]) -> String {
    let mut lines = lines.iter().peekable();
    let mut case = Case::new(lines.next().expect("a case starts with its node"));
    let mut difference = String::new();
    while let Some(line) = lines.next() {
        case.execute(line);
        if *line != "sync" {
            continue;
        }
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
            expected.push(line.trim());
        }
        let found = case.sync();
        let found: Vec<_> = found.iter().map(String::as_str).collect();
        let missing = expected.iter().filter(|line| !found.contains(line));
        difference.extend(missing.map(|line| format!("missing: {line}\n")));
        let surplus = found.iter().filter(|line| !expected.contains(line));
        difference.extend(surplus.map(|line| format!("surplus: {line}\n")));
    }
    difference
}

/// The node of a case.
struct Case {
    node: Node,
    hns: SharedHns,
    settings: Settings,
    families: Vec<Family>,
}

impl Case {
    /// Creates a node: `node overlay dsr modify ipv6`.
    fn new(line: &str) -> Self {
        let has = |word| line.split(' ').any(|it| it == word);
        let network = if has("overlay") {
            overlay()
        } else {
            l2bridge()
        };
        // Version 11.10 has the features of upstream's test double.
        let version = match (has("modify"), has("old")) {
            (true, _) => Version::new(15, 4),
            (_, true) => Version::new(9, 2),
            _ => Version::new(11, 10),
        };
        let hns = SharedHns::new(version, &network);
        let mut settings = settings(&network, version);
        settings.enable_dsr = has("dsr");
        let families = match has("ipv6") {
            true => vec![Family::V4, Family::V6],
            false => vec![Family::V4],
        };
        let node = Node::new(&hns, &families, &settings);
        Self {
            node,
            hns,
            settings,
            families,
        }
    }

    /// Executes a command.
    fn execute(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (command, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let words: Vec<_> = words.collect();
        match command {
            "sync" => {}
            "local" => self.hns.create_endpoint(&local(name)),
            "remote" => {
                let mut endpoint = local(name);
                endpoint.flags = vipline_hcn::EndpointFlags::REMOTE;
                endpoint.mac_address = words.concat();
                self.hns.create_endpoint(&endpoint);
            }
            "gateway" => {
                self.settings = self.settings.clone().with_gateway(&local(name));
                self.hns.create_endpoint(&local(name));
                self.restart();
            }
            "restart" => self.restart(),
            "gone" => self.hns.delete_endpoint(name.parse().expect("an address")),
            "fail" => self.hns.get().reject(call(name), HResult::E_FAIL),
            "service" => self.apply(service(name, &words)),
            "slice" => self.apply(slice(name, &words)),
            "delete-service" => self.apply(Event::ServiceDeleted(ObjectName::new("ns1", name))),
            "delete-slice" => self.apply(Event::SliceDeleted(ObjectName::new("ns1", name))),
            other => panic!("no command {other:?}"),
        }
    }

    fn apply(&mut self, event: Event) {
        let warnings = self.node.engine.apply(event);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    /// Starts another engine without objects.
    fn restart(&mut self) {
        self.node = Node::new(&self.hns, &self.families, &self.settings);
    }

    /// Syncs, and returns the calls and the state of HNS.
    fn sync(&mut self) -> Vec<String> {
        self.node.sync();
        let mut memory = self.hns.get();
        let calls = memory.take_calls();
        let mut found = Vec::new();
        let mut kinds = calls.clone();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let count = calls.iter().filter(|it| **it == kind).count();
            found.push(format!("call {kind:?} {count}"));
        }
        found.extend(memory.all_endpoints().map(endpoint_line));
        found.extend(
            memory
                .all_load_balancers()
                .map(|it| load_balancer_line(&memory, it)),
        );
        found
    }
}

fn call(name: &str) -> Call {
    match name {
        "CreateEndpoint" => Call::CreateEndpoint,
        "DeleteEndpoint" => Call::DeleteEndpoint,
        "CreateLoadBalancer" => Call::CreateLoadBalancer,
        "DeleteLoadBalancer" => Call::DeleteLoadBalancer,
        "ModifyLoadBalancer" => Call::ModifyLoadBalancer,
        other => panic!("no call {other}"),
    }
}

/// Returns an endpoint with addresses that are separated by commas.
fn local(addresses: &str) -> Endpoint {
    let mut addresses = addresses
        .split(',')
        .map(|it| it.parse().expect("an address"));
    let mut endpoint = Endpoint::local(addresses.next().expect("an address"));
    for address in addresses {
        endpoint
            .ip_configurations
            .push(vipline_hcn::IpConfig::new(address));
    }
    endpoint
}

/// Returns a Service: `10.20.30.41 type=NodePort node-port=3001`.
pub(crate) fn service(name: &str, words: &[&str]) -> Event {
    let value = |key: &str| {
        let mut words = words.iter().filter_map(|word| word.split_once('='));
        words.find_map(|(found, value)| (found == key).then_some(value))
    };
    let list = |key| value(key).map_or(Vec::new(), |it: &str| it.split(',').collect());
    let number = |key| value(key).map_or(0, |it: &str| it.parse::<u16>().expect("a number"));
    let cluster_ips = list("cluster");
    let ingress: Vec<Value> = list("ingress").iter().map(|ip| json!({"ip": ip})).collect();
    let annotations: serde_json::Map<_, _> = words
        .contains(&"preserve")
        .then(|| ("preserve-destination".to_owned(), json!("true")))
        .into_iter()
        .collect();
    let manifest = json!({
        "metadata": {"namespace": "ns1", "name": name, "annotations": annotations},
        "spec": {
            "type": value("type").unwrap_or("ClusterIP"),
            "clusterIP": cluster_ips[0],
            "clusterIPs": cluster_ips,
            "ipFamilyPolicy": value("families"),
            "externalIPs": list("external"),
            "externalTrafficPolicy": value("etp").unwrap_or("Cluster"),
            "internalTrafficPolicy": value("itp").unwrap_or("Cluster"),
            "sessionAffinity": if words.contains(&"affinity") { "ClientIP" } else { "None" },
            "healthCheckNodePort": number("health"),
            "ports": [{
                "name": "p80",
                "port": number("port").max(1),
                "protocol": value("protocol").unwrap_or("TCP"),
                "nodePort": number("node-port"),
            }],
        },
        "status": {"loadBalancer": {"ingress": ingress}},
    });
    let service: api::Service = serde_json::from_value(manifest).expect("a Service");
    Event::from(service)
}

/// Returns a slice: `service=svc1 port=80 192.168.2.3 192.168.4.4@here 192.168.2.4:terminating`.
pub(crate) fn slice(name: &str, words: &[&str]) -> Event {
    let (keys, endpoints): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.contains('='));
    let value = |key: &str| {
        let mut words = keys.iter().filter_map(|word| word.split_once('='));
        words.find_map(|(found, value)| (found == key).then_some(value))
    };
    let endpoint = |word: &&str| {
        let (address, place) = word.split_once('@').unwrap_or((word, "elsewhere"));
        let (place, state) = place.split_once('/').unwrap_or((place, "ready"));
        let (ready, serving, terminating) = match state {
            "ready" => (true, true, false),
            "terminating" => (false, true, true),
            "unready" => (false, false, false),
            "gone" => (false, false, true),
            other => panic!("no state {other}"),
        };
        json!({
            "addresses": [address],
            "nodeName": if place == "here" { NODE } else { place },
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        })
    };
    let manifest = json!({
        "metadata": {
            "namespace": "ns1",
            "name": name,
            "labels": {"kubernetes.io/service-name": value("service").unwrap_or(name)},
        },
        "addressType": value("type").unwrap_or("IPv4"),
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{
            "name": "p80",
            "port": value("port").map_or(80, |it| it.parse().expect("a number")),
            "protocol": value("protocol").unwrap_or("TCP"),
        }],
    });
    let slice: api::EndpointSlice = serde_json::from_value(manifest).expect("a slice");
    Event::from(slice)
}

/// Returns an endpoint as text.
fn endpoint_line(endpoint: &Endpoint) -> String {
    let place = if endpoint.is_remote() {
        "remote"
    } else {
        "local"
    };
    let mac = &endpoint.mac_address;
    let json = serde_json::to_value(endpoint).expect("a document has JSON");
    let provider = &json["Policies"][0]["Settings"]["ProviderAddress"];
    let provider = provider
        .as_str()
        .map_or(String::new(), |it| format!(" provider {it}"));
    let mac = if mac.is_empty() {
        String::new()
    } else {
        format!(" {mac}")
    };
    format!("{place} {}{mac}{provider}", addresses(endpoint))
}

fn addresses(endpoint: &Endpoint) -> String {
    let addresses: Vec<_> = endpoint.addresses().map(|it| it.to_string()).collect();
    addresses.join(",")
}

/// Returns a load balancer as text, with the numbers of its flags.
fn load_balancer_line(memory: &Memory, of: &LoadBalancer) -> String {
    let mapping = &of.port_mappings[0];
    let frontend = of.frontend_vips.first().map_or("*", String::as_str);
    let address = |id: &Id| {
        let endpoint = memory.all_endpoints().find(|it| it.id == *id);
        let endpoint = endpoint.expect("a load balancer has endpoints that exist");
        let place = if endpoint.is_remote() { "" } else { "@here" };
        format!("{}{place}", addresses(endpoint))
    };
    let mut endpoints: Vec<_> = of.endpoints.iter().map(address).collect();
    endpoints.sort_unstable();
    let mut line = format!(
        "lb {frontend} {}>{} proto {} to {}",
        mapping.external_port,
        mapping.internal_port,
        mapping.protocol.0,
        endpoints.join(" "),
    );
    for (name, value) in [
        ("source", of.source_vip.clone()),
        ("flags", of.flags.bits().to_string()),
        ("port-flags", mapping.flags.bits().to_string()),
        ("distribution", mapping.distribution.0.to_string()),
    ] {
        if !value.is_empty() && value != "0" {
            line += &format!(" {name} {value}");
        }
    }
    line
}
