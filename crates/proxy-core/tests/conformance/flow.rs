//! Packets: the first of a connection, from every kind of source to every kind of
//! destination.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use vipline_evaluate::Packet;
use vipline_service_model::arbitrary::Dice;
use vipline_service_model::{Transport, api};

use crate::node::{Node, PODS, UPLINK};
use crate::oracle::frontend::protocol;
use crate::world::World;

/// Source port of all packets.
pub(crate) const SOURCE_PORT: u16 = 40_000;

/// Pods on the node, by family. The last pod of a family is never an endpoint.
const LOCAL_PODS: [[&str; 4]; 2] = [
    ["10.244.1.5", "10.244.1.6", "10.244.1.7", "10.244.1.9"],
    [
        "fd00:244:1::5",
        "fd00:244:1::6",
        "fd00:244:1::5",
        "fd00:244:1::9",
    ],
];
/// Pods on other nodes.
const REMOTE_PODS: [[&str; 4]; 2] = [
    ["10.244.2.5", "10.244.2.6", "10.244.2.7", "10.244.2.9"],
    [
        "fd00:244:2::5",
        "fd00:244:2::6",
        "fd00:244:2::5",
        "fd00:244:2::9",
    ],
];

/// Hosts outside of the cluster. Some are within networks of source ranges.
const CLIENTS: [[&str; 4]; 2] = [
    ["198.51.100.7", "10.0.0.9", "10.200.0.9", "192.168.55.9"],
    ["2001:db8:7::7", "2001:db8::9", "fd00:9::9", "fd00:55::9"],
];

/// Cluster IPs that no Service of the pools has.
const UNALLOCATED: [[&str; 2]; 2] = [
    ["10.96.0.99", "10.110.0.9"],
    ["fd00:10:96::99", "fd00:9::7"],
];

/// Destinations without any relation to Services.
const ELSEWHERE: [[&str; 2]; 2] = [
    ["198.51.100.8", "10.244.2.9"],
    ["2001:db8:8::8", "fd00:244:2::9"],
];

/// The first packet of a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Flow {
    pub(crate) protocol: Transport,
    pub(crate) source: IpAddr,
    pub(crate) destination: SocketAddr,
    /// The interface that receives the packet. `None`: a process of the node sends it.
    pub(crate) input: Option<&'static str>,
}

impl Flow {
    /// Chooses a packet of a world, mostly to an address of a Service.
    pub(crate) fn random(world: &World, dice: &mut Dice) -> Self {
        let (destination, protocol) = destination(world, dice);
        let (source, input) = source(&world.node, destination.ip(), dice);
        Self {
            protocol,
            source,
            destination,
            input,
        }
    }

    /// Returns whether a process of the node sends the packet.
    pub(crate) fn is_from_node(&self) -> bool {
        self.input.is_none()
    }

    /// Returns the same packet to another destination.
    pub(crate) fn to(&self, destination: SocketAddr) -> Self {
        Self {
            destination,
            ..self.clone()
        }
    }

    /// Returns the packet for an evaluator.
    pub(crate) fn packet(&self) -> Packet {
        let source = SocketAddr::new(self.source, SOURCE_PORT);
        let packet = match self.protocol {
            Transport::Tcp => Packet::tcp(source, self.destination),
            Transport::Udp => Packet::udp(source, self.destination),
            Transport::Sctp => {
                Packet::with_protocol(self.protocol.number(), source, self.destination)
            }
        };
        match self.input {
            Some(input) => packet.with_input(input),
            None => packet,
        }
    }
}

/// Displays the arguments of `kube-proxy explain`.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.to_string().to_lowercase();
        let Self {
            source,
            destination,
            ..
        } = self;
        write!(f, "{protocol} {destination} --from {source}")
    }
}

