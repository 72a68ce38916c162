//! Allocated cluster IPs and node ports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};
use vipline_service_model::Kind;

use crate::Id;
use crate::defaults::needs_node_ports;
use crate::json::{list, number, text, texts};
use crate::validation::Strictness;
use crate::validation::text::address;

/// Networks of the default ServiceCIDR.
const RANGES: [&str; 2] = ["10.96.0.0/12", "fd00:10:96::/108"];

/// Range of node ports.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Cluster IPs and node ports of the Services of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    addresses: BTreeMap<IpAddr, Id>,
    node_ports: BTreeMap<i64, Id>,
    /// Networks for cluster IPs.
    ranges: Vec<IpNet>,
}

impl Allocation {
    /// Collects the addresses and ports of all Services except one.
    pub(crate) fn of_others<'a>(
        id: &Id,
        objects: impl Iterator<Item = (&'a Id, &'a Value)>,
    ) -> Self {
        let mut allocation = Self::default();
        let of_cluster = RANGES
            .iter()
            .filter_map(|range| range.parse::<IpNet>().ok());
        allocation.ranges.extend(of_cluster);
        for (other, object) in objects.filter(|(other, _)| *other != id) {
            let ranges = texts(object, "/spec/cidrs").into_iter();
            allocation
                .ranges
                .extend(ranges.filter_map(|range| range.parse::<IpNet>().ok()));
            if other.kind != Kind::Service {
                continue;
            }
            for address in addresses(object) {
                allocation.addresses.insert(address, other.clone());
            }
            for port in node_ports(object) {
                allocation.node_ports.insert(port, other.clone());
            }
        }
        allocation
    }

    /// Returns the conflicts of a Service's addresses and ports.
    pub(crate) fn violations(&self, service: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for address in addresses(service) {
            if !self.is_in_range(address) {
                found.push(format!("spec.clusterIPs: {address} is out of range"));
            }
            if let Some(owner) = self.addresses.get(&address) {
                found.push(format!("spec.clusterIPs: {address} is of {}", owner.name));
            }
        }
        for port in node_ports(service) {
            if !NODE_PORTS.contains(&port) {
                found.push(format!("nodePort: {port} is out of range"));
            }
            if let Some(owner) = self.node_ports.get(&port) {
                found.push(format!("nodePort: {port} is of {}", owner.name));
            }
        }
        let check = health_check(service);
        let ports = list(service, "/spec/ports").iter();
        if check != 0
            && ports
                .map(|port| number(port, "/nodePort"))
                .any(|port| port == check)
        {
            found.push(format!("healthCheckNodePort: {check} is a node port"));
        }
        found
    }

    /// Checks whether an address can be allocated: not the first address of a network, and
    /// not the last address of an IPv4 network.
    fn is_in_range(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| {
            let is_last = address.is_ipv4() && address == range.broadcast();
            range.contains(&address) && address != range.network() && !is_last
        })
    }

    /// Checks whether an address is free.
    pub(crate) fn is_free_address(&self, text: &str) -> bool {
        address(text, Strictness::Legacy)
            .is_some_and(|address| !self.addresses.contains_key(&address.to_canonical()))
    }

    /// Checks whether a node port is free.
    pub(crate) fn is_free_port(&self, port: i64) -> bool {
        !self.node_ports.contains_key(&port)
    }

    /// Allocates the node ports that a Service needs and does not specify.
    pub(crate) fn complete(&self, service: &mut Value) {
        let mut used = node_ports(service);
        let mut next = || {
            let is_free = |port: &i64| self.is_free_port(*port) && !used.contains(port);
            let port = NODE_PORTS.rev().find(is_free).unwrap_or_default();
            used.push(port);
            port
        };
        let allocates = needs_node_ports(service);
        for index in 0..list(service, "/spec/ports").len() {
            let pointer = format!("/spec/ports/{index}/nodePort");
            if allocates && number(service, &pointer) == 0 {
                service["spec"]["ports"][index]["nodePort"] = json!(next());
            }
        }
        let is_asked = text(service, "/spec/type") == "LoadBalancer"
            && text(service, "/spec/externalTrafficPolicy") == "Local";
        if is_asked && number(service, "/spec/healthCheckNodePort") == 0 {
            service["spec"]["healthCheckNodePort"] = json!(next());
        }
    }
}

/// Returns the cluster IPs of a Service.
fn addresses(service: &Value) -> Vec<IpAddr> {
    let addresses = texts(service, "/spec/clusterIPs").into_iter();
    addresses
        .filter_map(|text| address(text, Strictness::Legacy))
        .map(|address| address.to_canonical())
        .collect()
}

/// Returns the node ports of a Service, including the health check node port. Ports of
/// different protocols may share a number.
fn node_ports(service: &Value) -> Vec<i64> {
    let mut ports = vec![health_check(service)];
    if matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer") {
        let own = list(service, "/spec/ports").iter();
        ports.extend(own.map(|port| number(port, "/nodePort")));
    }
    ports.retain(|port| *port != 0);
    ports
}

fn health_check(service: &Value) -> i64 {
    number(service, "/spec/healthCheckNodePort")
}
