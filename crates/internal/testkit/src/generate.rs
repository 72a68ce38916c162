//! Generates Services with endpoints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use serde_json::{Value, json};
use vipline_service_model::{Event, api};

/// Number of nodes of a generated [`cluster`].
const NODES: usize = 100;

/// A builder for a Service with endpoints, as API objects or manifest.
///
/// ```
/// use testkit::generate::ServiceBuilder;
/// use vipline_service_model::api::TransportProtocol;
///
/// let builder = ServiceBuilder::new("web")
///     .cluster_ip("10.96.0.10".parse()?)
///     .port(TransportProtocol::Tcp, 80, 8080)
///     .endpoint("10.244.1.11".parse()?, "node-1");
/// assert_eq!(builder.service().spec.cluster_ip, "10.96.0.10");
/// assert_eq!(builder.slices()[0].endpoints.len(), 1);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ServiceBuilder {
    name: String,
    addresses: Vec<IpAddr>,
    ports: Vec<(api::TransportProtocol, u16, u16)>,
    endpoints: Vec<(IpAddr, String)>,
}

impl ServiceBuilder {
    /// Creates a Service in the namespace `default`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a cluster IP, at most one per family.
    #[must_use]
    pub fn cluster_ip(mut self, address: IpAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Adds a port with its target port.
    #[must_use]
    pub fn port(mut self, protocol: api::TransportProtocol, port: u16, target: u16) -> Self {
        self.ports.push((protocol, port, target));
        self
    }

    /// Adds a ready endpoint on a node.
    #[must_use]
    pub fn endpoint(mut self, address: IpAddr, node: &str) -> Self {
        self.endpoints.push((address, node.to_owned()));
        self
    }

    /// Returns the Service.
    pub fn service(&self) -> api::Service {
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        let ports = self.ports.iter().map(|(protocol, port, _)| {
            let (name, protocol, port) = (port_name(protocol, *port), protocol.clone(), *port);
            api::ServicePortSpec {
                name,
                protocol,
                port,
                node_port: 0,
            }
        });
        api::Service {
            metadata: api::ObjectMeta::named("default", &*self.name),
            spec: api::ServiceSpec {
                cluster_ip: addresses.first().cloned().unwrap_or_default(),
                cluster_ips: addresses,
                ip_families: self.addresses.iter().map(family).collect(),
                ports: ports.collect(),
                ..api::ServiceSpec::default()
            },
            ..api::Service::default()
        }
    }

    /// Returns the EndpointSlices, one per cluster IP.
    pub fn slices(&self) -> Vec<api::EndpointSlice> {
        self.addresses
            .iter()
            .map(|address| self.slice(address.is_ipv6()))
            .collect()
    }

    fn slice(&self, v6: bool) -> api::EndpointSlice {
        let (suffix, address_type) = match v6 {
            false => ("v4", api::AddressType::V4),
            true => ("v6", api::AddressType::V6),
        };
        let mut metadata = api::ObjectMeta::named("default", format!("{}-{suffix}", self.name));
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
        metadata.labels.insert(label, self.name.clone());
        let ports = self.ports.iter().map(|(protocol, port, target)| {
            let (name, protocol) = (Some(port_name(protocol, *port)), protocol.clone());
            api::EndpointPort {
                name,
                protocol,
                port: Some((*target).into()),
            }
        });
        let endpoints = self
            .endpoints
            .iter()
            .map(|(address, node)| api::SliceEndpoint {
                addresses: vec![address.to_string()],
                node_name: Some(node.clone()),
                ..api::SliceEndpoint::default()
            });
        let same = self.endpoints.iter().map(|(address, _)| address.is_ipv6());
        api::EndpointSlice {
            metadata,
            address_type,
            ports: ports.collect(),
            endpoints: endpoints
                .zip(same)
                .filter(|(_, of)| *of == v6)
                .map(|(endpoint, _)| endpoint)
                .collect(),
        }
    }

    /// Returns the events of the initial list.
    pub fn events(&self) -> Vec<Event> {
        let slices = self.slices().into_iter().map(Event::from);
        [Event::from(self.service())]
            .into_iter()
            .chain(slices)
            .collect()
    }

    /// Returns a manifest of all objects, as JSON documents in a YAML stream.
    pub fn manifest(&self) -> String {
        let (version, kind) = (api::Service::API_VERSION, api::Service::KIND);
        let mut text = document(version, kind, &self.service());
        let (version, kind) = (api::EndpointSlice::API_VERSION, api::EndpointSlice::KIND);
        for slice in self.slices() {
            text += &document(version, kind, &slice);
        }
        text
    }
}

/// Returns a ServiceCIDR as a manifest.
pub fn service_cidr(networks: &[&str]) -> String {
    let cidr = api::ServiceCidr {
        metadata: api::ObjectMeta::named("", "kubernetes"),
        spec: api::ServiceCidrSpec {
            cidrs: networks.iter().map(|&network| network.into()).collect(),
        },
    };
    document(api::ServiceCidr::API_VERSION, api::ServiceCidr::KIND, &cidr)
}

/// IP families of a generated [`cluster`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stack {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both, IPv4 first.
    Dual,
}