fn parse(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Chooses a destination: an address and port of a Service, or one with a difference.
fn destination(world: &World, dice: &mut Dice) -> (SocketAddr, Transport) {
    let protocols = [Transport::Tcp, Transport::Udp, Transport::Sctp];
    let family = usize::from(dice.once_in(3));
    let kinds = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4];
    let mut targets = &world.targets[dice.pick(&kinds)];
    if targets.is_empty() {
        targets = &world.targets[0];
    }
    if targets.is_empty() || dice.once_in(32) {
        let (ip, port) = match dice.roll(3) {
            0 => (dice.pick(&ELSEWHERE[family]), 80),
            1 => (dice.pick(&UNALLOCATED[family]), 80),
            _ => (dice.pick(&LOCAL_PODS[family]), 8080),
        };
        return (SocketAddr::new(parse(ip), port), dice.pick(&protocols));
    }
    let (mut target, mut protocol) = targets[below(dice, targets.len())];
    match dice.roll(24) {
        0 => target.set_port(dice.pick(&[81, 8080, 443, 30_001])),
        1 => protocol = dice.pick(&protocols),
        2 => target.set_ip(parse(
            dice.pick(&UNALLOCATED[usize::from(target.is_ipv6())]),
        )),
        _ => {}
    }
    (target, protocol)
}

fn below(dice: &mut Dice, bound: usize) -> usize {
    let (high, low) = (dice.roll(u8::MAX), dice.roll(u8::MAX));
    (usize::from(high) * 255 + usize::from(low)) % bound
}

/// Chooses a source and the interface that receives its packets.
fn source(node: &Node, to: IpAddr, dice: &mut Dice) -> (IpAddr, Option<&'static str>) {
    let family = usize::from(to.is_ipv6());
    if to.is_loopback() {
        return (to, None);
    }
    match dice.roll(10) {
        0..3 => (parse(dice.pick(&LOCAL_PODS[family])), Some(PODS)),
        3..5 => (parse(dice.pick(&REMOTE_PODS[family])), Some(UPLINK)),
        5..8 => (parse(dice.pick(&CLIENTS[family])), Some(UPLINK)),
        8 => (node.source_for(to), None),
        _ => {
            let own = node.addresses().into_iter();
            let own = own.filter(|ip| ip.is_ipv6() == to.is_ipv6() && !ip.is_loopback());
            (dice.pick(&own.collect::<Vec<_>>()), None)
        }
    }
}

/// Addresses and ports of Services: cluster IPs, load balancer IPs, external IPs, node
/// ports at addresses of the node, node ports at loopback addresses.
pub(crate) type Targets = [Vec<(SocketAddr, Transport)>; 5];

/// Returns the addresses and ports of Services.
pub(crate) fn targets(services: &[api::Service], node: &Node) -> Targets {
    let mut targets = Targets::default();
    let is_usable = |ip: &IpAddr| !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified();
    let (loopback, own): (Vec<_>, Vec<_>) =
        (node.addresses().into_iter()).partition(IpAddr::is_loopback);
    for service in services {
        let spec = &service.spec;
        let parsed = |texts: &[String]| -> Vec<IpAddr> {
            let ips = texts.iter().filter_map(|text| text.parse().ok());
            ips.filter(is_usable).map(|ip| ip.to_canonical()).collect()
        };
        let ingress = service.status.load_balancer.ingress.iter();
        let ingress: Vec<_> = ingress.map(|each| each.ip.clone()).collect();
        let lists = [&spec.cluster_ips, &ingress, &spec.external_ips].map(|texts| parsed(texts));
        for port in &spec.ports {
            let protocol = protocol(&port.protocol);
            let mut add = |kind: usize, ips: &[IpAddr], port: u16| {
                let at = ips.iter().map(|ip| (SocketAddr::new(*ip, port), protocol));
                targets[kind].extend(at);
            };
            for (kind, ips) in lists.iter().enumerate() {
                add(kind, ips, port.port);
            }
            if port.node_port != 0 {
                add(3, &own, port.node_port);
                add(4, &loopback, port.node_port);
            }
        }
    }
    targets
}
