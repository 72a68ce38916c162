//! The node of all cases: its interfaces, addresses and routes.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_evaluate::Host;

/// The interface to other hosts, with the default routes.
pub(crate) const UPLINK: &str = "eth0";

/// The bridge of the pods.
pub(crate) const PODS: &str = "cni0";

/// Interfaces and addresses in all cases. The first two addresses are those that Node
/// objects name most often.
const ADDRESSES: [(&str, &str); 4] = [
    (UPLINK, "192.168.55.4/24"),
    (UPLINK, "fd00:55::4/64"),
    (PODS, "10.244.1.1/24"),
    (PODS, "fd00:244:1::1/64"),
];

/// Addresses that some nodes have in addition, and that Services claim as external
/// addresses.
const CLAIMED: [(&str, &str); 2] = [("eth1", "203.0.113.1/32"), ("eth1", "2001:db8::1/128")];

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    addresses: Vec<(&'static str, IpNet)>,
}

impl Node {
    /// Creates a node. `has_claimed`: with addresses that Services claim.
    pub(crate) fn new(has_claimed: bool) -> Self {
        let claimed = CLAIMED.iter().filter(|_| has_claimed);
        let all = ADDRESSES.iter().chain(claimed);
        let parsed = all.map(|(name, text)| (*name, text.parse().expect("an address")));
        Self {
            addresses: parsed.collect(),
        }
    }

    /// Returns the node for an evaluator.
    pub(crate) fn host(&self) -> Host {
        let mut host = Host::new();
        for (name, address) in &self.addresses {
            host = host.with_addr(*name, *address);
        }
        let defaults = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a network"));
        defaults
            .into_iter()
            .fold(host, |host, network| host.with_route(network, UPLINK))
    }

    /// Returns all addresses, including loopback addresses.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let loopback = ["127.0.0.1", "::1"].map(|text| text.parse().expect("an address"));
        let own = self.addresses.iter().map(|(_, address)| address.addr());
        own.chain(loopback).collect()
    }

    /// Returns the address that a process uses for a destination: the destination itself
    /// if it is local, otherwise the address of the interface.
    pub(crate) fn source_for(&self, destination: IpAddr) -> IpAddr {
        if self.is_local(destination) {
            return destination;
        }
        let near = self
            .addresses
            .iter()
            .find(|(_, net)| net.contains(&destination));
        let same_family = |(_, net): &&(&str, IpNet)| net.addr().is_ipv4() == destination.is_ipv4();
        let (_, net) = near
            .or_else(|| self.addresses.iter().find(same_family))
            .expect("an address of each family");
        net.addr()
    }

    /// Returns whether an address belongs to the node.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.addresses.iter().any(|(_, net)| net.addr() == ip)
    }

    /// Returns whether the node receives packets to an address instead of forwarding them.
    /// Broadcasts of the node itself leave it.
    pub(crate) fn receives(&self, ip: IpAddr, is_from_node: bool) -> bool {
        let is_broadcast =
            |net: &IpNet| ip.is_ipv4() && net.prefix_len() < 31 && net.broadcast() == ip;
        let mut networks = self.addresses.iter().map(|(_, net)| net);
        self.is_local(ip) || !is_from_node && networks.any(is_broadcast)
    }
}