/// Returns `services` Services with one TCP port and `endpoints` endpoints each.
///
/// Every address is used once: cluster IPs from 10.96.0.1 and fd00:10:96::1, and
/// endpoints from 10.128.0.1 and fd00:10:128::1 on nodes `node-0` to `node-99`.
pub fn cluster(
    services: usize,
    endpoints: usize,
    stack: Stack,
) -> impl Iterator<Item = ServiceBuilder> {
    (0..services).map(move |service| {
        let mut builder = ServiceBuilder::new(format!("service-{service}")).port(
            api::TransportProtocol::Tcp,
            80,
            8080,
        );
        let families: &[bool] = match stack {
            Stack::V4 => &[false],
            Stack::V6 => &[true],
            Stack::Dual => &[false, true],
        };
        for &v6 in families {
            builder = builder.cluster_ip(numbered(v6, 96, service));
            for endpoint in service * endpoints..(service + 1) * endpoints {
                let node = format!("node-{}", endpoint % NODES);
                builder = builder.endpoint(numbered(v6, 128, endpoint), &node);
            }
        }
        builder
    })
}

/// Returns address `number` + 1 of the network `10.block.0.0` or `fd00:10:block::`.
fn numbered(v6: bool, block: u8, number: usize) -> IpAddr {
    let number = u32::try_from(number).expect("the network has enough addresses") + 1;
    match v6 {
        false => Ipv4Addr::from_bits(Ipv4Addr::new(10, block, 0, 0).to_bits() + number).into(),
        true => {
            let block = match block {
                96 => 0x96,
                _ => 0x128,
            };
            let net = Ipv6Addr::new(0xfd00, 0x10, block, 0, 0, 0, 0, 0);
            Ipv6Addr::from_bits(net.to_bits() + u128::from(number)).into()
        }
    }
}

fn family(address: &IpAddr) -> api::IpFamily {
    match address {
        IpAddr::V4(_) => api::IpFamily::V4,
        IpAddr::V6(_) => api::IpFamily::V6,
    }
}

fn port_name(protocol: &api::TransportProtocol, port: u16) -> String {
    let protocol = match protocol {
        api::TransportProtocol::Udp => "udp",
        api::TransportProtocol::Sctp => "sctp",
        _ => "tcp",
    };
    format!("{protocol}-{port}")
}

fn document(version: &str, kind: &str, object: &impl Serialize) -> String {
    let mut object = serde_json::to_value(object).expect("objects have text keys");
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), json!(version));
        fields.insert("kind".to_owned(), json!(kind));
    }
    format!("---\n{object:#}\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_manifest_contains_the_service_and_a_slice_per_family() {
        let builder = ServiceBuilder::new("web")
            .cluster_ip("10.96.0.10".parse().unwrap())
            .cluster_ip("fd00:10:96::10".parse().unwrap())
            .port(api::TransportProtocol::Udp, 53, 5353)
            .endpoint("10.244.1.11".parse().unwrap(), "node-1")
            .endpoint("fd00:244:1::11".parse().unwrap(), "node-1");
        let objects: Vec<Value> = builder
            .manifest()
            .split("---\n")
            .filter(|document| !document.is_empty())
            .map(|document| serde_json::from_str(document).unwrap())
            .collect();
        let kinds: Vec<_> = objects.iter().map(|object| &object["kind"]).collect();
        assert_eq!(kinds, ["Service", "EndpointSlice", "EndpointSlice"]);
        assert_eq!(
            objects[0]["spec"]["clusterIPs"],
            json!(["10.96.0.10", "fd00:10:96::10"])
        );
        assert_eq!(objects[1]["endpoints"].as_array().unwrap().len(), 1);
        assert_eq!(
            objects[2]["endpoints"][0]["addresses"],
            json!(["fd00:244:1::11"])
        );
        assert_eq!(objects[2]["ports"][0]["port"], 5353);
    }

    #[test]
    fn a_generated_cluster_uses_every_address_once() {
        let mut addresses = BTreeSet::new();
        for builder in cluster(300, 5, Stack::Dual) {
            assert_eq!(builder.events().len(), 3);
            addresses.extend(builder.service().spec.cluster_ips);
            for slice in builder.slices() {
                assert_eq!(slice.endpoints.len(), 5);
                addresses.extend(slice.endpoints.into_iter().flat_map(|each| each.addresses));
            }
        }
        assert_eq!(addresses.len(), 300 * 2 * 6);
    }
}
