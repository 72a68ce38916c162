//! Detection of traffic from local pods (`--detect-local-mode`).

use std::sync::Arc;

use ipnet::IpNet;

use crate::{Family, NodeView};

/// Detection mode for traffic from local pods, as configured for both families.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DetectLocal {
    /// `ClusterCIDR`: source within the pod network of the cluster. The first network of
    /// each family is used.
    ClusterCidr(Vec<IpNet>),
    /// `NodeCIDR`: source within the pod network of the Node object.
    NodeCidr,
    /// `BridgeInterface`: the input interface has this name.
    Interface(Arc<str>),
    /// `InterfaceNamePrefix`: the name of the input interface starts with this prefix.
    InterfacePrefix(Arc<str>),
}

/// Match for traffic from local pods in one family.
///
/// Exhaustive: a proxy mode needs a rule for each match.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum LocalTraffic {
    /// Source address within the network.
    Cidr(IpNet),
    /// Name of the input interface.
    Interface(Arc<str>),
    /// Prefix of the name of the input interface.
    InterfacePrefix(Arc<str>),
}

impl DetectLocal {
    /// Returns the match for a family.
    ///
    /// Returns `None` if the network or the name is missing. Local pods are then not
    /// distinguished from other sources.
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
    fn each_family_has_a_detector_from_its_own_data() {
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
