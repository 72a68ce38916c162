//! Detection of pods (`--detect-local-mode`).
//!
//! - `ClusterCIDR`: the source is in the first network of the family.
//! - `NodeCIDR`: the source is in the first pod network of the Node object.
//! - `BridgeInterface`, `InterfaceNamePrefix`: the name of the input interface. Packets of
//!   processes have none.
//! - A network of all addresses, or no network, detects nothing.

use vipline_service_model::ipnet::IpNet;
use vipline_service_model::{DetectLocal, api};

use super::{Oracle, text};
use crate::flow::Flow;

/// Returns whether a pod sends the packet. `None` without detection.
pub(crate) fn is_from_pod(oracle: &Oracle<'_>, flow: &Flow) -> Option<bool> {
    let input = flow.input.unwrap_or_default();
    let within = |networks: Vec<IpNet>| {
        let is_of_family = |network: &IpNet| network.addr().is_ipv4() == flow.source.is_ipv4();
        let network = networks.into_iter().find(is_of_family);
        let network = network.filter(|network| network.prefix_len() > 0)?;
        Some(network.contains(&flow.source))
    };
    match &oracle.world.config.engine.detect_local {
        DetectLocal::ClusterCidr(networks) => within(networks.clone()),
        DetectLocal::NodeCidr => within(pod_networks(oracle.world.node_object.as_ref()?)),
        DetectLocal::Interface(name) => Some(*input == **name),
        DetectLocal::InterfacePrefix(prefix) => Some(input.starts_with(&**prefix)),
        other => panic!("unknown detection {other:?}"),
    }
}

fn pod_networks(node: &api::Node) -> Vec<IpNet> {
    let spec = &node.spec;
    let texts = match spec.pod_cidrs.is_empty() {
        true => std::slice::from_ref(&spec.pod_cidr),
        false => &spec.pod_cidrs,
    };
    texts
        .iter()
        .filter_map(|text| text::network(text))
        .collect()
}
