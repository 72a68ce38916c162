//! Random clusters: hostile objects that an API server admits, and a configuration.

use proxy_core::{Config, Event, Mark};
use serde_json::{Value, from_value, json};
use testworld::generate::{self, pool};
use testworld::validation::Strictness;
use testworld::{Cluster, Id, Proposal};
use vipline_service_model::arbitrary::{Dice, NODE};
use vipline_service_model::ipnet::IpNet;
use vipline_service_model::{DetectLocal, ExternalIps, Kind, NodePortAddresses, api};

use crate::flow::{self, Targets};
use crate::node::{Node, PODS};

/// Number of changes that lead to a cluster.
const STEPS: u8 = 40;

/// Number of changes after which only those of a status are applied: addresses of load
/// balancers and nodes.
const STATUSES: u8 = 80;

/// Objects of a cluster, a node and a configuration.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The objects as JSON.
    pub(crate) objects: Vec<(Kind, Value)>,
    pub(crate) services: Vec<api::Service>,
    pub(crate) slices: Vec<api::EndpointSlice>,
    pub(crate) cidrs: Vec<api::ServiceCidr>,
    /// The Node object of the proxy's node, if any.
    pub(crate) node_object: Option<api::Node>,
    pub(crate) node: Node,
    pub(crate) config: Config,
    pub(crate) targets: Targets,
}

impl World {
    /// Chooses a world.
    pub(crate) fn random(dice: &mut Dice) -> Self {
        let strictness = match dice.once_in(4) {
            true => Strictness::Legacy,
            false => Strictness::Strict,
        };
        let mut cluster = Cluster::new(strictness);
        for _ in 0..STEPS {
            generate::step(&mut cluster, dice);
        }
        for _ in 0..STATUSES {
            let proposal = generate::proposal(&cluster, dice);
            if matches!(proposal, Proposal::UpdateStatus(..)) {
                // A rejected proposal changes nothing.
                drop(cluster.admit(proposal));
            }
        }
        let others = cluster
            .objects()
            .filter(|(id, _)| id.kind != Kind::ServiceCidr);
        let others = others.map(|(id, object)| (id.kind, object.clone()));
        let mut objects: Vec<_> = others.chain(service_cidrs(dice)).collect();
        let slices = cluster.objects().filter(|_| dice.roll(4) > 0);
        let slices: Vec<_> = slices
            .filter_map(|(id, object)| served(id, object))
            .collect();
        objects.extend(
            slices
                .into_iter()
                .flat_map(|(id, ports)| slices_of(id, &ports, dice)),
        );
        let is_restricted = dice.once_in(4);
        if is_restricted {
            restrict(&mut objects, dice);
        }
        let has_claimed = is_restricted || dice.once_in(2);
        Self::new(objects, Node::new(has_claimed), config(dice))
    }

    /// Creates a world. Objects that the proxy cannot read are left out.
    pub(crate) fn new(objects: Vec<(Kind, Value)>, node: Node, config: Config) -> Self {
        let services: Vec<api::Service> = read(&objects, Kind::Service, from_value);
        let nodes = read(&objects, Kind::Node, from_value).into_iter();
        let mut own = nodes.filter(|node: &api::Node| node.metadata.name == NODE);
        Self {
            targets: flow::targets(&services, &node),
            services,
            slices: read(&objects, Kind::EndpointSlice, from_value),
            cidrs: read(&objects, Kind::ServiceCidr, from_value),
            node_object: own.next(),
            objects,
            node,
            config,
        }
    }

    /// Returns the events that apply all objects.
    pub(crate) fn events(&self) -> Vec<Event> {
        let services = self.services.iter().cloned().map(Event::from);
        let slices = self.slices.iter().cloned().map(Event::from);
        let cidrs = self.cidrs.iter().cloned().map(Event::from);
        let node = self.node_object.iter().cloned().map(Event::from);
        let events = services.chain(slices).chain(cidrs).chain(node);
        events.chain([Event::Synced]).collect()
    }
}

/// Gives a Service a load balancer IP that the node owns, and source ranges with the primary
/// address of the node, or with the load balancer IP only.
fn restrict(objects: &mut Vec<(Kind, Value)>, dice: &mut Dice) {
    objects.retain(|(kind, object)| *kind != Kind::Node || object["metadata"]["name"] != NODE);
    let addresses = ["192.168.55.4", "fd00:55::4"];
    let addresses = addresses.map(|ip| json!({"type": "InternalIP", "address": ip}));
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {},
        "status": {"addresses": addresses},
    });
    objects.push((Kind::Node, node));
    let is_balanced = |(kind, object): &&mut (Kind, Value)| {
        *kind == Kind::Service && object["spec"]["type"] == "LoadBalancer"
    };
    let of_node = ["192.168.55.0/29", "fd00:55::/125", "10.0.0.0/9"];
    let of_balancer = ["203.0.113.0/29", "2001:db8::/125", "10.0.0.0/9"];
    if let Some((_, service)) = objects.iter_mut().find(is_balanced) {
        let ips = ["203.0.113.1", "2001:db8::1", "203.0.113.9"];
        let ingress = ips.map(|ip| json!({"ip": ip}));
        service["status"]["loadBalancer"]["ingress"] = json!(ingress);
        let choice = usize::from(dice.roll(8));
        let ranges = if choice < 6 { of_node } else { of_balancer };
        let count = 2 + choice % 2;
        service["spec"]["loadBalancerSourceRanges"] = json!(ranges[..count]);
    }
}

