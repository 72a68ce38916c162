//! The current endpoints of frontends, to decide whether a flow is stale.
//!
//! The kernel selects an endpoint for the first packet of a flow and keeps it while
//! packets arrive. A client that reuses its port would stay with a removed endpoint. So
//! after each sync all flows are compared with the current endpoints.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_conntrack::{Flow, Protocol, Status};
use vipline_reconcile::{Edit, Keyed, Ledger, Pending};
use vipline_service_model::{self as service_model, Endpoint, Family, PortName, ServicePort};

use crate::claim::addresses;
use crate::context::is_of_one_link;
use crate::{Address, AddressKind};

/// The frontends and their service ports.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// The service port that owns each frontend, by the precedence of the rules. Flows of
    /// a frontend to endpoints of other service ports are stale.
    frontends: Ledger<Claimant, Claim>,
    /// Reused buffer for edits while a service port is replaced.
    edits: Pending<Claim>,
    /// Frontends that lost their last service port. All their flows are stale.
    removed: HashMap<Family, HashSet<Frontend>>,
    /// Number of frontends by family and protocol, including removed ones.
    counts: HashMap<(Family, Protocol), usize>,
    /// Node addresses on which node ports are served.
    node: HashMap<Family, HashSet<IpAddr>>,
}

/// Owner of claims in the ledger, in order of precedence.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Claimant {
    kind: AddressKind,
    name: Arc<PortName>,
    family: Family,
}

/// Claim of a service port to a frontend.
#[derive(Clone, Debug)]
struct Claim {
    frontend: Frontend,
    port: Arc<ServicePort>,
}

impl Keyed for Claim {
    type Key<'a> = Frontend;

    fn key(&self) -> Frontend {
        self.frontend
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.port, &other.port)
    }
}

/// Destination that clients send to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Frontend {
    Address(Protocol, IpAddr, u16),
    /// All node addresses on which node ports are served.
    NodePort(Protocol, Family, u16),
}

impl Served {
    /// Adds or replaces a service port.
    pub(super) fn set(&mut self, port: &Arc<ServicePort>) {
        let mut by_kind: [Vec<Claim>; AddressKind::ALL.len()] = Default::default();
        for (kind, frontend) in frontends(port) {
            let port = Arc::clone(port);
            by_kind[kind as usize].push(Claim { frontend, port });
        }
        self.replace(&port.name, port.family, by_kind);
    }

    /// Removes a service port.
    pub(super) fn remove(&mut self, name: &Arc<PortName>, family: Family) {
        self.replace(name, family, Default::default());
    }

    fn replace(
        &mut self,
        name: &Arc<PortName>,
        family: Family,
        by_kind: [Vec<Claim>; AddressKind::ALL.len()],
    ) {
        for (kind, claims) in AddressKind::ALL.into_iter().zip(by_kind) {
            let name = Arc::clone(name);
            let owner = Claimant { kind, name, family };
            let edits = Some(&mut self.edits);
            self.frontends.replace(owner, claims, edits);
        }
        let removed = self.removed.entry(family).or_default();
        for edit in self.edits.take() {
            match edit {
                Edit::Add(Claim { frontend, .. }) => {
                    if !removed.remove(&frontend) {
                        *self.counts.entry(frontend.kind()).or_default() += 1;
                    }
                }
                Edit::Remove(Claim { frontend, .. }) => drop(removed.insert(frontend)),
                Edit::Change { .. } => {}
            }
        }
    }

