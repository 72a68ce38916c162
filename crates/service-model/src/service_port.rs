//! A fully resolved port of a Service, the input of all proxy modes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::{Family, PortName, Scheduler, Transport};

/// One port of one Service in one family, as resolved for this node.
///
/// All policy is already applied: `internal` and `external` name the endpoint list
/// that receives the traffic, or the verdict.
///
/// Lists have no duplicates. Address lists keep the order of the Service, endpoint
/// lists are sorted.
///
/// Exhaustive: planners take service ports that callers build as literals.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServicePort {
    /// Name, shared by both families.
    pub name: Arc<PortName>,
    /// Family of all addresses.
    pub family: Family,
    /// Protocol, as in the name.
    pub protocol: Transport,
    /// Cluster IP.
    pub cluster_ip: IpAddr,
    /// Port at cluster IP, external IPs and load balancer IPs. Never 0.
    pub port: u16,
    /// Node port. Never 0.
    pub node_port: Option<u16>,
    /// External IPs. Empty with [`ExternalIps::Ignore`](crate::ExternalIps::Ignore).
    pub external_ips: Arc<[IpAddr]>,
    /// Load balancer IPs with `ipMode: VIP`.
    pub load_balancer_ips: Arc<[IpAddr]>,
    /// Source networks that may use the load balancer IPs. Empty means no restriction.
    ///
    /// External IPs and node ports are never restricted.
    pub source_ranges: Arc<[IpNet]>,
    /// Session affinity timeout in seconds. `None` without session affinity. Default:
    /// 10,800 (3 hours).
    pub affinity: Option<u32>,
    /// IPVS scheduler of the annotation, if any.
    pub scheduler: Option<Scheduler>,
    /// Whether the annotation `preserve-destination` is `true`. Only mode kernelspace
    /// uses it.
    pub preserves_destination: bool,
    /// Route of traffic to the cluster IP.
    pub internal: Route,
    /// Route of traffic from outside to external addresses and node ports.
    ///
    /// Pods and processes of this node use the `cluster` list regardless of the
    /// policy. Unused if the port has no external address.
    pub external: Route,
    /// Whether `internalTrafficPolicy` is Local.
    pub internal_policy_local: bool,
    /// Whether `externalTrafficPolicy` is Local: source addresses are preserved.
    pub external_policy_local: bool,
    /// Whether the port has an external address or node port, served or not. External
    /// IPs count even with [`ExternalIps::Ignore`](crate::ExternalIps::Ignore).
    pub is_exposed: bool,
    /// Health check node port of the Service.
    pub health_check_node_port: Option<u16>,
    /// Endpoints under policy Cluster. Empty if no route needs the list.
    pub cluster: Arc<[Endpoint]>,
    /// Endpoints under policy Local. Empty if no route needs the list.
    pub local: Arc<[Endpoint]>,
    /// All serving endpoints, regardless of policy and topology.
    ///
    /// A conntrack entry to such an endpoint is not stale.
    pub serving: Arc<[Endpoint]>,
    /// All serving terminating endpoints, regardless of policy and topology. They
    /// receive new connections only if a list fell back to them.
    pub serving_terminating: Arc<[Endpoint]>,
    /// All endpoints that do not serve, regardless of policy and topology. Only mode
    /// kernelspace uses them.
    pub not_serving: Arc<[Endpoint]>,
    /// Number of all endpoints, ready or not.
    pub endpoint_count: u32,
}

/// Route of traffic to a service port.
///
/// Exhaustive: a proxy mode must translate every route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    /// To the endpoints in [`ServicePort::cluster`], which is not empty.
    Cluster,
    /// To the endpoints in [`ServicePort::local`], which is not empty.
    Local,
    /// Dropped: the policy is Local, and no usable endpoint is on this node.
    ///
    /// An endpoint is usable if it is ready, or serving and terminating.
    Drop,
    /// Rejected: no endpoint is usable.
    Reject,
}

