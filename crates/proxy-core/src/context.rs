//! What rules depend on besides Services, for one family.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_service_model::{
    Family, LocalTraffic, NodePortFilter, NodePortMatch, NodeView, Scheduler,
};

use crate::{Config, Iptables, Mark};

/// The longest name of an interface in bytes: `IFNAMSIZ - 1` of `linux/if.h`.
const MAX_INTERFACE_NAME: usize = 15;

/// With more endpoints than this, modes that write comments write fewer.
const MANY_ENDPOINTS: usize = 1000;

/// What rules depend on besides Services, for one family.
///
/// It changes when the node or the ServiceCIDRs do, and when the cluster grows
/// large.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    /// The family.
    pub family: Family,
    /// The packet mark that says: give this flow the node's address.
    pub masquerade_mark: Mark,
    /// Whether all traffic to cluster IPs gets the node's address.
    pub masquerade_all: bool,
    /// How traffic of pods is told from other; `None`: it is not.
    ///
    /// Invariant: a network is of the family, an interface could exist.
    pub local: Option<LocalTraffic>,
    /// The networks of the node's addresses that node ports are served on;
    /// `None`: on all of them.
    ///
    /// Invariant: of the family, sorted, no two overlap.
    pub nodeport_networks: Option<Vec<IpNet>>,
    /// The addresses that node ports are served on, for modes that have to
    /// name them.
    pub nodeport_addresses: NodePortMatch,
    /// Whether node ports are served on loopback addresses.
    pub serves_localhost: bool,
    /// The addresses of the node's interfaces, but for those that are of
    /// Services, of loopback, or of a link only; empty while they are not known.
    ///
    /// Invariant: sorted.
    pub addresses: Vec<IpAddr>,
    /// What mode iptables is told besides.
    pub iptables: Iptables,
    /// How endpoints are chosen in mode ipvs, where a Service does not say it.
    pub scheduler: Scheduler,
    /// Whether there are more endpoints than comments are written for.
    pub is_large: bool,
    /// The node's own address, as far as it is known.
    pub node_address: Option<IpAddr>,
    /// The networks that cluster IPs are taken from.
    ///
    /// Invariant: of the family, sorted, no two overlap.
    pub service_cidrs: Vec<IpNet>,
}

impl Context {
    /// Puts together what is known for a family.
    ///
    /// Of `service_cidrs` those of the family count.
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
            nodeport_addresses: node_ports.choose(&node.addresses),
            serves_localhost: family == Family::V4 && config.serves_localhost(),
            addresses: Vec::new(),
            iptables: config.iptables,
            scheduler: config.ipvs.scheduler,
            is_large: false,
            node_address: node.address(family),
            service_cidrs: disjoint(service_cidrs, family),
        }
    }

    /// Takes in the addresses of the node's interfaces; those that the Node
    /// object names count while they are not known.
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

    /// Returns the addresses that node ports are served on, for modes that have
    /// to name all.
    ///
    /// Those that the Node object names count while others are not known.
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

    /// Takes in how many endpoints there are in the family, ready or not.
    #[must_use]
    pub const fn with_endpoints(mut self, count: usize) -> Self {
        self.is_large = count > MANY_ENDPOINTS;
        self
    }
}

/// Tells whether an address of a family is one that other hosts reach.
fn is_reached(addr: IpAddr, family: Family) -> bool {
    let is_local = match addr {
        IpAddr::V4(addr) => addr.is_loopback(),
        IpAddr::V6(addr) => addr.is_loopback() || addr.is_unicast_link_local(),
    };
    Family::of(addr) == family && !is_local
}

/// Returns on which addresses node ports are served.
fn node_ports(config: &Config, node: &NodeView, family: Family) -> NodePortFilter {
    config.node_port_addresses.filter(family, &node.addresses)
}

/// Returns whether some traffic is like that, and some is not: no interface has a name
/// that is too long, and a network of all addresses excludes no source.
///
/// The nft variant of iptables rejects `! -s 0.0.0.0/0`.
fn could_exist(local: &LocalTraffic) -> bool {
    match local {
        LocalTraffic::Cidr(network) => network.prefix_len() > 0,
        LocalTraffic::Interface(name) | LocalTraffic::InterfacePrefix(name) => {
            name.len() <= MAX_INTERFACE_NAME
        }
    }
}

/// Returns the same addresses in sorted networks that do not overlap.
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
    fn an_interface_that_cannot_exist_tells_nothing_apart() {
        for (name, expected) in [("fifteen-letters", true), ("sixteen-letters!", false)] {
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
