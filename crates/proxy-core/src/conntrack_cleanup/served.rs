//! Which tracked flows lead where nobody serves any more.
//!
//! An endpoint is chosen for the first packet of a flow, and the kernel keeps to
//! it for as long as packets come: a client that keeps its port would be led to
//! an endpoint long gone. So after a sync each flow is compared with what is
//! served *now*; what was missed once is found the next time.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_conntrack::{Flow, Protocol, Status};
use vipline_service_model::{self as service_model, Endpoint, Family, PortName, ServicePort};

/// What is served, as far as it tells which flows are stale.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Who serves where. Nobody does where the last one who did has gone: flows
    /// to it are stale.
    ///
    /// Where several do, flows to the endpoints of any of them are left alone.
    frontends: HashMap<Frontend, Vec<Arc<ServicePort>>>,
    /// Those where nobody serves any more.
    gone: HashMap<Family, HashSet<Frontend>>,
    /// How many there are in each protocol.
    counts: HashMap<(Family, Protocol), usize>,
    /// What serves.
    ports: HashMap<(Family, Arc<PortName>), Arc<ServicePort>>,
    /// The node's addresses that node ports are served on.
    node: HashMap<Family, HashSet<IpAddr>>,
}

/// Where clients send to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Frontend {
    Address(Protocol, IpAddr, u16),
    /// All addresses of the node that node ports are served on.
    NodePort(Protocol, Family, u16),
}

impl Served {
    /// Takes in a service port as it is now.
    pub(super) fn set(&mut self, port: &Arc<ServicePort>) {
        self.remove(&port.name, port.family);
        for frontend in frontends(port) {
            self.gone.entry(port.family).or_default().remove(&frontend);
            match self.frontends.entry(frontend) {
                Entry::Occupied(mut entry) => entry.get_mut().push(Arc::clone(port)),
                Entry::Vacant(entry) => {
                    // There is seldom another.
                    entry.insert(Vec::from([Arc::clone(port)]));
                    *self.counts.entry(frontend.kind()).or_default() += 1;
                }
            }
        }
        let key = (port.family, Arc::clone(&port.name));
        self.ports.insert(key, Arc::clone(port));
    }

    /// Takes in that a service port is gone.
    pub(super) fn remove(&mut self, name: &Arc<PortName>, family: Family) {
        let Some(gone) = self.ports.remove(&(family, Arc::clone(name))) else {
            return;
        };
        for frontend in frontends(&gone) {
            if let Some(ports) = self.frontends.get_mut(&frontend) {
                ports.retain(|port| !Arc::ptr_eq(port, &gone));
                if ports.is_empty() {
                    self.gone.entry(family).or_default().insert(frontend);
                }
            }
        }
    }

    /// Takes in the node's addresses that node ports of a family are served on;
    /// tells whether they are others than before.
    pub(super) fn set_node(
        &mut self,
        family: Family,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> bool {
        let addresses: HashSet<_> = addresses.into_iter().collect();
        let before = self.node.insert(family, addresses);
        before.as_ref() != self.node.get(&family)
    }

    /// Returns the protocols in which anybody serves, or did.
    pub(super) fn protocols(&self, family: Family) -> HashSet<Protocol> {
        let counts = self.counts.iter().filter(|(_, count)| **count > 0);
        let kinds = counts.map(|(kind, _)| *kind);
        let of_family = kinds.filter(|(of, _)| *of == family);
        of_family.map(|(_, protocol)| protocol).collect()
    }

    /// Forgets in a family where nobody serves any more: no flow is left there.
    pub(super) fn forget_gone(&mut self, family: Family) {
        for frontend in self.gone.remove(&family).unwrap_or_default() {
            self.frontends.remove(&frontend);
            if let Some(count) = self.counts.get_mut(&frontend.kind()) {
                *count -= 1;
            }
        }
    }

    /// Tells whether a flow leads where nobody serves any more.
    ///
    /// One that was made before its Service leads to the Service's own address,
    /// where nobody serves either.
    ///
    /// Of TCP and SCTP only flows that nobody ever answered are: all others tell
    /// when they end, and may take their time. Flows of other zones than that of
    /// the rules are somebody else's.
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
        let own = Frontend::Address(protocol, address, port);
        let ports = self.frontends.get(&own);
        // What asks a node port of loopback may mean somebody else there, unless
        // it was led elsewhere.
        let is_node = || match address.is_loopback() {
            true => flow.is_translated(),
            false => self.is_node(address),
        };
        let node_port = Frontend::NodePort(protocol, Family::of(address), port);
        let node_port = || self.frontends.get(&node_port).filter(|_| is_node());
        let ports = ports.or_else(node_port);
        ports.is_some_and(|ports| !ports.iter().any(|port| is_served(port, server)))
    }

    /// Tells whether node ports are served on an address.
    fn is_node(&self, address: IpAddr) -> bool {
        let addresses = self.node.get(&Family::of(address));
        addresses.is_some_and(|addresses| addresses.contains(&address))
    }
}

impl Frontend {
    /// Returns its family and its protocol.
    fn kind(&self) -> (Family, Protocol) {
        match *self {
            Self::Address(protocol, address, _) => (Family::of(address), protocol),
            Self::NodePort(protocol, family, _) => (family, protocol),
        }
    }
}