impl Route {
    /// Returns whether the route leads to endpoints.
    pub const fn has_endpoints(self) -> bool {
        matches!(self, Self::Cluster | Self::Local)
    }
}

/// Address and port of an endpoint.
///
/// Ordered by address, then port, both numerically.
///
/// Exhaustive: planners take endpoints that callers build as literals.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Endpoint {
    /// Address.
    pub addr: IpAddr,
    /// Port. Never 0.
    pub port: u16,
    /// Whether the endpoint is on this node.
    pub is_local: bool,
}

/// A service port that changed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PortChange {
    /// Family of the service port.
    pub family: Family,
    /// Name of the service port.
    pub name: Arc<PortName>,
    /// The new value. `None` if the service port was removed.
    pub port: Option<Arc<ServicePort>>,
    /// The value of the last resolve. `None` if the service port is new.
    pub former: Option<Arc<ServicePort>>,
}

impl PortChange {
    /// Creates a change of a service port to itself, for a caller that must plan it again
    /// for another reason.
    pub fn again(port: &Arc<ServicePort>) -> Self {
        Self {
            family: port.family,
            name: Arc::clone(&port.name),
            port: Some(Arc::clone(port)),
            former: Some(Arc::clone(port)),
        }
    }

    /// Creates a change from one value to another. Returns `None` without values.
    pub fn between(
        former: Option<&Arc<ServicePort>>,
        port: Option<&Arc<ServicePort>>,
    ) -> Option<Self> {
        let either = port.or(former)?;
        Some(Self {
            family: either.family,
            name: Arc::clone(&either.name),
            port: port.cloned(),
            former: former.cloned(),
        })
    }
}

impl ServicePort {
    /// Creates a service port with a cluster IP only. It has no endpoints and rejects all
    /// traffic.
    ///
    /// The family is that of the cluster IP, and the protocol that of the name.
    pub fn new(name: Arc<PortName>, cluster_ip: IpAddr, port: u16) -> Self {
        Self {
            family: Family::of(cluster_ip),
            protocol: name.protocol,
            name,
            cluster_ip,
            port,
            node_port: None,
            external_ips: Arc::default(),
            load_balancer_ips: Arc::default(),
            source_ranges: Arc::default(),
            affinity: None,
            scheduler: None,
            preserves_destination: false,
            internal: Route::Reject,
            external: Route::Reject,
            internal_policy_local: false,
            external_policy_local: false,
            is_exposed: false,
            health_check_node_port: None,
            cluster: Arc::default(),
            local: Arc::default(),
            serving: Arc::default(),
            serving_terminating: Arc::default(),
            not_serving: Arc::default(),
            endpoint_count: 0,
        }
    }

    /// Returns the endpoints of a route. [`Route::Drop`] and [`Route::Reject`] have none.
    pub fn endpoints(&self, route: Route) -> &[Endpoint] {
        match route {
            Route::Cluster => &self.cluster,
            Route::Local => &self.local,
            Route::Drop | Route::Reject => &[],
        }
    }

    /// Returns whether an endpoint is usable, on this node or on another one.
    pub fn has_usable_endpoints(&self) -> bool {
        self.internal != Route::Reject
    }

    /// Returns whether pods and processes of this node use the `cluster` list for
    /// external addresses and the node port although the policy is Local.
    ///
    /// Policy Local applies to clients outside the cluster only.
    pub fn has_short_circuit(&self) -> bool {
        self.external_policy_local && !self.cluster.is_empty()
    }

    /// Returns the internal route of a virtual server of IPVS. Without local endpoints it falls
    /// back to `cluster`, a list that exists only if the port also has external addresses or a
    /// node port.
    pub fn internal_or_cluster(&self) -> Route {
        match self.internal {
            Route::Drop if !self.cluster.is_empty() => Route::Cluster,
            route => route,
        }
    }

    /// Returns whether traffic to external addresses and the node port is masqueraded.
    ///
    /// An endpoint on another node must reply by way of this node. Policy Local preserves
    /// the source address instead.
    pub fn masquerades_external(&self) -> bool {
        !self.external_policy_local
    }

