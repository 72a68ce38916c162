//! API objects of the tests, as JSON.

use std::net::IpAddr;

use serde_json::{Value, json};
use testkit::lab::Lab;
use testkit::traffic::{Probe, Protocol};

/// Addresses of the Service `web`, which never changes.
const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
/// Address of the Service `rolling`, whose endpoints are replaced.
const ROLLING: &str = "10.96.0.20";
/// Ports of both Services: protocol, port, node port, target port.
pub(crate) const PORTS: [(Protocol, u16, u16, u16); 2] = [
    (Protocol::Tcp, 80, 30080, 8080),
    (Protocol::Udp, 53, 30053, 5353),
];

/// An endpoint of `rolling`. Each generation has its own port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation(pub(crate) usize);

/// A short-lived Service with an address of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortLived(pub(crate) usize);

impl Generation {
    pub(crate) fn backend(self) -> usize {
        self.0 % 3
    }

    pub(crate) fn port(self) -> u16 {
        u16::try_from(20_000 + self.0).unwrap()
    }

    /// Returns the name of the EndpointSlice.
    pub(crate) fn name(self) -> String {
        format!("rolling-{}", self.0)
    }

    pub(crate) fn slice(self, lab: &Lab) -> Value {
        let address = lab.backends[self.backend()].v4.into();
        let ports = PORTS.map(|(protocol, ..)| (protocol, self.port()));
        slice("rolling", &self.name(), &ports, &[address])
    }

    /// Returns address and port in nft syntax.
    pub(crate) fn key(self, lab: &Lab) -> String {
        let address = lab.backends[self.backend()].v4;
        format!("{address} . {}", self.port())
    }
}

impl ShortLived {
    pub(crate) fn name(self) -> String {
        format!("short-lived-{}", self.0)
    }

    pub(crate) fn address(self) -> String {
        format!("10.97.{}.{}", self.0 / 250, 1 + self.0 % 250)
    }

    pub(crate) fn objects(self, lab: &Lab) -> [Value; 2] {
        let (name, address) = (self.name(), self.address());
        let ports = [(Protocol::Tcp, 80, None)];
        [
            service(&name, &[&address], &ports),
            slice(
                &name,
                &name,
                &[(Protocol::Tcp, 8080)],
                &[lab.backends[0].v4.into()],
            ),
        ]
    }
}

/// Returns the Node object of the proxy's node.
pub(crate) fn node(lab: &Lab) -> Value {
    let addresses = lab
        .node
        .addresses()
        .map(|address| json!({"type": "InternalIP", "address": address}));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "status": {"addresses": addresses},
    })
}

/// Returns `web` with endpoints on all backends in both families.
pub(crate) fn web(lab: &Lab) -> Vec<Value> {
    let targets = PORTS.map(|(protocol, _, _, target)| (protocol, target));
    let slices = [0, 1].map(|family| {
        let backends = lab.backends.iter();
        let addresses: Vec<_> = backends.map(|host| host.addresses()[family]).collect();
        slice("web", &format!("web-{family}"), &targets, &addresses)
    });
    let ports = PORTS.map(|(protocol, port, node_port, _)| (protocol, port, Some(node_port)));
    [service("web", &WEB, &ports)]
        .into_iter()
        .chain(slices)
        .collect()
}

/// Returns the Service `rolling` without endpoints.
pub(crate) fn rolling() -> Value {
    let ports = PORTS.map(|(protocol, port, ..)| (protocol, port, None));
    service("rolling", &[ROLLING], &ports)
}

/// Returns requests to the cluster IPs and node ports of `web`, in all protocols and families.
pub(crate) fn web_probes(lab: &Lab) -> impl Iterator<Item = Probe> {
    let node = lab.node.addresses();
    PORTS
        .into_iter()
        .flat_map(move |(protocol, port, node_port, _)| {
            let services = WEB.map(|address| (address.parse().unwrap(), port));
            let nodes = node.map(|address| (address, node_port));
            let targets = services.into_iter().chain(nodes);
            targets.map(move |target: (IpAddr, u16)| Probe::new(protocol, target.into()))
        })
}

/// Returns requests to `rolling` in both protocols.
pub(crate) fn rolling_probes() -> impl Iterator<Item = Probe> {
    let address: IpAddr = ROLLING.parse().unwrap();
    PORTS.iter().map(move |&(protocol, port, ..)| {
        Probe::new(protocol, (address, port).into()).retransmitting()
    })
}

pub(crate) fn service(
    name: &str,
    addresses: &[&str],
    ports: &[(Protocol, u16, Option<u16>)],
) -> Value {
    let kind = match ports.iter().any(|port| port.2.is_some()) {
        true => "NodePort",
        false => "ClusterIP",
    };
    let ports = ports.iter().map(|(protocol, port, node_port)| {
        let name = protocol.to_string();
        let protocol = name.to_uppercase();
        json!({"name": name, "protocol": protocol, "port": port, "nodePort": node_port})
    });
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": kind,
            "clusterIP": addresses[0],
            "clusterIPs": addresses,
            "ports": ports.collect::<Vec<_>>(),
        },
    })
}

pub(crate) fn slice(
    service: &str,
    name: &str,
    ports: &[(Protocol, u16)],
    addresses: &[IpAddr],
) -> Value {
    let is_v6 = addresses.iter().any(IpAddr::is_ipv6);
    let ports = ports.iter().map(|(protocol, port)| {
        let name = protocol.to_string();
        let protocol = name.to_uppercase();
        json!({"name": name, "protocol": protocol, "port": port})
    });
    let endpoints = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}));
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "ports": ports.collect::<Vec<_>>(),
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}
