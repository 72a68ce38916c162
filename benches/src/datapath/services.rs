//! Services of the data path benchmarks.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::{fmt, slice};

use proxy_core::ipnet::Ipv4Net;
use testkit::generate::ServiceBuilder;
use vipline_service_model::{Event, api};

use super::path::{NODE, POD_NETWORK};

/// Name of the node.
pub const NODE_NAME: &str = "node-0";

/// Network of the cluster IPs.
pub const SERVICE_CIDR: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12);

/// Port of all Services.
pub const PORT: u16 = 80;

/// Port of all endpoints.
pub const TARGET_PORT: u16 = 8080;

/// First node port.
const FIRST_NODE_PORT: u16 = 20_000;

/// Number of nodes, on which the endpoints are evenly distributed.
const NODES: u32 = 100;

/// Kind of a Service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A cluster IP with this number of endpoints.
    Endpoints(u32),
    /// A cluster IP and a node port, with five endpoints.
    NodePort,
    /// A cluster IP with session affinity and five endpoints.
    Affinity,
}

impl Kind {
    /// Returns the number of endpoints.
    pub const fn endpoints(self) -> u32 {
        match self {
            Self::Endpoints(count) => count,
            Self::NodePort | Self::Affinity => 5,
        }
    }
}

/// A Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// Number in the cluster, from 0.
    pub number: u32,
    /// The kind.
    pub kind: Kind,
    /// Node port, for [`Kind::NodePort`].
    pub node_port: Option<u16>,
    /// Numbers of the endpoints in the cluster.
    endpoints: Range<u32>,
}

impl Service {
    /// Returns the cluster IP.
    pub fn cluster_ip(&self) -> Ipv4Addr {
        numbered(SERVICE_CIDR.network(), self.number)
    }

    /// Returns the addresses of the endpoints.
    pub fn endpoints(&self) -> impl ExactSizeIterator<Item = Endpoint> {
        self.endpoints.clone().map(Endpoint)
    }

    /// Returns the address to which clients of this kind of Service connect.
    pub fn target(&self) -> SocketAddrV4 {
        match self.node_port {
            Some(port) => SocketAddrV4::new(NODE, port),
            None => SocketAddrV4::new(self.cluster_ip(), PORT),
        }
    }

    /// Returns the events of the initial list.
    fn events(&self) -> impl Iterator<Item = Event> {
        let mut builder = ServiceBuilder::new(format!("service-{}", self.number))
            .cluster_ip(self.cluster_ip().into())
            .port(api::TransportProtocol::Tcp, PORT, TARGET_PORT);
        for endpoint in self.endpoints() {
            builder = builder.endpoint(endpoint.address().into(), &endpoint.node());
        }
        let mut service = builder.service();
        if let Some(port) = self.node_port {
            service.spec.kind = api::ServiceType::NodePort;
            service.spec.ports[0].node_port = port;
        }
        if self.kind == Kind::Affinity {
            service.spec.session_affinity = api::Affinity::ClientIp;
        }
        let slices = builder.slices().into_iter().map(Event::from);
        [Event::from(service)].into_iter().chain(slices)
    }
}

/// An endpoint, by its number in the cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Endpoint(u32);

impl Endpoint {
    /// Returns the address.
    pub fn address(self) -> Ipv4Addr {
        numbered(POD_NETWORK.network(), self.0)
    }

    /// Returns whether the endpoint is on the node.
    pub fn is_local(self) -> bool {
        self.node() == NODE_NAME
    }

    fn node(self) -> String {
        format!("node-{}", self.0 % NODES)
    }
}

/// The Services of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Services {
    services: Vec<Service>,
    title: &'static str,
}

impl Services {
    /// Returns `count` Services with five endpoints each.
    pub fn uniform(count: u32) -> Self {
        Self::of("x 5", count, &[Kind::Endpoints(5)])
    }

