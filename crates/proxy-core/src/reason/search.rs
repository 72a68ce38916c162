//! Search for the service port of a destination, and for the reason of the result.
//!
//! The evaluator says what a packet meets in the rules, but not why the rules are so. This
//! search goes the other way: from the objects of the API to the result that they ask for, with
//! the field that decides. If both differ, the kernel is not what the API says.
//!
//! For example, a client of the cluster connects to 10.96.0.10:81. No service port claims that
//! address and port, so the reasons are tried from the most specific one: no health check, not
//! beyond a limit, but `default/web` has 10.96.0.10 with port 80. That is [`Reason::WrongPort`].
//!
//! What must stay true: the search repeats no rule of a mode, only their order of decisions,
//! and the tests compare it with the evaluated rules. It visits all service ports, because a
//! person asks once; nothing on the path of a packet or of a sync may call it.

use std::net::IpAddr;
use std::sync::Arc;

use vipline_service_model::{
    Endpoint, Family, NodePortMatch, ObjectName, PortName, PortOverLimit, Route, ServicePort,
    Store, Transport,
};

use super::{Expectation, Origin, Question, Reason};
use crate::{AddressKind, Config, Context, Engine, Mode};

/// The objects that a search reads.
///
/// Exhaustive: the result depends on these values alone.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// Configuration of the proxy.
    pub config: &'a Config,
    /// Objects of the API, after a resolve.
    pub store: &'a Store,
    /// Addresses of the node's interfaces, if known.
    pub addresses: &'a [IpAddr],
    /// Context of the family of the destination.
    pub context: Context,
}

impl<'a> Scene<'a> {
    /// Returns the objects of a family, as of the engine's last plan. Call
    /// [`Engine::plan_changes`] before, unless a sync is to be explained. Nothing is read from
    /// the kernel.
    pub fn new(engine: &'a Engine, config: &'a Config, family: Family) -> Self {
        Self {
            config,
            store: engine.store(),
            addresses: engine.addresses(),
            context: engine.context(family),
        }
    }
}

/// Result of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Expected result of the connection attempt.
    pub expectation: Expectation,
    /// Reason for the result.
    pub reason: Reason,
    /// Service port that owns the destination. `None`: no one does.
    pub port: Option<Arc<ServicePort>>,
    /// Kind of the destination address in that service port.
    pub kind: Option<AddressKind>,
    /// Endpoints that may receive the connection.
    pub endpoints: Vec<Endpoint>,
    /// Other service ports that claim the destination, in order of precedence.
    pub rivals: Vec<Arc<PortName>>,
}

/// A claim of a service port to the destination.
struct Claim<'a> {
    kind: AddressKind,
    port: &'a Arc<ServicePort>,
}