/// Tells whether a service port is served by an endpoint at an address.
fn is_served(port: &ServicePort, server: SocketAddr) -> bool {
    let place = |endpoint: &Endpoint| (endpoint.addr, endpoint.port);
    let wanted = (server.ip(), server.port());
    port.serving.binary_search_by_key(&wanted, place).is_ok()
}

/// Returns where clients reach a service port.
fn frontends(port: &ServicePort) -> Vec<Frontend> {
    let protocol = protocol(port.protocol);
    let own = [port.cluster_ip].into_iter();
    let addresses = own
        .chain(port.external_ips.iter().copied())
        .chain(port.load_balancer_ips.iter().copied());
    let mut frontends: Vec<_> = addresses
        .map(|address| Frontend::Address(protocol, address, port.port))
        .collect();
    let node_port = port.node_port.into_iter();
    frontends.extend(node_port.map(|number| Frontend::NodePort(protocol, port.family, number)));
    frontends
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
    use vipline_service_model::{Protocol as ServiceProtocol, Route};

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

    /// A Service at all kinds of addresses, served by 10.1.0.N.
    fn dns(service: &str, serving: &[u8]) -> ServicePort {
        let endpoint = |last: &u8| Endpoint {
            addr: [10, 1, 0, *last].into(),
            port: 5353,
            is_local: false,
        };
        ServicePort {
            name: name(service),
            family: Family::V4,
            protocol: ServiceProtocol::Udp,
            cluster_ip: [10, 96, 0, 10].into(),
            port: 53,
            node_port: Some(30053),
            external_ips: Arc::new([[203, 0, 113, 1].into()]),
            load_balancer_ips: Arc::new([[203, 0, 113, 2].into()]),
            source_ranges: Arc::default(),
            affinity: None,
            scheduler: None,
            internal: Route::Cluster,
            external: Route::Cluster,
            internal_policy_local: false,
            external_policy_local: false,
            is_exposed: true,
            health_check_node_port: None,
            cluster: Arc::default(),
            local: Arc::default(),
            serving: serving.iter().map(endpoint).collect(),
            leaving: Arc::default(),
            known: 0,
        }
    }

    fn served(serving: &[u8]) -> Served {
        let mut served = Served::default();
        assert!(served.set_node(Family::V4, [[192, 0, 2, 10].into()]));
        served.set(&dns("dns", serving).into());
        served
    }

    /// A flow of a client to an address that was led to a server.
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
                // It was made before its Service.
                (to, true),
            ] {
                assert_eq!(is_stale(&served, to, server), expected, "{to} {server}");
            }
        }
    }

    #[test]
    fn flows_to_other_places_are_none_of_ours() {
        let served = served(&[1]);
        for to in [
            "10.96.0.10:54",
            "10.96.0.11:53",
            // Node ports of another node, and of an address without node ports.
            "192.0.2.11:30053",
            "192.0.2.10:53",
        ] {
            assert!(!is_stale(&served, to, "10.1.0.3:5353"), "{to}");
            assert!(!is_stale(&served, to, to), "{to}");
        }
        let localhost = "127.0.0.1:30053";
        assert!(!is_stale(&served, localhost, localhost));
        assert!(is_stale(&served, localhost, "10.1.0.3:5353"));
        let mut zoned = flow(Protocol::UDP, CLUSTER_IP, "10.1.0.3:5353", Status::empty());
        assert!(served.is_stale(&zoned));
        zoned.zone = Some(7);
        assert!(!served.is_stale(&zoned));
        let tcp = flow(Protocol::TCP, CLUSTER_IP, "10.1.0.3:5353", Status::empty());
        assert!(!served.is_stale(&tcp), "the Service is of UDP");
    }

    #[test]
    fn of_tcp_and_sctp_only_flows_without_an_answer_are_stale() {
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
    fn who_had_many_or_one_and_has_none_serves_nobody() {
        let mut served = served(&[1]);
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        served.set(&dns("dns", &[]).into());
        for to in [CLUSTER_IP, NODE] {
            assert!(is_stale(&served, to, "10.1.0.1:5353"));
        }
        served.set(&dns("dns", &[1, 2]).into());
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        // Its own addresses count, not those it had.
        served.set(&Arc::new(ServicePort {
            external_ips: Arc::default(),
            ..dns("dns", &[1, 2])
        }));
        assert!(is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
        served.forget_gone(Family::V6);
        assert!(is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
        served.forget_gone(Family::V4);
        assert!(!is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
        served.remove(&name("dns"), Family::V4);
        assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        served.forget_gone(Family::V4);
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        assert!(served.frontends.is_empty() && served.ports.is_empty());
    }

    #[test]
    fn where_two_services_claim_an_address_flows_to_both_are_left_alone() {
        let mut served = served(&[1]);
        served.set(&dns("other", &[2]).into());
        for (server, expected) in [
            ("10.1.0.1:5353", false),
            ("10.1.0.2:5353", false),
            ("10.1.0.3:5353", true),
        ] {
            assert_eq!(is_stale(&served, CLUSTER_IP, server), expected);
        }
        served.remove(&name("dns"), Family::V4);
        assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
    }
}
