//! The environment of a node, and packets to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use vipline_evaluate::{Connection, Environment, Host, Interface, Packet, Route, RouteQuery};
use vipline_service_model::{DetectLocal, NodeView, ServicePort, Transport};

use super::Obstacle;

/// Interface to other hosts.
const UPLINK: &str = "eth0";

/// Interface of the pods, unless the configuration detects local traffic by interface.
const POD_BRIDGE: &str = "cni0";

/// Source port of packets, the first that the kernel may choose
/// (`net.ipv4.ip_local_port_range`).
const SOURCE_PORT: u16 = 32_768;

/// TTL of packets (`net.ipv4.ip_default_ttl`).
const TTL: u8 = 64;

/// Returns the addresses and routes of a typical node.
///
/// Interface `eth0` has the addresses of the node, and leads to all other hosts. The pod
/// networks of the node and all endpoints on this node are reached through a pod interface.
pub(crate) fn assumed<'a>(
    detect_local: &DetectLocal,
    node: &NodeView,
    addresses: &[IpAddr],
    ports: impl Iterator<Item = &'a ServicePort>,
) -> Host {
    let pods = match detect_local {
        DetectLocal::Interface(name) => name.to_string(),
        DetectLocal::InterfacePrefix(prefix) => format!("{prefix}0"),
        _ => POD_BRIDGE.to_owned(),
    };
    let own = node.addresses.iter().chain(addresses);
    let own = own.filter(|addr| !addr.is_loopback());
    let host = own.fold(Host::new(), |host, &addr| {
        host.with_addr(UPLINK, addr.into())
    });
    let host = host
        .with_route(Ipv4Net::default().into(), UPLINK)
        .with_route(Ipv6Net::default().into(), UPLINK);
    let here = ports.flat_map(ServicePort::reachable_local);
    let here = here.map(|endpoint| endpoint.addr);
    let here = here.filter(|addr| !node.addresses.contains(addr) && !addresses.contains(addr));
    let networks = node.pod_cidrs.iter().copied().chain(here.map(IpNet::from));
    networks
        .fold(host, |host, network| host.with_route(network, &*pods))
        .with_limits_exceeded(false)
}

/// Returns the first packet of a connection.
///
/// The packet is received by the interface that leads to its source. If the source is an
/// address of the host, a process of the host sends the packet. Both addresses must be of
/// the same family.
pub fn packet(
    host: &dyn Environment,
    protocol: Transport,
    source: IpAddr,
    destination: SocketAddr,
) -> Packet {
    let from = SocketAddr::new(source, SOURCE_PORT);
    let packet = match protocol {
        Transport::Tcp => Packet::tcp(from, destination),
        Transport::Udp => Packet::udp(from, destination),
        Transport::Sctp => Packet::with_protocol(protocol.number(), from, destination),
    };
    with_input(packet, input(host, source, destination.ip()))
}

/// Returns a packet as an interface receives it.
pub fn received(packet: Packet, interface: Interface) -> Packet {
    packet.with_input(interface).with_packet_type(0)
}

/// Returns the first reply of a connection: the endpoint sends it, and the interface that leads
/// to the endpoint receives it.
pub fn reply(host: &dyn Environment, connection: &Connection) -> Packet {
    let tuple = connection.reply;
    let packet = Packet::reply(connection);
    let packet = packet.with_ttl(TTL).with_traffic_class(0);
    with_input(packet, input(host, tuple.source, tuple.destination))
}

fn with_input(packet: Packet, input: Option<Interface>) -> Packet {
    match input {
        Some(interface) => received(packet, interface),
        None => packet.with_owner(0, 0),
    }
}

/// How the packets of a source arrive at a host.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Arrival {
    /// A process of the host sends them.
    Sent,
    /// This interface receives them, to which the route to the source leads.
    Received(Interface),
    /// The host cannot send packets back: it has no route to the source, or one that discards
    /// packets.
    NoWayBack(Obstacle),
}

/// Returns how packets from a source to a destination arrive.
pub fn arrival(host: &dyn Environment, source: IpAddr, destination: IpAddr) -> Arrival {
    match route(host, destination, source) {
        Some(Route::Interface(interface)) => Arrival::Received(interface),
        Some(Route::Local) => Arrival::Sent,
        Some(Route::Discard(kind, network)) => Arrival::NoWayBack(Obstacle::Discard {
            to: source,
            kind,
            network,
        }),
        _ => Arrival::NoWayBack(Obstacle::NoRoute(source)),
    }
}

/// Returns the interface that receives packets from a source. `None`: a process of the
/// host sends them, or the host has no route to the source.
fn input(host: &dyn Environment, source: IpAddr, destination: IpAddr) -> Option<Interface> {
    match arrival(host, source, destination) {
        Arrival::Received(interface) => Some(interface),
        _ => None,
    }
}

/// Returns the address that processes of the host use as the source of packets to a
/// destination, or `None` if there is no route or no address of the family.
///
/// The preferred source of the route precedes the addresses of its interface.
pub fn node_source(host: &dyn Environment, destination: IpAddr) -> Option<IpAddr> {
    let any = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    match route(host, any, destination)? {
        Route::Local => Some(destination),
        Route::Interface(interface) => {
            let preferred = host.preferred_source(&RouteQuery::new(any, destination));
            preferred.or_else(|| host.interface_addr(&interface, destination))
        }
        _ => None,
    }
}

/// Returns the route from one address to another.
fn route(host: &dyn Environment, from: IpAddr, to: IpAddr) -> Option<Route> {
    host.route(&RouteQuery::new(from, to))
}
