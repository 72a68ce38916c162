//! Node addresses that accept node port traffic (`--nodeport-addresses`).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::Family;

/// Addresses that serve node ports, as configured for both families.
///
/// Exhaustive: these are the forms of `--nodeport-addresses`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum NodePortAddresses {
    /// All addresses.
    #[default]
    All,
    /// The primary addresses of the node: the first one of each family.
    Primary,
    /// Addresses within the networks. An empty list means all addresses.
    Within(Vec<IpNet>),
}

/// A filter for the addresses of one family that serve node ports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePortFilter {
    /// `None` means all addresses.
    within: Option<Vec<IpNet>>,
    family: Family,
}

/// The node addresses of one family that serve node ports.
///
/// Exhaustive: a proxy mode needs a rule for each match.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodePortMatch {
    /// All addresses of the node.
    All,
    /// The listed addresses, sorted and without duplicates.
    Only(Vec<IpAddr>),
}

impl NodePortAddresses {
    /// Returns the filter of a family.
    ///
    /// `node` holds the addresses of the node in order of preference, as in
    /// [`NodeView::addresses`](crate::NodeView::addresses).
    /// As in upstream kube-proxy, node ports are served on all addresses of a family
    /// in two cases: no configured network is of the family, or with
    /// [`Self::Primary`] the first address is unknown or a loopback address.
    pub fn filter(&self, family: Family, node: &[IpAddr]) -> NodePortFilter {
        let within: Vec<IpNet> = match self {
            Self::All => Vec::new(),
            Self::Primary => {
                let mut own = node.iter().filter(|&&addr| Family::of(addr) == family);
                let primary = own.next().filter(|addr| !addr.is_loopback());
                primary.map(|&addr| IpNet::from(addr)).into_iter().collect()
            }
            Self::Within(networks) => networks.clone(),
        };
        let ours: Vec<_> = within
            .into_iter()
            .filter(|&net| Family::of_network(net) == family)
            .collect();
        let all = ours.is_empty() || ours.iter().any(|network| network.prefix_len() == 0);
        NodePortFilter {
            within: (!all).then_some(ours),
            family,
        }
    }
}

impl NodePortFilter {
    /// Returns whether node ports are served on all addresses.
    pub fn matches_all(&self) -> bool {
        self.within.is_none()
    }

    /// Returns the networks whose addresses serve node ports. `None` means all
    /// addresses.
    pub fn networks(&self) -> Option<&[IpNet]> {
        self.within.as_deref()
    }

    /// Returns whether node ports are served on an address.
    pub fn matches(&self, addr: IpAddr) -> bool {
        let Some(within) = &self.within else {
            return Family::of(addr) == self.family;
        };
        within.iter().any(|network| network.contains(&addr))
    }

    /// Returns whether the configured networks overlap with 127.0.0.0/8.
    pub fn contains_ipv4_loopback(&self) -> bool {
        let loopback = Family::V4.loopback();
        let Some(within) = &self.within else {
            return self.family == Family::V4;
        };
        within
            .iter()
            .any(|network| loopback.contains(network) || network.contains(&loopback))
    }

    /// Returns the interface addresses that serve node ports.
    ///
    /// `addresses` holds the addresses of all interfaces, in any order.
    pub fn choose(&self, addresses: &[IpAddr]) -> NodePortMatch {
        if self.matches_all() {
            return NodePortMatch::All;
        }
        NodePortMatch::Only(self.list(addresses))
    }

    /// Returns the same addresses as [`Self::choose`] as a list, even if all match.
    pub fn list(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let matching = addresses.iter().copied().filter(|&addr| self.matches(addr));
        let mut chosen: Vec<_> = matching.collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> NodePortAddresses {
        NodePortAddresses::Within(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn node_ports_are_served_on_the_configured_addresses() {
        use NodePortAddresses::{All, Primary};
        let interfaces = addresses(&[
            "192.168.0.2",
            "127.0.0.1",
            "10.0.0.7",
            "10.0.0.7",
            "fd00::7",
            "::1",
        ]);
        let known = addresses(&["10.0.0.7", "fd00::7"]);
        let one = addresses(&["10.0.0.7"]);
        let only = |texts: &[&str]| NodePortMatch::Only(addresses(texts));
        for (config, primary, v4, v6) in [
            (All, &known, NodePortMatch::All, NodePortMatch::All),
            (Primary, &known, only(&["10.0.0.7"]), only(&["fd00::7"])),
            (Primary, &one, only(&["10.0.0.7"]), NodePortMatch::All),
            (
                Primary,
                &addresses(&["fd00::7", "10.0.0.7", "192.168.0.2", "::1"]),
                only(&["10.0.0.7"]),
                only(&["fd00::7"]),
            ),
            (
                Primary,
                &addresses(&["127.0.0.1", "10.0.0.7"]),
                NodePortMatch::All,
                NodePortMatch::All,
            ),
            (
                Primary,
                &addresses(&["127.0.0.1"]),
                NodePortMatch::All,
                NodePortMatch::All,
            ),
            (
                Primary,
                &addresses(&[]),
                NodePortMatch::All,
                NodePortMatch::All,
            ),
            (
                networks(&[]),
                &known,
                NodePortMatch::All,
                NodePortMatch::All,
            ),
            (
                networks(&["0.0.0.0/0", "10.0.0.0/8"]),
                &known,
                NodePortMatch::All,
                NodePortMatch::All,
            ),
            (
                networks(&["10.0.0.0/8", "192.168.0.0/16", "fd00::/8"]),
                &known,
                only(&["10.0.0.7", "192.168.0.2"]),
                only(&["fd00::7"]),
            ),
            (
                networks(&["172.16.0.0/12"]),
                &known,
                only(&[]),
                NodePortMatch::All,
            ),
            (
                networks(&["127.0.0.0/8", "::1/128"]),
                &known,
                only(&["127.0.0.1"]),
                only(&["::1"]),
            ),
        ] {
            let chosen = |family| config.filter(family, primary).choose(&interfaces);
            assert_eq!(chosen(Family::V4), v4, "{config:?} {primary:?}");
            assert_eq!(chosen(Family::V6), v6, "{config:?} {primary:?}");
        }
    }

    #[test]
    fn all_addresses_of_a_family_exclude_the_other_family() {
        let filter = NodePortAddresses::All.filter(Family::V6, &[]);
        assert_eq!(
            filter.list(&addresses(&["10.0.0.7", "fd00::7"])),
            addresses(&["fd00::7"])
        );
    }

    #[test]
    fn networks_that_overlap_ipv4_loopback_are_detected() {
        for (config, expected) in [
            (NodePortAddresses::All, true),
            (networks(&["0.0.0.0/0"]), true),
            (networks(&["126.0.0.0/7"]), true),
            (networks(&["127.0.0.1/32"]), true),
            (networks(&["10.0.0.0/8", "127.3.0.0/16"]), true),
            (networks(&["10.0.0.0/8"]), false),
        ] {
            let filter = config.filter(Family::V4, &[]);
            assert_eq!(filter.contains_ipv4_loopback(), expected, "{config:?}");
            assert!(!config.filter(Family::V6, &[]).contains_ipv4_loopback());
        }
    }
}
