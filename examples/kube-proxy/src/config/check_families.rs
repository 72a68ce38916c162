//! Checks of the configuration against the IP families of the node.
//!
//! Conditions and severity are those of upstream kube-proxy (`checkBadConfig`
//! and `checkBadIPConfig`).

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_service_model::{Family, NodePortAddresses, NodeView, parse_address, parse_network};

use super::Configuration;
use crate::cli::split_port;

/// Problems of a configuration on this node, one line each.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Problems {
    /// Problems that do not prevent the start.
    pub warnings: Vec<String>,
    /// Problems that prevent the start.
    pub errors: Vec<String>,
}

/// Checks a configuration on a node that serves `families`.
///
/// The primary family is that of the first node address, otherwise IPv4.
pub fn check_families(
    configuration: &Configuration,
    node_ports: &NodePortAddresses,
    node: &NodeView,
    families: &[Family],
) -> Problems {
    let primary = node
        .addresses
        .first()
        .copied()
        .map_or(Family::V4, Family::of);
    let mut check = Check {
        configuration,
        node,
        primary,
        is_dual: Family::ALL.iter().all(|family| families.contains(family)),
        problems: Problems::default(),
    };
    check.node_port_addresses(node_ports);
    if families.contains(&primary) {
        check.other_addresses();
    } else {
        let reason = format!(
            "the primary IP family is {primary}, that of the first node address, \
             but this node supports {} only",
            list(families)
        );
        check.problems.errors.push(reason);
    }
    check.problems
}

/// Returns the names of the families.
fn list(families: &[Family]) -> String {
    let names: Vec<_> = families.iter().map(ToString::to_string).collect();
    names.join(" and ")
}

struct Check<'a> {
    configuration: &'a Configuration,
    node: &'a NodeView,
    primary: Family,
    /// Whether the node serves both families.
    is_dual: bool,
    problems: Problems,
}

impl Check<'_> {
    /// Warns if node ports are open on addresses that the configuration seems
    /// to exclude.
    fn node_port_addresses(&mut self, addresses: &NodePortAddresses) {
        let (primary, secondary) = (self.primary, self.primary.other());
        let networks = match addresses {
            NodePortAddresses::All => Vec::new(),
            NodePortAddresses::Primary => {
                let filters = Family::ALL.map(|it| addresses.filter(it, &self.node.addresses));
                let networks = filters.iter().filter_map(|filter| filter.networks());
                networks.flatten().copied().collect()
            }
            NodePortAddresses::Within(networks) => networks.clone(),
        };
        let of_primary = networks
            .iter()
            .filter(|it| Family::of_network(**it) == primary);
        let of_primary = of_primary.count();
        let warning = if networks.is_empty() && *addresses == NodePortAddresses::Primary {
            "nodePortAddresses is primary, and the node has no address yet: node ports accept \
             connections on all local addresses until its Node object has one"
                .to_owned()
        } else if networks.is_empty() {
            "nodePortAddresses is unset: node ports accept connections on all local addresses; \
             consider --nodeport-addresses primary"
                .to_owned()
        } else if of_primary == networks.len() && self.is_configured_as_dual(&networks) {
            format!(
                "nodePortAddresses has {primary} addresses only, but the configuration names \
                 both IP families: node ports accept connections on all local {secondary} \
                 addresses"
            )
        } else if of_primary == 0 {
            format!(
                "nodePortAddresses has {secondary} addresses only, but the primary IP family is \
                 {primary}: node ports accept connections on all local {primary} addresses"
            )
        } else {
            return;
        };
        self.problems.warnings.push(warning);
    }

    /// Returns whether a list of CIDRs contains both families.
    fn is_configured_as_dual(&self, node_ports: &[IpNet]) -> bool {
        let excluded = networks(self.configuration.ipvs.exclude_cidrs.iter());
        let lists = [
            self.cluster_cidrs(),
            node_ports.to_vec(),
            excluded,
            self.node.pod_cidrs.clone(),
        ];
        lists.iter().any(|list| {
            let has = |family| list.iter().any(|it| Family::of_network(*it) == family);
            Family::ALL.into_iter().all(has)
        })
    }

    fn cluster_cidrs(&self) -> Vec<IpNet> {
        networks(self.configuration.cluster_cidr.split(','))
    }

    /// Checks all fields except `nodePortAddresses`.
    fn other_addresses(&mut self) {
        let configuration = self.configuration;
        let mode = &*configuration.detect_local_mode;
        let is_fatal = mode == "ClusterCIDR" && !self.is_dual;
        self.networks("clusterCIDR", &self.cluster_cidrs(), is_fatal);
        let pod_cidrs = &self.node.pod_cidrs;
        self.networks("spec.podCIDRs of the Node", pod_cidrs, mode == "NodeCIDR");
        let source_vip = parse_address(&configuration.winkernel.source_vip);
        self.address("winkernel.sourceVip", source_vip);
        if self.is_dual {
            return;
        }
        let excluded = networks(configuration.ipvs.exclude_cidrs.iter());
        self.networks("ipvs.excludeCIDRs", &excluded, false);
        let bound = |text| {
            let address = split_port(text).and_then(|(address, _)| parse_address(address));
            address.filter(|address| !address.is_unspecified())
        };
        let healthz = bound(&configuration.healthz_bind_address);
        self.address("healthzBindAddress", healthz);
        let metrics = bound(&configuration.metrics_bind_address);
        self.address("metricsBindAddress", metrics);
    }

    /// Reports a list of CIDRs that lacks the primary family.
    fn networks(&mut self, field: &str, networks: &[IpNet], is_fatal: bool) {
        let mut families = networks.iter().map(|network| Family::of_network(*network));
        if networks.is_empty() || families.any(|family| family == self.primary) {
            return;
        }
        let problem = format!(
            "{field} has {} networks only, but the {}",
            self.primary.other(),
            self.node_is()
        );
        match is_fatal {
            true => self.problems.errors.push(problem),
            false => self.problems.warnings.push(problem),
        }
    }

    /// Reports an address that is not of the primary family.
    fn address(&mut self, field: &str, address: Option<IpAddr>) {
        if address.is_some_and(|address| Family::of(address) != self.primary) {
            let family = self.primary.other();
            let problem = format!("{field} is an {family} address, but the {}", self.node_is());
            self.problems.warnings.push(problem);
        }
    }

    fn node_is(&self) -> String {
        match self.is_dual {
            true => format!("primary IP family is {}", self.primary),
            false => format!("node serves {} only", self.primary),
        }
    }
}

