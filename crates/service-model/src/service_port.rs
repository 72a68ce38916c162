//! A port of a Service with everything decided: what a mode translates.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::{Family, PortName, Protocol, Scheduler};

/// One port of one Service in one family, as this node must program it.
///
/// Every question of policy has been answered, once for all modes: `internal`
/// and `external` say which list takes the traffic, or what becomes of it.
///
/// Lists are free of duplicates; those of addresses are in the order of the
/// Service, those of endpoints are sorted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServicePort {
    /// The name, shared by both families.
    pub name: Arc<PortName>,
    /// The family of all addresses here.
    pub family: Family,
    /// The protocol, as in the name.
    pub protocol: Protocol,
    /// The cluster IP.
    pub cluster_ip: IpAddr,
    /// The port on cluster IP, external IPs and load balancer IPs; never 0.
    pub port: u16,
    /// The port on the node's own addresses; never 0.
    pub node_port: Option<u16>,
    /// External IPs to serve; empty if the store was told to ignore them.
    pub external_ips: Arc<[IpAddr]>,
    /// Load balancer IPs whose packets reach the node unchanged.
    pub load_balancer_ips: Arc<[IpAddr]>,
    /// Who may use the load balancer IPs; empty means everybody.
    ///
    /// External IPs and node ports are open to everybody in any case.
    pub source_ranges: Arc<[IpNet]>,
    /// For how many seconds a client stays with its endpoint; `None`: it does not.
    pub affinity: Option<u32>,
    /// How a connection chooses among endpoints; `None`: the Service does not say.
    pub scheduler: Option<Scheduler>,
    /// What becomes of traffic to the cluster IP.
    pub internal: Route,
    /// What becomes of traffic from outside to external addresses and node ports.
    ///
    /// Pods and processes of this node use the `cluster` list there whatever
    /// the policy says. Means nothing where there is no external address.
    pub external: Route,
    /// Whether the policy for internal traffic is Local.
    pub internal_policy_local: bool,
    /// Whether the policy for external traffic is Local: sources are kept.
    pub external_policy_local: bool,
    /// Whether the Service has an address for outsiders, served or not: external
    /// IPs count also if the store was told to ignore them.
    pub is_exposed: bool,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_node_port: Option<u16>,
    /// The endpoints under policy Cluster; empty also when nothing uses them.
    pub cluster: Arc<[Endpoint]>,
    /// The endpoints under policy Local; empty also when nothing uses them.
    pub local: Arc<[Endpoint]>,
    /// Every endpoint that says it is serving, whatever policy and topology.
    ///
    /// Flows to any of these are not stale.
    pub serving: Arc<[Endpoint]>,
    /// The endpoints that still serve on their way out, whatever policy and
    /// topology: new connections get there only where a list fell back to them.
    pub serving_terminating: Arc<[Endpoint]>,
    /// How many endpoints there are, whether they are ready or not.
    pub endpoint_count: u32,
}

/// What becomes of traffic to a service port.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    /// One of the `cluster` endpoints takes it; there is at least one.
    Cluster,
    /// One of the `local` endpoints takes it; there is at least one.
    Local,
    /// It is dropped: there are endpoints, but none that the policy allows.
    Drop,
    /// It is rejected: there are no endpoints at all.
    Reject,
}

/// Where a connection may end.
///
/// Ordered by address, then port, both numerically.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Endpoint {
    /// The address.
    pub addr: IpAddr,
    /// The port; never 0.
    pub port: u16,
    /// Whether it is on this node.
    pub is_local: bool,
}

/// A service port that changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PortChange {
    /// The family that it changed in.
    pub family: Family,
    /// The name of the service port.
    pub name: Arc<PortName>,
    /// What it is now; `None` when it is gone.
    pub port: Option<Arc<ServicePort>>,
}

impl PortChange {
    pub(crate) fn updated(port: &Arc<ServicePort>) -> Self {
        Self {
            family: port.family,
            name: Arc::clone(&port.name),
            port: Some(Arc::clone(port)),
        }
    }

    pub(crate) fn removed(port: &ServicePort) -> Self {
        Self {
            family: port.family,
            name: Arc::clone(&port.name),
            port: None,
        }
    }
}

impl ServicePort {
    /// Returns every endpoint that some traffic may reach, sorted, each once.
    ///
    /// These are the endpoints of `cluster` and `local` together: with hints
    /// for other zones the local list holds some that the cluster list lacks.
    pub fn reachable(&self) -> Vec<Endpoint> {
        let mut all: Vec<_> = self.cluster.iter().chain(&*self.local).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns those of the [reachable](Self::reachable) endpoints that are on
    /// this node, sorted, each once.
    pub fn reachable_local(&self) -> Vec<Endpoint> {
        let all = self.cluster.iter().chain(&*self.local);
        let mut here: Vec<_> = all.filter(|each| each.is_local).copied().collect();
        here.sort_unstable();
        here.dedup();
        here
    }

    /// Tells whether the port has an address that outsiders may use.
    pub fn is_external(&self) -> bool {
        self.node_port.is_some()
            || !self.external_ips.is_empty()
            || !self.load_balancer_ips.is_empty()
    }
}

/// Displays as `address:port/PROTOCOL`.
impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.cluster_ip, self.port, self.protocol)
    }
}

/// Displays as `address:port`, an IPv6 address in brackets.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.addr, self.port).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_display_with_brackets_around_ipv6_and_sort_by_number() {
        let endpoint = |addr: &str, port| Endpoint {
            addr: addr.parse().unwrap(),
            port,
            is_local: false,
        };
        let mut endpoints = [
            endpoint("fd00::1", 80),
            endpoint("10.0.0.10", 80),
            endpoint("10.0.0.2", 443),
            endpoint("10.0.0.2", 80),
        ];
        endpoints.sort();
        let text: Vec<_> = endpoints.iter().map(Endpoint::to_string).collect();
        assert_eq!(
            text,
            [
                "10.0.0.2:80",
                "10.0.0.2:443",
                "10.0.0.10:80",
                "[fd00::1]:80"
            ]
        );
    }

    #[test]
    fn an_endpoint_is_small() {
        assert_eq!(size_of::<Endpoint>(), 20);
    }
}