    /// Sets the node addresses on which node ports of a family are served. Returns
    /// whether they changed.
    pub(super) fn set_node(
        &mut self,
        family: Family,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> bool {
        let addresses: HashSet<_> = addresses.into_iter().collect();
        let before = self.node.insert(family, addresses);
        before.as_ref() != self.node.get(&family)
    }

    /// Returns the protocols of current and removed frontends.
    pub(super) fn protocols(&self, family: Family) -> HashSet<Protocol> {
        let counts = self.counts.iter().filter(|(_, count)| **count > 0);
        let kinds = counts.map(|(kind, _)| *kind);
        let of_family = kinds.filter(|(of, _)| *of == family);
        of_family.map(|(_, protocol)| protocol).collect()
    }

    /// Drops the removed frontends of a family, after all their flows were deleted.
    pub(super) fn forget_removed(&mut self, family: Family) {
        for frontend in self.removed.remove(&family).unwrap_or_default() {
            if let Some(count) = self.counts.get_mut(&frontend.kind()) {
                *count -= 1;
            }
        }
    }

    /// Returns whether a flow leads to an endpoint that no longer serves.
    ///
    /// A flow that is older than its Service leads to the address of the Service itself,
    /// so it is stale.
    ///
    /// Flows of TCP and SCTP are stale only without a reply; established connections may
    /// drain. Flows of other conntrack zones are ignored, because the rules use the
    /// default zone.
    pub(super) fn is_stale(&self, flow: &Flow) -> bool {
        let protocol = flow.original.protocol;
        let is_answered = flow.status.contains(Status::SEEN_REPLY);
        if flow.zone_id() != 0 || (protocol != Protocol::UDP && is_answered) {
            return false;
        }
        let (Some(port), Some(server_port)) =
            (flow.original.destination_port(), flow.reply.source_port())
        else {
            return false;
        };
        let (address, server) = (flow.original.destination, flow.reply.source);
        let server = SocketAddr::new(server, server_port);
        let own = self.serving(Frontend::Address(protocol, address, port));
        // For an address of one link, another program may use the port number. A
        // translated flow is a flow of the node port, because packets to such addresses
        // are never forwarded.
        let is_node = || match is_of_one_link(address) {
            true => flow.is_translated(),
            false => self.is_node(address),
        };
        let node_port = Frontend::NodePort(protocol, Family::of(address), port);
        let node_port = || self.serving(node_port).filter(|_| is_node());
        let serving = own.or_else(node_port);
        serving.is_some_and(|port| !port.is_some_and(|port| is_served(port, server)))
    }

    /// Returns the service port that owns a frontend, `Some(None)` for a removed
    /// frontend, and `None` for a frontend that was never ours.
    fn serving(&self, frontend: Frontend) -> Option<Option<&ServicePort>> {
        let claim = self.frontends.get(&frontend);
        let port = claim.map(|claim| Some(&*claim.port));
        let removed = self.removed.get(&frontend.kind().0);
        let is_removed = || removed.is_some_and(|removed| removed.contains(&frontend));
        port.or_else(|| is_removed().then_some(None))
    }

    /// Returns whether node ports are served on an address.
    fn is_node(&self, address: IpAddr) -> bool {
        let addresses = self.node.get(&Family::of(address));
        addresses.is_some_and(|addresses| addresses.contains(&address))
    }
}

impl Frontend {
    /// Returns family and protocol of the frontend.
    fn kind(&self) -> (Family, Protocol) {
        match *self {
            Self::Address(protocol, address, _) => (Family::of(address), protocol),
            Self::NodePort(protocol, family, _) => (family, protocol),
        }
    }
}

/// Returns whether an endpoint of a service port has this address.
fn is_served(port: &ServicePort, server: SocketAddr) -> bool {
    let place = |endpoint: &Endpoint| (endpoint.addr, endpoint.port);
    let wanted = (server.ip(), server.port());
    port.serving.binary_search_by_key(&wanted, place).is_ok()
}

/// Returns the frontends of a service port, with their kinds.
fn frontends(port: &ServicePort) -> impl Iterator<Item = (AddressKind, Frontend)> {
    addresses(port).map(|(address, kind)| {
        let frontend = match address {
            Address::Ip(ip, of, number) => Frontend::Address(protocol(of), ip, number),
            Address::NodePort(of, number) => Frontend::NodePort(protocol(of), port.family, number),
        };
        (kind, frontend)
    })
}

fn protocol(protocol: service_model::Protocol) -> Protocol {
    match protocol {
        service_model::Protocol::Tcp => Protocol::TCP,
        service_model::Protocol::Udp => Protocol::UDP,
        service_model::Protocol::Sctp => Protocol::SCTP,
    }
}

#[cfg(test)]
mod tests {
    use vipline_conntrack::Tuple;
    use vipline_service_model::{Protocol as ServiceProtocol, Route, Timestamp};

    use super::*;

    const CLUSTER_IP: &str = "10.96.0.10:53";
    const NODE: &str = "192.0.2.10:30053";