/// Parses the CIDRs of a list. An invalid list is empty.
fn networks<'a>(texts: impl Iterator<Item = impl AsRef<str> + 'a>) -> Vec<IpNet> {
    let parsed: Option<Vec<_>> = texts.map(|text| parse_network(text.as_ref())).collect();
    parsed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &[Family] = &[Family::V4];
    const V6: &[Family] = &[Family::V6];
    const BOTH: &[Family] = &Family::ALL;

    /// Returns the default configuration with a change.
    fn with(change: impl FnOnce(&mut Configuration)) -> Configuration {
        let mut configuration = Configuration {
            cluster_cidr: String::new(),
            ..Configuration::default()
        };
        configuration.fill_for_system();
        change(&mut configuration);
        configuration
    }

    fn node(addresses: &[&str], pod_cidrs: &[&str]) -> NodeView {
        let mut node = NodeView::new("n1");
        node.addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        node.pod_cidrs = pod_cidrs.iter().map(|text| text.parse().unwrap()).collect();
        node
    }

    fn within(texts: &[&str]) -> NodePortAddresses {
        NodePortAddresses::Within(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    /// Asserts that exactly one problem exists and contains the words.
    #[track_caller]
    fn assert_one(found: &[String], words: &[&str]) {
        let [line] = found else { panic!("{found:?}") };
        for word in words {
            assert!(line.contains(word), "{word}: {line}");
        }
    }

    /// Returns the problems of all fields except `nodePortAddresses`.
    fn others(configuration: &Configuration, node: &NodeView, families: &[Family]) -> Problems {
        let networks = within(&["10.0.0.0/8", "fd00::/8"]);
        check_families(configuration, &networks, node, families)
    }

    #[test]
    fn node_ports_on_all_addresses_are_a_warning_also_if_no_primary_address_is_known() {
        let configuration = with(|_| {});
        let unset = ["nodePortAddresses is unset", "consider", "primary"];
        let unknown = [
            "nodePortAddresses is primary",
            "no address yet",
            "Node object",
        ];
        for (addresses, node, words) in [
            (NodePortAddresses::All, node(&["10.0.0.1"], &[]), unset),
            (within(&[]), node(&["10.0.0.1"], &[]), unset),
            (NodePortAddresses::Primary, node(&[], &[]), unknown),
            (
                NodePortAddresses::Primary,
                node(&["127.0.0.1"], &[]),
                unknown,
            ),
        ] {
            let problems = check_families(&configuration, &addresses, &node, BOTH);
            assert_one(&problems.warnings, &words);
            assert!(problems.errors.is_empty());
        }
        let known = node(&["10.0.0.1"], &[]);
        let problems = check_families(&configuration, &NodePortAddresses::Primary, &known, BOTH);
        assert_eq!(problems, Problems::default());
    }

    #[test]
    fn node_port_networks_of_one_family_are_a_warning_if_the_other_is_in_use() {
        let only_v4 = within(&["10.0.0.0/8"]);
        let warnings = |configuration: &Configuration, networks: &_, node: &_| {
            check_families(configuration, networks, node, BOTH).warnings
        };
        let (single, dual) = (
            node(&["10.0.0.1"], &["10.1.0.0/24"]),
            node(&["10.0.0.1"], &["10.1.0.0/24", "fd00:1::/64"]),
        );
        let usual = with(|_| {});
        assert_eq!(warnings(&usual, &only_v4, &single), [""; 0]);
        let words = ["IPv4 addresses only", "all local IPv6 addresses"];
        assert_one(&warnings(&usual, &only_v4, &dual), &words);
        for dual in [
            with(|it| it.cluster_cidr = "10.1.0.0/16,fd00:1::/56".into()),
            with(|it| it.ipvs.exclude_cidrs = vec!["10.1.0.0/16".into(), "fd00:1::/56".into()]),
        ] {
            assert_one(&warnings(&dual, &only_v4, &single), &words);
            let both = within(&["10.0.0.0/8", "fd00::/8"]);
            assert_eq!(warnings(&dual, &both, &single), [""; 0]);
        }
        let only_v6 = within(&["fd00::/8"]);
        let words = ["IPv6 addresses only", "all local IPv4 addresses"];
        assert_one(&warnings(&usual, &only_v6, &single), &words);
    }

    #[test]
    fn the_primary_family_must_be_supported() {
        let configuration = with(|_| {});
        for (addresses, families, is_error) in [
            (&["10.0.0.1", "fd00::1"][..], V4, false),
            (&["fd00::1", "10.0.0.1"], V4, true),
            (&["fd00::1"], V6, false),
            (&["10.0.0.1"], V6, true),
            (&[], V4, false),
            (&[], V6, true),
        ] {
            let problems = others(&configuration, &node(addresses, &[]), families);
            assert_eq!(!problems.errors.is_empty(), is_error, "{addresses:?}");
        }
        let problems = others(&configuration, &node(&["fd00::1"], &[]), V4);
        assert_one(&problems.errors, &["family is IPv6", "supports IPv4 only"]);
    }

    #[test]
    fn cluster_networks_of_the_wrong_family_end_a_single_stack_node_in_their_mode() {
        let mode = |mode: &str| {
            with(|it| {
                it.detect_local_mode = mode.into();
                it.cluster_cidr = "fd00:1::/56".into();
            })
        };
        let node = node(&["10.0.0.1"], &[]);
        let words = ["clusterCIDR has IPv6 networks only", "IPv4"];
        let problems = others(&mode("ClusterCIDR"), &node, V4);
        assert_one(&problems.errors, &words);
        for (mode_name, families) in [("ClusterCIDR", BOTH), ("BridgeInterface", V4)] {
            let problems = others(&mode(mode_name), &node, families);
            assert_one(&problems.warnings, &words);
            assert!(problems.errors.is_empty(), "{problems:?}");
        }
        let right = with(|it| it.cluster_cidr = "fd00:1::/56,10.1.0.0/16".into());
        assert_eq!(others(&right, &node, V4), Problems::default());
    }

    #[test]
    fn pod_networks_of_the_wrong_family_end_any_node_in_their_mode() {
        let mode = |mode: &str| with(|it| it.detect_local_mode = mode.into());
        let node = node(&["10.0.0.1"], &["fd00:1::/64"]);
        let words = ["podCIDRs of the Node has IPv6 networks only", "IPv4"];
        for families in [V4, BOTH] {
            let problems = others(&mode("NodeCIDR"), &node, families);
            assert_one(&problems.errors, &words);
            let problems = others(&mode("ClusterCIDR"), &node, families);
            assert_one(&problems.warnings, &words);
        }
    }

    #[test]
    fn other_addresses_of_the_wrong_family_are_warnings_on_a_single_stack_node() {
        let node = node(&["10.0.0.1"], &[]);
        let source_vip = with(|it| it.winkernel.source_vip = "fd00::9".into());
        for families in [V4, BOTH] {
            let problems = others(&source_vip, &node, families);
            assert_one(
                &problems.warnings,
                &["winkernel.sourceVip is an IPv6 address"],
            );
        }
        for (configuration, words) in [
            (
                with(|it| it.ipvs.exclude_cidrs = vec!["fd00::/64".into()]),
                "ipvs.excludeCIDRs has IPv6 networks only",
            ),
            (
                with(|it| it.healthz_bind_address = "[fd00::1]:10256".into()),
                "healthzBindAddress is an IPv6 address",
            ),
            (
                with(|it| it.metrics_bind_address = "[::1]:10249".into()),
                "metricsBindAddress is an IPv6 address",
            ),
        ] {
            let problems = others(&configuration, &node, V4);
            assert_one(&problems.warnings, &[words]);
            assert_eq!(others(&configuration, &node, BOTH), Problems::default());
        }
        let wildcard = with(|it| it.healthz_bind_address = "[::]:10256".into());
        assert_eq!(others(&wildcard, &node, V4), Problems::default());
    }
}
