//! Everything besides Services that the rules of a family depend on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use vipline_service_model::{
    Family, LocalTraffic, NodePortFilter, NodePortMatch, NodeView, is_of_one_link,
};

use crate::{Config, Mark};

/// Maximum length of an interface name in bytes: `IFNAMSIZ - 1` of `linux/if.h`.
const MAX_INTERFACE_NAME: usize = 15;

/// Number of endpoints above which modes write fewer comments.
const MANY_ENDPOINTS: usize = 1000;

/// Everything besides Services that the rules of a family depend on.
///
/// The context changes if the node or the ServiceCIDRs change, or if the cluster becomes
/// large.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Context {
    /// The family.
    pub family: Family,
    /// Packet mark of connections to masquerade.
    pub masquerade_mark: Mark,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// How to detect traffic of pods of this node. `None` if no such traffic is detected.
    ///
    /// Invariant: a network belongs to the family and is not the network of all addresses,
    /// and an interface name is valid.
    pub local: Option<LocalTraffic>,
    /// Networks of the node addresses on which node ports are served. `None` if node
    /// ports are served on all addresses.
    ///
    /// Invariant: the networks belong to the family, are sorted and do not overlap.
    pub nodeport_networks: Option<Vec<IpNet>>,
    /// Addresses on which node ports are served, for modes whose rules list addresses.
    pub nodeport_addresses: NodePortMatch,
    /// Whether the node addresses on which node ports are served contain IPv4 loopback
    /// addresses, in the context of IPv4.
    pub nodeport_on_loopback: bool,
    /// Addresses of the node's interfaces in the family, without loopback and IPv6
    /// link-local addresses. Empty while unknown.
    ///
    /// Invariant: sorted.
    pub addresses: Vec<IpAddr>,
    /// Whether the family has more than 1,000 endpoints, so that modes omit comments.
    pub is_large: bool,
    /// The node's own address, if known.
    pub node_address: Option<IpAddr>,
    /// Networks from which cluster IPs are allocated.
    ///
    /// Invariant: the networks belong to the family, are sorted and do not overlap.
    pub service_cidrs: Vec<IpNet>,
}

/// Clients whose traffic to cluster IPs is masqueraded, so that endpoints reply by way of
/// this node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MasqueradedClients<'a> {
    /// All clients (`--masquerade-all`).
    All,
    /// All clients except the pods of this node.
    Outside(&'a LocalTraffic),
    /// No clients, because pods of this node are not detected.
    None,
}

impl Context {
    /// Creates the context of a family.
    ///
    /// `service_cidrs` of other families are ignored.
    pub fn new(
        config: &Config,
        node: &NodeView,
        service_cidrs: impl IntoIterator<Item = IpNet>,
        family: Family,
    ) -> Self {
        let local = config.detect_local.detector(family, node);
        let node_ports = node_ports(config, node, family);
        Self {
            family,
            masquerade_mark: config.masquerade_mark,
            masquerade_all: config.masquerade_all,
            local: local.filter(could_exist),
            nodeport_networks: node_ports
                .networks()
                .map(|networks| disjoint(networks.iter().copied(), family)),
            nodeport_addresses: node_ports.choose(&with_loopback(node)),
            nodeport_on_loopback: family == Family::V4 && config.nodeport_on_loopback(),
            addresses: Vec::new(),
            is_large: false,
            node_address: node.address(family),
            service_cidrs: disjoint(service_cidrs, family),
        }
    }

    /// Sets the addresses of the node's interfaces. If `addresses` is empty, the
    /// addresses of the Node object are used.
    #[must_use]
    pub fn with_addresses(
        mut self,
        config: &Config,
        node: &NodeView,
        addresses: &[IpAddr],
    ) -> Self {
        if !addresses.is_empty() {
            let node_ports = node_ports(config, node, self.family);
            self.nodeport_addresses = node_ports.choose(addresses);
        }
        let own = addresses.iter().copied();
        self.addresses = own.filter(|addr| is_reached(*addr, self.family)).collect();
        self.addresses.sort_unstable();
        self
    }

