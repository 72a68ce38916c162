//! How traffic of local pods is told from other traffic.

use std::sync::Arc;

use ipnet::IpNet;

use crate::{Family, NodeView};

/// How traffic of local pods is recognized, as configured for both families.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DetectLocal {
    /// By the networks of all pods of the cluster; in each family the first counts.
    ClusterCidr(Vec<IpNet>),
    /// By the networks of the node's own pods, as its Node object says.
    NodeCidr,
    /// By the bridge that pods are attached to.
    Interface(Arc<str>),
    /// By how the names of the pods' interfaces begin.
    InterfacePrefix(Arc<str>),
}

/// What marks traffic in one family as that of local pods.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum LocalTraffic {
    /// Its source is in this network.
    Cidr(IpNet),
    /// It comes in by this interface.
    Interface(Arc<str>),
    /// It comes in by an interface whose name begins like this.
    InterfacePrefix(Arc<str>),
}

impl DetectLocal {
    /// Returns what to look for in a family.
    ///
    /// `None` when the data for it is missing: then there are no rules that
    /// tell local pods from others.
    pub fn detector(&self, family: Family, node: &NodeView) -> Option<LocalTraffic> {
        match self {
            Self::ClusterCidr(cidrs) => {
                let mut ours = cidrs
                    .iter()
                    .filter(|&&cidr| Family::of_network(cidr) == family);
                ours.next().copied().map(LocalTraffic::Cidr)
            }
            Self::NodeCidr => node.pod_cidr(family).map(LocalTraffic::Cidr),
            Self::Interface(name) if name.is_empty() => None,
            Self::Interface(name) => Some(LocalTraffic::Interface(Arc::clone(name))),
            Self::InterfacePrefix(prefix) if prefix.is_empty() => None,
            Self::InterfacePrefix(prefix) => {
                Some(LocalTraffic::InterfacePrefix(Arc::clone(prefix)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn each_family_looks_for_what_is_known_of_it() {
        let mut node = NodeView::new("n1");
        node.pod_cidrs = networks(&["fd00:1::/64", "10.1.0.0/24"]);
        let cidr = |text: &str| Some(LocalTraffic::Cidr(text.parse().unwrap()));
        for (detect, v4, v6) in [
            (
                DetectLocal::ClusterCidr(networks(&["10.0.0.0/8", "11.0.0.0/8", "fd00::/16"])),
                cidr("10.0.0.0/8"),
                cidr("fd00::/16"),
            ),
            (
                DetectLocal::ClusterCidr(networks(&["fd00::/16"])),
                None,
                cidr("fd00::/16"),
            ),
            (DetectLocal::ClusterCidr(Vec::new()), None, None),
            (
                DetectLocal::NodeCidr,
                cidr("10.1.0.0/24"),
                cidr("fd00:1::/64"),
            ),
            (
                DetectLocal::Interface("cni0".into()),
                Some(LocalTraffic::Interface("cni0".into())),
                Some(LocalTraffic::Interface("cni0".into())),
            ),
            (
                DetectLocal::InterfacePrefix("veth".into()),
                Some(LocalTraffic::InterfacePrefix("veth".into())),
                Some(LocalTraffic::InterfacePrefix("veth".into())),
            ),
            (DetectLocal::Interface("".into()), None, None),
            (DetectLocal::InterfacePrefix("".into()), None, None),
        ] {
            assert_eq!(detect.detector(Family::V4, &node), v4, "{detect:?}");
            assert_eq!(detect.detector(Family::V6, &node), v6, "{detect:?}");
        }
        assert_eq!(
            DetectLocal::NodeCidr.detector(Family::V4, &NodeView::new("n1")),
            None
        );
    }
}