    fn name(service: &str) -> Arc<PortName> {
        Arc::new(PortName {
            namespace: "kube-system".into(),
            service: service.into(),
            port: "dns".into(),
            protocol: ServiceProtocol::Udp,
            created: None,
        })
    }

    /// Returns a Service with all kinds of addresses and the endpoints 10.1.0.N.
    fn dns(service: &str, serving: &[u8]) -> ServicePort {
        let endpoint = |last: &u8| Endpoint {
            addr: [10, 1, 0, *last].into(),
            port: 5353,
            is_local: false,
        };
        let name = name(service);
        ServicePort {
            node_port: Some(30053),
            external_ips: Arc::new([[203, 0, 113, 1].into()]),
            load_balancer_ips: Arc::new([[203, 0, 113, 2].into()]),
            internal: Route::Cluster,
            external: Route::Cluster,
            is_exposed: true,
            serving: serving.iter().map(endpoint).collect(),
            ..ServicePort::new(name, [10, 96, 0, 10].into(), 53)
        }
    }

    fn served(serving: &[u8]) -> Served {
        let mut served = Served::default();
        assert!(served.set_node(Family::V4, [[192, 0, 2, 10].into()]));
        served.set(&dns("dns", serving).into());
        served
    }

    /// Returns a flow of a client to an address, translated to a server.
    fn flow(protocol: Protocol, to: &str, server: &str, status: Status) -> Flow {
        let client = SocketAddr::from(([10, 1, 9, 9], 40000));
        let pair = |at: SocketAddr| (at.ip(), at.port());
        let (client, to, server) = (pair(client), to.parse().unwrap(), server.parse().unwrap());
        let original = Tuple::ports(protocol, client, pair(to));
        let mut flow = Flow::new(original, Tuple::ports(protocol, pair(server), client));
        flow.status = status;
        flow
    }

    fn is_stale(served: &Served, to: &str, server: &str) -> bool {
        served.is_stale(&flow(Protocol::UDP, to, server, Status::SEEN_REPLY))
    }

    #[test]
    fn flows_to_endpoints_that_serve_stay_and_others_are_stale() {
        let served = served(&[1, 2]);
        for to in [CLUSTER_IP, "203.0.113.1:53", "203.0.113.2:53", NODE] {
            for (server, expected) in [
                ("10.1.0.1:5353", false),
                ("10.1.0.2:5353", false),
                ("10.1.0.3:5353", true),
                ("10.1.0.1:5354", true),
                // The flow is older than its Service.
                (to, true),
            ] {
                assert_eq!(is_stale(&served, to, server), expected, "{to} {server}");
            }
        }
    }

    #[test]
    fn flows_to_unknown_frontends_are_never_stale() {
        let served = served(&[1]);
        for to in [
            "10.96.0.10:54",
            "10.96.0.11:53",
            // Node ports of another node, and an address without node ports.
            "192.0.2.11:30053",
            "192.0.2.10:53",
        ] {
            assert!(!is_stale(&served, to, "10.1.0.3:5353"), "{to}");
            assert!(!is_stale(&served, to, to), "{to}");
        }
        let localhost = "127.0.0.1:30053";
        assert!(!is_stale(&served, localhost, localhost));
        assert!(is_stale(&served, localhost, "10.1.0.3:5353"));
        let port = ServicePort {
            family: Family::V6,
            ..dns("dns", &[])
        };
        let mut v6 = Served::default();
        v6.set(&port.into());
        let link_local = "[fe80::1]:30053";
        assert!(!is_stale(&v6, link_local, link_local));
        assert!(is_stale(&v6, link_local, "[fd00::1]:5353"));
        let mut zoned = flow(Protocol::UDP, CLUSTER_IP, "10.1.0.3:5353", Status::empty());
        assert!(served.is_stale(&zoned));
        zoned.zone = Some(7);
        assert!(!served.is_stale(&zoned));
        let tcp = flow(Protocol::TCP, CLUSTER_IP, "10.1.0.3:5353", Status::empty());
        assert!(!served.is_stale(&tcp), "the Service is of UDP");
    }

