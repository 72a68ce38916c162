//! Source ranges of load balancers.
//!
//! - Packets to a load balancer IP are dropped if their source is in no range of the
//!   family. Without ranges of the family, or with a network of all addresses, nothing is
//!   dropped.
//! - If a range contains the primary address of the node, the load balancer IPs of the
//!   Service are permitted sources.
//! - Cluster IPs, external IPs and node ports have no ranges.

use vipline_service_model::api;
use vipline_service_model::ipnet::IpNet;

use super::frontend::Frontend;
use super::owner::Kind;
use super::{Oracle, node_ports, text};
use crate::flow::Flow;

/// Returns the ranges of a Service in a family.
pub(crate) fn of(spec: &api::ServiceSpec, is_v4: bool) -> Vec<IpNet> {
    let all = spec.load_balancer_source_ranges.iter();
    let all = all.filter_map(|range| text::network(range));
    let ranges: Vec<_> = all
        .filter(|range| range.addr().is_ipv4() == is_v4)
        .collect();
    match ranges.iter().any(|range| range.prefix_len() == 0) {
        true => Vec::new(),
        false => ranges,
    }
}

/// Returns whether the ranges refuse a packet to an address of a kind.
pub(crate) fn refuse(oracle: &Oracle<'_>, frontend: &Frontend, kind: Kind, flow: &Flow) -> bool {
    let ranges = &frontend.source_ranges;
    let contain = |ip| ranges.iter().any(|range| range.contains(&ip));
    let is_of_node =
        frontend.load_balancer_ips.contains(&flow.source) && permit_node(oracle, frontend);
    kind == Kind::LoadBalancerIp && !ranges.is_empty() && !contain(flow.source) && !is_of_node
}

/// Returns whether a range contains the primary address of the node.
pub(crate) fn permit_node(oracle: &Oracle<'_>, frontend: &Frontend) -> bool {
    let primary = node_ports::primary(oracle, frontend.cluster_ip.is_ipv4());
    primary.is_some_and(|ip| {
        frontend
            .source_ranges
            .iter()
            .any(|range| range.contains(&ip))
    })
}