    /// Returns whether `spec.loadBalancerSourceRanges` restricts the load balancer IPs.
    pub fn restricts_sources(&self) -> bool {
        !self.load_balancer_ips.is_empty() && !self.source_ranges.is_empty()
    }

    /// Returns whether the source ranges contain the node's address, if it is known.
    ///
    /// If so, processes of the node may use the load balancer IPs. The kernel may select
    /// the load balancer IP itself as the source of their connections, so modes also
    /// allow this source.
    pub fn allows_node(&self, node: Option<IpAddr>) -> bool {
        node.is_some_and(|node| self.source_ranges.iter().any(|range| range.contains(&node)))
    }

    /// Returns the endpoints of `cluster` and `local`, sorted and without duplicates.
    ///
    /// With hints for other zones, the local list may contain endpoints that the
    /// cluster list lacks.
    pub fn reachable(&self) -> Vec<Endpoint> {
        let mut all: Vec<_> = self.cluster.iter().chain(&*self.local).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the [reachable](Self::reachable) endpoints on this node, sorted and
    /// without duplicates.
    pub fn reachable_local(&self) -> Vec<Endpoint> {
        let all = self.cluster.iter().chain(&*self.local);
        let mut here: Vec<_> = all.filter(|each| each.is_local).copied().collect();
        here.sort_unstable();
        here.dedup();
        here
    }

    /// Returns whether the port serves a node port or an external address.
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

/// Displays as `address:port`, with brackets around an IPv6 address.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.addr, self.port).fmt(f)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn endpoints_display_with_brackets_around_ipv6_and_sort_numerically() {
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

    /// Returns a service port with one endpoint on this node and one on another node.
    pub(crate) fn web() -> ServicePort {
        let endpoint = |last, is_local| Endpoint {
            addr: [10, 1, 0, last].into(),
            port: 8080,
            is_local,
        };
        let name = PortName {
            namespace: "default".into(),
            service: "web".into(),
            port: "".into(),
            protocol: Transport::Tcp,
            created: None,
        };
        ServicePort {
            cluster: Arc::new([endpoint(1, true), endpoint(2, false)]),
            local: Arc::new([endpoint(1, true)]),
            ..ServicePort::new(Arc::new(name), [10, 96, 0, 10].into(), 80)
        }
    }

    #[test]
    fn only_the_routes_cluster_and_local_have_endpoints() {
        let web = web();
        for (route, count) in [
            (Route::Cluster, 2),
            (Route::Local, 1),
            (Route::Drop, 0),
            (Route::Reject, 0),
        ] {
            assert_eq!(web.endpoints(route).len(), count, "{route:?}");
            assert_eq!(route.has_endpoints(), count > 0, "{route:?}");
        }
    }

    #[test]
    fn external_policy_local_short_circuits_instead_of_masquerading() {
        let mut web = web();
        assert!(web.masquerades_external() && !web.has_short_circuit());
        web.external_policy_local = true;
        assert!(!web.masquerades_external() && web.has_short_circuit());
        web.cluster = Arc::default();
        assert!(!web.masquerades_external() && !web.has_short_circuit());
    }

    #[test]
    fn source_ranges_apply_to_load_balancer_ips_and_to_the_node() {
        let mut web = web();
        web.source_ranges = Arc::new(["192.168.0.0/16".parse().unwrap()]);
        assert!(!web.restricts_sources());
        web.load_balancer_ips = Arc::new([[203, 0, 113, 9].into()]);
        assert!(web.restricts_sources());
        let node = |text: &str| text.parse().ok();
        assert!(web.allows_node(node("192.168.0.1")));
        for outside in [None, node("10.0.0.1"), node("fd00::1")] {
            assert!(!web.allows_node(outside), "{outside:?}");
        }
    }

    #[test]
    fn an_endpoint_takes_20_bytes() {
        assert_eq!(size_of::<Endpoint>(), 20);
    }
}
