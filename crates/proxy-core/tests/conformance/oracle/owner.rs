//! The service port that owns a destination.
//!
//! - A cluster IP takes precedence over a load balancer IP, and a load balancer IP over an
//!   external IP. Node ports come last.
//! - Among claims of one kind the oldest Service takes precedence, then the name.

use super::frontend::Frontend;
use super::{Oracle, node_ports};
use crate::flow::Flow;

/// Kind of an address, in order of precedence.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    ClusterIp,
    LoadBalancerIp,
    ExternalIp,
    NodePort,
}

/// Returns the service port that owns the destination of a packet, and the kind of the
/// destination.
pub(crate) fn of<'o>(oracle: &'o Oracle<'_>, flow: &Flow) -> Option<(Kind, &'o Frontend)> {
    let claims = oracle.frontends.iter();
    let claims = claims.filter_map(|frontend| Some((kind(oracle, frontend, flow)?, frontend)));
    claims.min_by_key(|(kind, frontend)| (*kind, &frontend.precedence))
}

/// Returns the kind of the destination for a service port that claims it.
fn kind(oracle: &Oracle<'_>, frontend: &Frontend, flow: &Flow) -> Option<Kind> {
    let (ip, port) = (flow.destination.ip(), flow.destination.port());
    if frontend.protocol != flow.protocol || frontend.cluster_ip.is_ipv4() != ip.is_ipv4() {
        return None;
    }
    let is_port = port == frontend.port;
    match () {
        () if is_port && ip == frontend.cluster_ip => Some(Kind::ClusterIp),
        () if is_port && frontend.load_balancer_ips.contains(&ip) => Some(Kind::LoadBalancerIp),
        () if is_port && frontend.external_ips.contains(&ip) => Some(Kind::ExternalIp),
        () if port == frontend.node_port && node_ports::is_served(oracle, ip) => {
            Some(Kind::NodePort)
        }
        () => None,
    }
}