    /// Returns the clients whose traffic to cluster IPs is masqueraded.
    pub fn masqueraded_clients(&self) -> MasqueradedClients<'_> {
        match (&self.local, self.masquerade_all) {
            (_, true) => MasqueradedClients::All,
            (Some(pods), false) => MasqueradedClients::Outside(pods),
            (None, false) => MasqueradedClients::None,
        }
    }

    /// Returns the addresses on which node ports are served, without loopback and IPv6
    /// link-local addresses, for modes whose rules list every address.
    ///
    /// While the interface addresses are unknown, the result contains only addresses of
    /// the Node object.
    pub fn node_port_ips(&self) -> Vec<IpAddr> {
        let addresses = match &self.nodeport_addresses {
            NodePortMatch::All if self.addresses.is_empty() => self.node_address.as_slice(),
            NodePortMatch::All => &self.addresses,
            NodePortMatch::Only(addresses) => addresses,
        };
        let reached = addresses.iter().copied();
        reached
            .filter(|addr| is_reached(*addr, self.family))
            .collect()
    }

    /// Returns whether an interface has an address. While the interface addresses are unknown,
    /// the node has only the address of the Node object.
    pub fn is_of_node(&self, addr: IpAddr) -> bool {
        match self.addresses.is_empty() {
            true => self.node_address == Some(addr),
            false => self.addresses.binary_search(&addr).is_ok(),
        }
    }

    /// Sets the number of endpoints in the family, ready or not.
    #[must_use]
    pub const fn with_endpoints(mut self, count: usize) -> Self {
        self.is_large = count > MANY_ENDPOINTS;
        self
    }
}

/// Returns the addresses of the Node object and the loopback addresses, which every node has.
fn with_loopback(node: &NodeView) -> Vec<IpAddr> {
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    node.addresses.iter().copied().chain(loopback).collect()
}

/// Returns whether other hosts can reach an address of the family.
fn is_reached(addr: IpAddr, family: Family) -> bool {
    Family::of(addr) == family && !is_of_one_link(addr)
}

/// Returns the filter of addresses on which node ports are served.
fn node_ports(config: &Config, node: &NodeView, family: Family) -> NodePortFilter {
    config.node_port_addresses.filter(family, &node.addresses)
}

/// Returns whether some traffic matches and some does not. No interface has a name that is too
/// long or has one of the characters that `dev_valid_name` of the kernel refuses, and a network
/// with prefix length 0 matches everything.
///
/// A name that ends with `*` would be a prefix in nft.
///
/// The nft variant of iptables rejects `! -s 0.0.0.0/0`.
fn could_exist(local: &LocalTraffic) -> bool {
    match local {
        LocalTraffic::Cidr(network) => network.prefix_len() > 0,
        LocalTraffic::Interface(name) => !name.ends_with('*') && is_interface_name(name),
        LocalTraffic::InterfacePrefix(name) => is_interface_name(name),
    }
}

fn is_interface_name(name: &str) -> bool {
    let is_refused = |letter: char| letter.is_ascii_whitespace() || matches!(letter, '/' | ':');
    !name.is_empty() && name.len() <= MAX_INTERFACE_NAME && !name.contains(is_refused)
}

/// Returns the networks of the family, sorted and aggregated so that none overlap.
fn disjoint(networks: impl IntoIterator<Item = IpNet>, family: Family) -> Vec<IpNet> {
    let own: Vec<_> = networks
        .into_iter()
        .filter(|&network| Family::of_network(network) == family)
        .map(|network| network.trunc())
        .collect();
    let mut disjoint = IpNet::aggregate(&own);
    disjoint.sort_unstable();
    disjoint
}

#[cfg(test)]
mod tests {
    use vipline_service_model::DetectLocal;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn context(config: &Config, cidrs: &[&str], family: Family) -> Context {
        let cidrs = cidrs.iter().map(|text| net(text));
        Context::new(config, &NodeView::new("n1"), cidrs, family)
    }

    #[test]
    fn networks_of_a_family_are_sorted_and_do_not_overlap() {
        let cidrs = [
            "10.97.0.0/16",
            "10.96.128.0/17",
            "fd00:1::/112",
            "10.96.0.0/16",
        ];
        let config = Config::default();
        let v4 = context(&config, &cidrs, Family::V4);
        assert_eq!(v4.service_cidrs, [net("10.96.0.0/15")]);
        let v6 = context(&config, &cidrs, Family::V6);
        assert_eq!(v6.service_cidrs, [net("fd00:1::/112")]);
    }

    #[test]
    fn an_interface_name_that_no_interface_has_detects_no_local_traffic() {
        for (name, expected) in [
            ("fifteen-letters", true),
            ("sixteen-letters!", false),
            ("eth 0", false),
            ("eth/0", false),
            ("", false),
        ] {
            for detect_local in [
                DetectLocal::Interface(name.into()),
                DetectLocal::InterfacePrefix(name.into()),
            ] {
                let config = Config {
                    detect_local,
                    ..Config::default()
                };
                let context = context(&config, &[], Family::V4);
                assert_eq!(context.local.is_some(), expected, "{config:?}");
            }
        }
    }

    #[test]
    fn a_network_of_all_addresses_detects_no_local_traffic() {
        for (network, expected) in [("10.0.0.0/8", true), ("0.0.0.0/0", false)] {
            let config = Config {
                detect_local: DetectLocal::ClusterCidr(vec![net(network)]),
                ..Config::default()
            };
            let context = context(&config, &[], Family::V4);
            assert_eq!(context.local.is_some(), expected, "{network}");
        }
    }
}