    /// Returns `count` Services of all kinds.
    ///
    /// Of fifty Services, 22 have five endpoints, ten have one, nine have eight, five have
    /// fifty, three have a node port, and one has session affinity.
    pub fn mixed(count: u32) -> Self {
        let kinds: Vec<_> = (0..50)
            .map(|number| match (number % 10, number) {
                (_, 49) => Kind::Affinity,
                (_, 4 | 24 | 44) => Kind::NodePort,
                (1 | 6, _) => Kind::Endpoints(1),
                (3, _) | (9, _) => Kind::Endpoints(8),
                (7, _) => Kind::Endpoints(50),
                _ => Kind::Endpoints(5),
            })
            .collect();
        Self::of("mixed", count, &kinds)
    }

    fn of(title: &'static str, count: u32, kinds: &[Kind]) -> Self {
        let (mut first, mut node_port) = (0, FIRST_NODE_PORT);
        let services = (0..count).zip(kinds.iter().cycle()).map(|(number, &kind)| {
            let endpoints = first..first + kind.endpoints();
            first = endpoints.end;
            let port = (kind == Kind::NodePort).then(|| {
                node_port += 1;
                node_port
            });
            Service {
                number,
                kind,
                node_port: port,
                endpoints,
            }
        });
        Self {
            services: services.collect(),
            title,
        }
    }

    /// Returns all Services.
    pub fn as_slice(&self) -> &[Service] {
        &self.services
    }

    /// Returns an iterator over all Services.
    pub fn iter(&self) -> slice::Iter<'_, Service> {
        self.services.iter()
    }

    /// Returns the Services of one kind, in an order without a pattern.
    pub fn of_kind(&self, kind: Kind) -> Vec<&Service> {
        let chosen = self.iter().filter(|service| service.kind == kind);
        let mut chosen: Vec<_> = chosen.collect();
        // The high bits of a product with the golden ratio look random.
        chosen.sort_by_key(|service| service.number.wrapping_mul(0x9e37_79b9));
        chosen
    }

    /// Returns the events of the initial list with the Node and the ServiceCIDR, except
    /// [`Event::Synced`].
    pub fn events(&self) -> impl Iterator<Item = Event> {
        let node = api::Node {
            metadata: api::ObjectMeta::named("", NODE_NAME),
            status: api::NodeStatus {
                addresses: vec![api::NodeAddress {
                    kind: "InternalIP".to_owned(),
                    address: NODE.to_string(),
                }],
            },
            ..api::Node::default()
        };
        let cidr = api::ServiceCidr {
            metadata: api::ObjectMeta::named("", "kubernetes"),
            spec: api::ServiceCidrSpec {
                cidrs: vec![SERVICE_CIDR.to_string()],
            },
        };
        let services = self.services.iter().flat_map(Service::events);
        [Event::from(node), Event::from(cidr)]
            .into_iter()
            .chain(services)
    }
}

/// Formats as `10000 x 5` or `10000 mixed`.
impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.services.len(), self.title)
    }
}

/// Returns address `number` + 1 of a network.
fn numbered(network: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(network.to_bits() + number + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_addresses_are_distinct_and_in_their_networks() {
        let services = Services::mixed(1000);
        let ips: BTreeSet<_> = services.iter().map(Service::cluster_ip).collect();
        assert_eq!(ips.len(), 1000);
        assert!(ips.iter().all(|ip| SERVICE_CIDR.contains(ip)));
        let endpoints = services.iter().flat_map(Service::endpoints);
        let endpoints: Vec<_> = endpoints.map(Endpoint::address).collect();
        let distinct: BTreeSet<_> = endpoints.iter().collect();
        assert_eq!(distinct.len(), endpoints.len());
        assert!(
            endpoints
                .iter()
                .all(|address| POD_NETWORK.contains(address))
        );
    }

    #[test]
    fn a_mixed_cluster_has_services_of_each_kind() {
        let services = Services::mixed(1000);
        for (kind, of_fifty) in [
            (Kind::Endpoints(1), 10),
            (Kind::Endpoints(5), 22),
            (Kind::Endpoints(8), 9),
            (Kind::Endpoints(50), 5),
            (Kind::NodePort, 3),
            (Kind::Affinity, 1),
        ] {
            assert_eq!(services.of_kind(kind).len(), of_fifty * 20, "{kind:?}");
        }
        assert_eq!(services.to_string(), "1000 mixed");
        assert_eq!(services.events().count(), 2 + 2 * 1000);
    }
}