    #[test]
    fn tcp_and_sctp_flows_are_stale_only_without_a_reply() {
        for (protocol, of_service) in [
            (Protocol::TCP, ServiceProtocol::Tcp),
            (Protocol::SCTP, ServiceProtocol::Sctp),
        ] {
            let mut served = Served::default();
            served.set(&Arc::new(ServicePort {
                protocol: of_service,
                ..dns("dns", &[1])
            }));
            let judge = |server, status| {
                let flow = flow(protocol, CLUSTER_IP, server, status);
                served.is_stale(&flow)
            };
            assert!(judge("10.1.0.3:5353", Status::empty()));
            assert!(judge(CLUSTER_IP, Status::empty()));
            assert!(!judge("10.1.0.1:5353", Status::empty()));
            assert!(!judge("10.1.0.3:5353", Status::SEEN_REPLY));
            assert!(!judge(
                "10.1.0.3:5353",
                Status::SEEN_REPLY | Status::ASSURED
            ));
        }
    }

    #[test]
    fn flows_of_removed_endpoints_and_frontends_are_stale() {
        let mut served = served(&[1]);
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        served.set(&dns("dns", &[]).into());
        for to in [CLUSTER_IP, NODE] {
            assert!(is_stale(&served, to, "10.1.0.1:5353"));
        }
        served.set(&dns("dns", &[1, 2]).into());
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        // Only current addresses count, not former ones.
        served.set(&Arc::new(ServicePort {
            external_ips: Arc::default(),
            ..dns("dns", &[1, 2])
        }));
        assert!(is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
        served.forget_removed(Family::V6);
        assert!(is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
        served.forget_removed(Family::V4);
        assert!(!is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
        served.remove(&name("dns"), Family::V4);
        assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        served.forget_removed(Family::V4);
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        assert!(served.frontends.is_empty() && served.protocols(Family::V4).is_empty());
    }

    /// Returns a Service with the addresses of `dns`, created on a day of January 2026.
    fn created(service: &str, day: u8, serving: &[u8]) -> ServicePort {
        let port = dns(service, serving);
        let created = Timestamp::parse(&format!("2026-01-{day:02}T00:00:00Z"));
        let name = PortName::clone(&port.name);
        let name = Arc::new(PortName { created, ..name });
        ServicePort { name, ..port }
    }

    #[test]
    fn flows_of_a_contested_address_are_stale_unless_they_lead_to_its_owner() {
        let older = Arc::new(created("older", 1, &[1]));
        let younger = Arc::new(created("younger", 2, &[2]));
        for ports in [[&older, &younger], [&younger, &older]] {
            let mut served = Served::default();
            ports.into_iter().for_each(|port| served.set(port));
            for (server, expected) in [
                ("10.1.0.1:5353", false),
                ("10.1.0.2:5353", true),
                ("10.1.0.3:5353", true),
            ] {
                assert_eq!(is_stale(&served, CLUSTER_IP, server), expected);
            }
            served.remove(&older.name, Family::V4);
            assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
            assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
        }
    }

    #[test]
    fn flows_to_a_cluster_ip_that_an_older_service_has_as_its_external_ip_are_stale() {
        let webhook = Arc::new(created("webhook", 2, &[2]));
        let mut evil = created("evil", 1, &[1]);
        evil.cluster_ip = [10, 96, 0, 99].into();
        evil.external_ips = Arc::new([webhook.cluster_ip]);
        let evil = Arc::new(evil);
        for ports in [[&webhook, &evil], [&evil, &webhook]] {
            let mut served = Served::default();
            ports.into_iter().for_each(|port| served.set(port));
            assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
            assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
        }
    }

    #[test]
    fn the_cost_of_an_address_does_not_grow_with_their_number() {
        let growth = testkit::cpu::growth_per_item(250, 16_000, |count| {
            let address = |number: u32| IpAddr::V4((0x0b00_0000 + number).into());
            let mut port = dns("dns", &[1]);
            port.external_ips = (0..count).map(address).collect();
            port.load_balancer_ips = (count / 2..count + count / 2).map(address).collect();
            let mut served = Served::default();
            served.set(&Arc::new(port));
            assert_eq!(served.frontends.len(), 2 + (count + count / 2) as usize);
        });
        assert!(growth < 3.0, "{growth:.2} times as much per address");
    }
}