/// Returns the ports of a Service as those of a slice.
fn served<'a>(id: &'a Id, object: &Value) -> Option<(&'a Id, Vec<Value>)> {
    let ports = object.pointer("/spec/ports")?.as_array()?;
    let port = |port: &Value| {
        json!({
            "name": port["name"].as_str().unwrap_or_default(),
            "protocol": port["protocol"],
            "port": 8080,
        })
    };
    (id.kind == Kind::Service).then(|| (id, ports.iter().map(port).collect()))
}

/// Chooses a slice of each family with endpoints of pods, for a Service.
fn slices_of(id: &Id, ports: &[Value], dice: &mut Dice) -> Vec<(Kind, Value)> {
    let pods = [&pool::PODS_V4[..], &pool::PODS_V6[..]];
    let families = ["v4", "v6"].into_iter().zip(pods);
    let is_leaving = dice.once_in(4);
    let is_hinted = dice.once_in(4);
    let slice = |(family, pods): (&str, &[&str])| {
        let count = dice.pick(&[1, 2, 3, 3, pods.len()]).min(pods.len());
        let skipped = usize::from(dice.roll(5));
        let mut endpoint = |pod: &&str| {
            let conditions = match (is_leaving, dice.roll(6)) {
                (true, 0..5) => json!({"ready": false, "serving": true, "terminating": true}),
                (_, 0) => json!({"ready": false, "serving": false}),
                _ => json!({}),
            };
            let is_local = pod.contains("244.1") || pod.contains("244:1");
            let node = if is_local { NODE } else { "node-2.example" };
            let mut endpoint =
                json!({"addresses": [pod], "conditions": conditions, "nodeName": node});
            if is_hinted {
                let zone = dice.pick(&["a", "b"]);
                endpoint["hints"] = json!({"forZones": [{"name": zone}]});
                if dice.roll(4) > 0 {
                    endpoint["hints"]["forNodes"] = json!([{"name": node}]);
                }
            }
            endpoint
        };
        let chosen = pods.iter().skip(skipped).take(count);
        let endpoints: Vec<_> = chosen.map(&mut endpoint).collect();
        let metadata = json!({
            "name": format!("{}-of-{family}", id.name),
            "namespace": id.namespace,
            "labels": {"kubernetes.io/service-name": id.name},
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": format!("IP{family}"),
            "endpoints": endpoints,
            "ports": ports,
        });
        (Kind::EndpointSlice, slice)
    };
    families.map(slice).collect()
}

/// Chooses ServiceCIDRs. Networks of other addresses than cluster IPs would drop all
/// traffic.
fn service_cidrs(dice: &mut Dice) -> Vec<(Kind, Value)> {
    let lists: [&[&[&str]]; 5] = [
        &[&["10.96.0.0/12", "fd00:10:96::/108"]],
        &[&["10.96.0.0/12", "fd00:10:96::/108"]],
        &[
            &["10.96.0.0/16"],
            &["10.97.0.0/16", "10.100.0.0/15", "fd00:10:96::/112"],
        ],
        &[&["10.96.0.0/24"]],
        &[],
    ];
    let cidrs = dice.pick(&lists).iter().enumerate();
    let object = |(number, networks)| {
        let cidr = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": format!("services-{number}")},
            "spec": {"cidrs": networks},
        });
        (Kind::ServiceCidr, cidr)
    };
    cidrs.map(object).collect()
}

/// Reads the objects of a kind.
fn read<T>(
    objects: &[(Kind, Value)],
    kind: Kind,
    decode: fn(Value) -> serde_json::Result<T>,
) -> Vec<T> {
    let of_kind = objects.iter().filter(|(of, _)| *of == kind);
    of_kind
        .filter_map(|(_, object)| decode(object.clone()).ok())
        .collect()
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    let texts = texts.iter();
    texts.map(|text| text.parse().expect("a network")).collect()
}

/// Chooses a configuration.
fn config(dice: &mut Dice) -> Config {
    let pods = ["10.244.0.0/16", "fd00:244::/32"];
    let detect_local = match dice.roll(8) {
        0..3 => DetectLocal::ClusterCidr(networks(&pods)),
        3 => DetectLocal::ClusterCidr(Vec::new()),
        4 => DetectLocal::ClusterCidr(networks(&["fd00:244::/32", "0.0.0.0/0"])),
        5 => DetectLocal::NodeCidr,
        6 => DetectLocal::Interface(PODS.into()),
        _ => DetectLocal::InterfacePrefix("cn".into()),
    };
    let node_port_addresses = match dice.roll(8) {
        0..3 => NodePortAddresses::All,
        3..5 => NodePortAddresses::Primary,
        5 => NodePortAddresses::Within(networks(&["203.0.113.0/24", "fd00:55::/64"])),
        6 => NodePortAddresses::Within(networks(&["127.0.0.0/8", "10.0.0.0/8", "::1/128"])),
        _ => NodePortAddresses::Within(networks(&["192.168.55.0/24"])),
    };
    let mut config = Config::new(NODE)
        .with_detect_local(detect_local)
        .with_node_port_addresses(node_port_addresses)
        .with_masquerade_all(dice.once_in(6))
        .with_masquerade_mark(Mark::from_bit(dice.pick(&[14, 0, 31])).expect("a bit"));
    if dice.once_in(12) {
        config = config.with_external_ips(ExternalIps::Ignore);
    }
    config.iptables.localhost_node_ports = !dice.once_in(3);
    config
}
