//! The fields of this node's Node object that the model uses.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::warning::{Field, Kind, Problem, Warnings};
use crate::{Family, ObjectName, Warning, api, parse_address, parse_network};

/// Taint of the cluster autoscaler on a node that is about to be deleted.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// This node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct NodeView {
    /// Name. If it is empty, no endpoint is local.
    pub name: Arc<str>,
    /// Zone, from the label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// Addresses: `InternalIP` first, then `ExternalIP`.
    pub addresses: Vec<IpAddr>,
    /// Pod networks of the node.
    pub pod_cidrs: Vec<IpNet>,
    /// Whether load balancers should send new traffic to this node.
    ///
    /// False while the Node object is unknown or is being deleted, or while the
    /// cluster autoscaler is about to delete the node.
    pub eligible: bool,
}

impl NodeView {
    /// Returns a node with a name only.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Parses a Node object.
    pub fn read(node: &api::Node) -> (Self, Vec<Warning>) {
        let name = ObjectName::new("", &*node.metadata.name);
        let mut warnings = Warnings::about(Kind::Node, &name);
        let view = Self {
            name: Arc::clone(&name.name),
            zone: node.metadata.label(api::MetadataKey::Zone).map(Into::into),
            addresses: addresses(node, &mut warnings),
            pod_cidrs: pod_cidrs(node, &mut warnings),
            eligible: node.metadata.deletion_timestamp.is_none()
                && !node
                    .spec
                    .taints
                    .iter()
                    .any(|taint| taint.key == TO_BE_DELETED),
        };
        (view, warnings.into_found())
    }

    /// Returns the first address of a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses
            .iter()
            .copied()
            .find(|&addr| Family::of(addr) == family)
    }

    /// Returns the first pod network of a family.
    pub fn pod_cidr(&self, family: Family) -> Option<IpNet> {
        self.pod_cidrs
            .iter()
            .copied()
            .find(|&cidr| Family::of_network(cidr) == family)
    }

    /// Returns whether both nodes select the same endpoints.
    pub(crate) fn selects_like(&self, other: &Self) -> bool {
        self.name == other.name && self.zone == other.zone
    }
}

fn addresses(node: &api::Node, warnings: &mut Warnings<'_>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for wanted in ["InternalIP", "ExternalIP"] {
        for (index, entry) in node.status.addresses.iter().enumerate() {
            if entry.kind != wanted {
                continue;
            }
            match parse_address(&entry.address) {
                Some(addr) => addresses.push(addr),
                None => warnings.push(
                    Field::member("status.addresses[].address", index),
                    Problem::BadAddress(entry.address.as_str().into()),
                ),
            }
        }
    }
    addresses
}

fn pod_cidrs(node: &api::Node, warnings: &mut Warnings<'_>) -> Vec<IpNet> {
    let mut cidrs = Vec::new();
    for (index, text) in node.spec.pod_cidrs.iter().enumerate() {
        match parse_network(text) {
            Some(cidr) => cidrs.push(cidr),
            None => warnings.push(
                Field::member("spec.podCIDRs[]", index),
                Problem::BadNetwork(text.as_str().into()),
            ),
        }
    }
    if node.spec.pod_cidrs.is_empty() && !node.spec.pod_cidr.is_empty() {
        match parse_network(&node.spec.pod_cidr) {
            Some(cidr) => cidrs.push(cidr),
            None => warnings.push(
                Field::plain("spec.podCIDR"),
                Problem::BadNetwork(node.spec.pod_cidr.as_str().into()),
            ),
        }
    }
    cidrs
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{NodeAddress, Taint};

    fn address(kind: &str, address: &str) -> NodeAddress {
        NodeAddress {
            kind: kind.into(),
            address: address.into(),
        }
    }

    #[test]
    fn internal_addresses_come_before_external_ones() {
        let mut node = api::Node::default();
        node.metadata.name = "n1".into();
        node.status.addresses = vec![
            address("ExternalIP", "192.0.2.1"),
            address("Hostname", "n1.example"),
            address("InternalIP", "10.0.0.1"),
            address("InternalIP", "nonsense"),
            address("InternalIP", "fd00::1"),
        ];
        node.spec.pod_cidr = "10.1.0.0/24".into();
        let (view, warnings) = NodeView::read(&node);
        let text: Vec<_> = view.addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(text, ["10.0.0.1", "fd00::1", "192.0.2.1"]);
        assert_eq!(view.address(Family::V6), Some("fd00::1".parse().unwrap()));
        assert_eq!(
            view.pod_cidr(Family::V4),
            Some("10.1.0.0/24".parse().unwrap())
        );
        assert_eq!(view.pod_cidr(Family::V6), None);
        let lines: Vec<_> = warnings.iter().map(Warning::to_string).collect();
        assert_eq!(
            lines,
            [r#"Node n1: status.addresses[3].address: not an IP address: "nonsense""#]
        );
    }

    #[test]
    fn a_node_that_is_about_to_be_deleted_is_not_eligible() {
        let mut node = api::Node::default();
        assert!(NodeView::read(&node).0.eligible);
        assert!(!NodeView::new("n1").eligible);
        node.spec.taints = vec![Taint {
            key: "node.kubernetes.io/not-ready".into(),
        }];
        assert!(NodeView::read(&node).0.eligible);
        node.spec.taints.push(Taint {
            key: TO_BE_DELETED.into(),
        });
        assert!(!NodeView::read(&node).0.eligible);
        node.spec.taints.clear();
        node.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".into());
        assert!(!NodeView::read(&node).0.eligible);
    }
}