impl Scene<'_> {
    /// Returns the reason for the result of a connection attempt to an address of the scene's
    /// family.
    ///
    /// The cost is proportional to the number of service ports.
    pub fn find(&self, question: &Question) -> Finding {
        let family = Family::of(question.destination.ip());
        if !self.config.engine.families.contains(&family) {
            return Finding::unserved(Reason::Family(family));
        }
        let claims = self.claims(question);
        let Some((owner, rivals)) = claims.split_first() else {
            let reason = self.without_owner(question);
            let expectation = self.expectation_of(&reason);
            return Finding {
                expectation,
                ..Finding::unserved(reason)
            };
        };
        let rivals = rivals.iter().map(|claim| Arc::clone(&claim.port.name));
        let (expectation, reason, endpoints) = self.of_owner(owner, question);
        Finding {
            expectation,
            reason,
            port: Some(Arc::clone(owner.port)),
            kind: Some(owner.kind),
            endpoints,
            rivals: rivals.collect(),
        }
    }

    /// Returns the claims to the destination, in order of precedence.
    fn claims(&self, question: &Question) -> Vec<Claim<'_>> {
        let ports = self.store.ports();
        let claims = ports.filter_map(|port| {
            let kind = self.kind(port, question)?;
            Some(Claim { kind, port })
        });
        let mut claims: Vec<_> = claims.collect();
        // The precedence of the ledger: first the kind of the address, then the older Service,
        // which is the order of names.
        claims.sort_by_key(|claim| (claim.kind, Arc::clone(&claim.port.name)));
        let is_node_port = |claim: &Claim<'_>| claim.kind == AddressKind::NodePort;
        let yields = claims
            .first()
            .is_some_and(|first| self.yields_to_node_port(first));
        if let Some(at) = claims.iter().position(is_node_port).filter(|_| yields) {
            // The node port comes first, and all claims before it keep their order behind it.
            claims[..=at].rotate_right(1);
        }
        claims
    }

    /// Returns whether the node port of another service port has precedence. Modes nftables and
    /// iptables refuse connections to external addresses without endpoints only after the
    /// translation of node ports.
    fn yields_to_node_port(&self, claim: &Claim<'_>) -> bool {
        let is_external = matches!(
            claim.kind,
            AddressKind::ExternalIp | AddressKind::LoadBalancerIp
        );
        is_external && !claim.port.has_usable_endpoints() && self.config.mode != Mode::Ipvs
    }

    /// Returns the kind of the destination as an address of a service port.
    fn kind(&self, port: &ServicePort, question: &Question) -> Option<AddressKind> {
        let (addr, number) = (question.destination.ip(), question.destination.port());
        let is_family = port.family == Family::of(addr);
        if port.protocol != question.protocol || !is_family {
            return None;
        }
        // In the order of `AddressKind`, with the node port last: an address may be of several
        // kinds, and its claim is of the first of them (`claim.rs`).
        let of_ip = || {
            if port.cluster_ip == addr {
                Some(AddressKind::ClusterIp)
            } else if port.load_balancer_ips.contains(&addr) {
                Some(AddressKind::LoadBalancerIp)
            } else if port.external_ips.contains(&addr) {
                Some(AddressKind::ExternalIp)
            } else {
                None
            }
        };
        let of_node = port.node_port == Some(number) && self.serves_node_ports(addr);
        let node_port = of_node.then_some(AddressKind::NodePort);
        (port.port == number).then(of_ip).flatten().or(node_port)
    }

    /// Returns whether node ports are served on an address.
    fn serves_node_ports(&self, addr: IpAddr) -> bool {
        let is_loopback = addr.is_loopback();
        match &self.context.nodeport_addresses {
            // Before the other arms, which would say yes: `127.0.0.1` is an address of the node.
            // But other modes serve no node ports there, and iptables only if the configuration
            // says so and its networks include loopback.
            _ if is_loopback => {
                self.config.mode == Mode::Iptables
                    && self.config.iptables.localhost_node_ports
                    && self.context.nodeport_on_loopback
            }
            NodePortMatch::All => self.is_own(addr),
            NodePortMatch::Only(addresses) => addresses.contains(&addr),
        }
    }

    /// Returns whether an address belongs to the node: to the Node object, or to an interface, if
    /// the caller has set those of the interfaces (`Engine::set_addresses`).
    fn is_own(&self, addr: IpAddr) -> bool {
        let node = self.store.node();
        addr.is_loopback() || node.addresses.contains(&addr) || self.addresses.contains(&addr)
    }

    fn of_owner(
        &self,
        owner: &Claim<'_>,
        question: &Question,
    ) -> (Expectation, Reason, Vec<Endpoint>) {
        let port = owner.port;
        let is_internal = owner.kind == AddressKind::ClusterIp;
        let route = self.route(owner, question);
        // Before the route: the rules of a Service with source ranges drop a stranger's packet
        // before an endpoint is chosen.
        if !self.allows(port, question) && self.checks_sources(route, question.origin) {
            let reason = Reason::SourceRanges(Arc::clone(&port.source_ranges));
            return (Expectation::Dropped, reason, Vec::new());
        }
        let endpoints = port.endpoints(route).to_vec();
        let (expectation, reason) = match route {
            Route::Cluster | Route::Local => (Expectation::Reachable, Reason::Served),
            Route::Drop if is_internal => (self.without_server(), Reason::InternalPolicyLocal),
            Route::Drop => (self.without_server(), Reason::ExternalPolicyLocal),
            Route::Reject if port.endpoint_count == 0 => {
                let found = self.store.slice_ports(port);
                // Slices with other ports or families are the usual cause of a Service that has
                // ready pods and no endpoints, and nothing else shows it.
                let reason = if found.is_empty() {
                    Reason::NoEndpoints
                } else {
                    Reason::OtherPorts {
                        wanted: (port.family, port.name.port.to_string(), port.protocol),
                        found,
                    }
                };
                (self.without_endpoints(owner, question), reason)
            }
            Route::Reject => {
                let count = port.endpoint_count;
                let expectation = self.without_endpoints(owner, question);
                (expectation, Reason::NotReady { count })
            }
        };
        (expectation, reason, endpoints)
    }

    /// Returns the route of a connection attempt.
    ///
    /// Mode ipvs cannot distinguish sources: without local endpoints all clients get the
    /// endpoints of the cluster.
    fn route(&self, owner: &Claim<'_>, question: &Question) -> Route {
        let port = owner.port;
        let is_inside = question.origin != Origin::Outside;
        match self.config.mode {
            Mode::Ipvs if owner.kind == AddressKind::ClusterIp => port.internal_or_cluster(),
            _ if owner.kind == AddressKind::ClusterIp => port.internal,
            Mode::Ipvs if port.external == Route::Drop && !port.cluster.is_empty() => {
                Route::Cluster
            }
            Mode::Ipvs => port.external,
            _ if is_inside && port.has_short_circuit() => Route::Cluster,
            _ => port.external,
        }
    }

    /// Returns whether source ranges decide. Without endpoints, mode iptables rejects all
    /// connections, and IPVS those of the node, which it schedules before the rules.
    fn checks_sources(&self, route: Route, origin: Origin) -> bool {
        match self.config.mode {
            _ if route != Route::Reject => true,
            Mode::Iptables => false,
            Mode::Ipvs => origin != Origin::Node,
            _ => true,
        }
    }

    /// Returns the result without endpoints. In mode iptables no chain of hook `OUTPUT` refuses
    /// external addresses, so that processes of the node send such packets out.
    fn without_endpoints(&self, owner: &Claim<'_>, question: &Question) -> Expectation {
        let is_external = matches!(
            owner.kind,
            AddressKind::ExternalIp | AddressKind::LoadBalancerIp
        );
        let leaves = question.origin == Origin::Node && !self.is_own(question.destination.ip());
        match self.config.mode {
            Mode::Iptables if is_external && leaves => Expectation::Unserved,
            _ => Expectation::Refused,
        }
    }

    /// Returns the result if policy Local leaves no endpoint. Mode ipvs rejects.
    fn without_server(&self) -> Expectation {
        match self.config.mode {
            Mode::Ipvs => Expectation::Refused,
            _ => Expectation::Dropped,
        }
    }

    /// Returns whether the source ranges of a service port allow a connection attempt.
    ///
    /// The kernel may select the load balancer IP itself as the source of a process of the
    /// node. In mode iptables the rule of an external IP precedes that of the same load balancer
    /// IP.
    fn allows(&self, port: &ServicePort, question: &Question) -> bool {
        let addr = question.destination.ip();
        let is_open = self.config.mode == Mode::Iptables && port.external_ips.contains(&addr);
        let is_restricted =
            port.restricts_sources() && port.load_balancer_ips.contains(&addr) && !is_open;
        let mut ranges = port.source_ranges.iter();
        !is_restricted
            || ranges.any(|range| range.contains(&question.source))
            || question.source == addr && port.allows_node(self.context.node_address)
    }

    /// Returns the reason why no service port owns the destination.
    fn without_owner(&self, question: &Question) -> Reason {
        let addr = question.destination.ip();
        // From the most specific reason to the most general one: a wrong port of a Service would
        // hide that the port exists beyond the limit, and any address has an unknown port.
        self.health_check(question)
            .or_else(|| self.port_over_limit(question))
            .or_else(|| self.wrong_port(addr))
            .or_else(|| self.wrong_node_port(question))
            .or_else(|| self.unserved(addr))
            .or_else(|| self.skipped(question))
            .or_else(|| self.direct(question))
            .unwrap_or_else(|| {
                if self.is_own(addr) {
                    Reason::NoNodePort
                } else if self.is_cluster_ip(addr) {
                    Reason::UnusedClusterIp
                } else {
                    Reason::UnknownAddress
                }
            })
    }

    fn is_cluster_ip(&self, addr: IpAddr) -> bool {
        let mut networks = self.context.service_cidrs.iter();
        networks.any(|network| network.contains(&addr))
    }

    /// Returns the Service that has the destination beyond its limit.
    fn port_over_limit(&self, question: &Question) -> Option<Reason> {
        let (addr, number) = (question.destination.ip(), question.destination.port());
        let serves_node_ports = self.serves_node_ports(addr);
        let mut found = self
            .store
            .ports_over_limit()
            .filter_map(|(service, ports)| {
                // A port beyond the limit is no service port and has no addresses. Those of its
                // Service stand in the ports before it, with which the limit was reached.
                let mut served = self.store.ports_of(service).iter();
                let has_addr = served.any(|port| has_addr(port, addr));
                let is_asked = |port: &&PortOverLimit| port.protocol == question.protocol;
                let mut ports = ports.iter().filter(is_asked);
                let is_node_port = ports.find_map(|port| {
                    if has_addr && port.port == number {
                        Some(false)
                    } else if serves_node_ports && port.node_port == Some(number) {
                        Some(true)
                    } else {
                        None
                    }
                })?;
                Some(Reason::PortOverLimit {
                    service: service.clone(),
                    protocol: question.protocol,
                    port: number,
                    is_node_port,
                })
            });
        found.next()
    }

    /// Returns the Service that has the address with other ports. If several have it, the oldest is
    /// named, but the ports of all are listed: each of them answers there.
    fn wrong_port(&self, addr: IpAddr) -> Option<Reason> {
        let ports = self.store.ports().filter(|port| has_addr(port, addr));
        let mut ports: Vec<_> = ports.collect();
        ports.sort_by_key(|port| Arc::clone(&port.name));
        let service = ports.first()?.name.service_name();
        let served = ports.iter().map(|port| (port.protocol, port.port));
        let mut served: Vec<_> = served.collect();
        served.sort_unstable();
        served.dedup();
        Some(Reason::WrongPort { service, served })
    }

    /// Returns the owner of a node port that is not served at this address of the node. On any
    /// other address the number means nothing: it may be that of a pod or of a server elsewhere.
    fn wrong_node_port(&self, question: &Question) -> Option<Reason> {
        let destination = question.destination;
        let has_node_port = |port: &&Arc<ServicePort>| {
            let is_protocol = port.protocol == question.protocol;
            let is_family = port.family == Family::of(destination.ip());
            is_protocol && is_family && port.node_port == Some(destination.port())
        };
        let owners = self
            .store
            .ports()
            .filter(has_node_port)
            .map(|port| &port.name);
        // The oldest, so that two questions get one answer: `ports` has no order.
        let owner = Arc::clone(owners.min()?);
        self.is_own(destination.ip())
            .then_some(Reason::NodePortAddress { owner })
    }

    /// Returns the Service whose health checks the proxy answers at the destination.
    fn health_check(&self, question: &Question) -> Option<Reason> {
        let destination = question.destination;
        if question.protocol != Transport::Tcp || !self.is_own(destination.ip()) {
            return None;
        }
        let asked = Some(destination.port());
        let ports = self.store.ports();
        let owners = ports.filter(|port| port.health_check_node_port == asked);
        let service = owners.map(|port| port.name.service_name()).min()?;
        Some(Reason::HealthCheck { service })
    }

    /// Returns the Service of which this one address is not served, with any port.
    fn unserved(&self, addr: IpAddr) -> Option<Reason> {
        let mut found = self.store.unserved();
        let (service, unserved) = found.find(|(_, unserved)| unserved.addr == addr)?;
        Some(Reason::Unserved {
            service: service.clone(),
            reason: unserved.reason,
        })
    }

    /// Returns a Service with the destination that is not served at all. Its addresses count with
    /// any port, because the wrong port would not be served either.
    fn skipped(&self, question: &Question) -> Option<Reason> {
        let (addr, number) = (question.destination.ip(), question.destination.port());
        let is_own = self.is_own(addr);
        let mut found = self.store.skipped();
        let (service, skipped) = found.find(|(_, skipped)| {
            let is_node_port = skipped.node_ports.contains(&(question.protocol, number));
            skipped.addresses.contains(&addr) || is_own && is_node_port
        })?;
        Some(Reason::skipped(service, skipped))
    }

    /// Returns the oldest service port of the protocol that has the destination among its
    /// endpoints: the client connects to a pod without a Service.
    fn direct(&self, question: &Question) -> Option<Reason> {
        let destination = question.destination;
        let is_asked = |endpoint: &Endpoint| {
            endpoint.addr == destination.ip() && endpoint.port == destination.port()
        };
        let ports = self.store.ports();
        // A name server has an endpoint port of the same number for UDP and for TCP.
        let owners = ports
            .filter(|port| port.protocol == question.protocol && port.serving.iter().any(is_asked));
        let owner = Arc::clone(&owners.min_by_key(|port| Arc::clone(&port.name))?.name);
        Some(Reason::Direct { owner })
    }

    /// Returns the expected result for a destination without an owner.
    ///
    /// [`Expectation::Unserved`] says only that no endpoint may be reached. How such packets end
    /// is known from the rules alone: modes nftables and ipvs reject other ports of a cluster IP,
    /// and in mode iptables they leave the node.
    fn expectation_of(&self, reason: &Reason) -> Expectation {
        match (self.config.mode, reason) {
            // The proxy itself listens: it has an answer, but no rule.
            (_, Reason::HealthCheck { .. }) => Expectation::Unserved,
            // The packet is for the node, on whose port nothing listens as far as the API says. The
            // same holds for a node port beyond the limit.
            (_, Reason::NoNodePort | Reason::NodePortAddress { .. }) => Expectation::Refused,
            (_, Reason::PortOverLimit { is_node_port, .. }) if *is_node_port => {
                Expectation::Refused
            }
            // `unused_cluster_ips` of `nftables/plan/base/checks.rs`. No other mode has this rule.
            (Mode::Nftables, Reason::UnusedClusterIp) => Expectation::Dropped,
            _ => Expectation::Unserved,
        }
    }
}

/// Returns whether a service port has an address, besides node ports.
fn has_addr(port: &ServicePort, addr: IpAddr) -> bool {
    port.cluster_ip == addr
        || port.external_ips.contains(&addr)
        || port.load_balancer_ips.contains(&addr)
}

impl Finding {
    /// Returns the finding that no service port serves the destination.
    pub(super) fn unserved(reason: Reason) -> Self {
        Self {
            expectation: Expectation::Unserved,
            reason,
            port: None,
            kind: None,
            endpoints: Vec::new(),
            rivals: Vec::new(),
        }
    }

    /// Returns whether a Service owns the destination.
    pub fn is_of(&self, service: &ObjectName) -> bool {
        let port = self.port.as_ref();
        port.is_some_and(|port| port.name.service_name() == *service)
    }
}
