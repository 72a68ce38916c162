//! The records of an answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::Zone;
use super::node::{Node, PortHosts};
use crate::index::{Found, ServiceKind, hostname_of};
use crate::{Answer, Name, Question, Record, RecordData, RecordType, ResponseCode, Soa};

/// Version of the specification that the records follow.
const SCHEMA_VERSION: &str = "1.1.0";

/// Time to live of the schema version in seconds.
const SCHEMA_VERSION_TTL: u32 = 28_800;

/// Maximum time to live of a start of authority in seconds.
const MAX_SOA_TTL: u32 = 300;

/// An answer that is being assembled.
pub(super) struct Response<'a> {
    zone: &'a Zone,
    record_type: RecordType,
    rotation: usize,
    /// Name of the zone of the last name, in the case of the question.
    apex: Name,
    /// Name of the zone of Services, in the case of the question if the last name has it.
    domain: Name,
    pub(super) answer: Answer,
}

/// A host of a service, with an address.
#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
struct Host {
    /// First label of an endpoint. `None` for the Service.
    label: Option<Arc<str>>,
    port: u16,
    addr: IpAddr,
}

/// Owner of an address: namespace, Service and, for an endpoint, host name.
type Owner = (Arc<str>, Arc<str>, Option<Arc<str>>);

impl<'a> Response<'a> {
    /// Returns an empty response.
    pub(super) fn new(zone: &'a Zone, question: &Question, rotation: usize) -> Self {
        Self {
            zone,
            record_type: question.record_type,
            rotation,
            apex: Name::root(),
            domain: Name::root(),
            answer: Answer {
                code: ResponseCode::NoError,
                answers: Vec::new(),
                authorities: Vec::new(),
                additionals: Vec::new(),
                unresolved: None,
            },
        }
    }

    /// Sets the zone of the next name. It is a reverse zone if it is not that of Services.
    pub(super) fn set_zone(&mut self, apex: Name) {
        self.domain = match apex == self.zone.options.zone {
            true => apex.clone(),
            false => self.zone.options.zone.clone(),
        };
        self.apex = apex;
    }

    /// Adds the records of a node, or the start of authority if there are none of the type.
    /// Returns the canonical name if the node is an alias that the question follows.
    pub(super) fn add(&mut self, name: &Name, node: &Node<'_>) -> Option<Name> {
        let start = self.answer.answers.len();
        let canonical = self.add_records(name, node);
        match self.answer.answers.get_mut(start..) {
            Some(added) if !added.is_empty() => added.rotate_left(self.rotation % added.len()),
            _ => {
                let soa = self.soa();
                self.answer.authorities.push(soa);
            }
        }
        canonical
    }

    fn add_records(&mut self, name: &Name, node: &Node<'_>) -> Option<Name> {
        match node {
            Node::Missing => self.answer.code = ResponseCode::NameError,
            Node::Empty => {}
            Node::Apex => self.add_apex(name),
            Node::NameServer => {
                let servers = self.name_servers();
                self.add_addresses(name, servers.into_iter().map(|(_, addr)| addr));
            }
            Node::SchemaVersion => self.add_schema_version(name),
            Node::Service(found) => return self.add_service(name, *found),
            Node::Port(found, hosts) => self.add_port(name, *found, hosts),
            Node::Endpoint(found, endpoints) => {
                self.add_addresses(name, endpoints.iter().map(|(_, endpoint)| endpoint.addr));
                if self.record_type == RecordType::Srv {
                    let hosts = endpoints.iter().flat_map(|&(slice, endpoint)| {
                        let numbers = slice.ports.numbers();
                        numbers.map(move |port| Host {
                            label: Some(hostname_of(slice, endpoint)),
                            port,
                            addr: endpoint.addr,
                        })
                    });
                    self.add_hosts(name, *found, hosts.collect());
                }
            }
            Node::Pod(addr) => self.add_addresses(name, [*addr]),
            Node::Address { addr, is_apex } => {
                self.add_pointers(name, *addr);
                if *is_apex {
                    self.add_apex(name);
                }
            }
        }
        None
    }

    fn add_service(&mut self, name: &Name, found: Found<'_>) -> Option<Name> {
        let is_srv = self.record_type == RecordType::Srv;
        match &found.service.kind {
            ServiceKind::External(target) => {
                self.push(name, RecordData::Cname(target.clone()));
                let is_final = matches!(self.record_type, RecordType::Cname | RecordType::Any);
                return (!is_final).then(|| target.clone());
            }
            ServiceKind::Cluster { cluster_ips, ports } if is_srv => {
                let hosts = service_hosts(ports.numbers(), cluster_ips);
                self.add_hosts(name, found, hosts);
            }
            ServiceKind::Cluster { cluster_ips, .. } => {
                self.add_addresses(name, cluster_ips.iter().copied());
            }
            ServiceKind::Headless if is_srv => {
                let hosts = found.endpoints().flat_map(|(slice, endpoint)| {
                    let numbers = slice.ports.numbers();
                    numbers.map(move |port| Host {
                        label: Some(hostname_of(slice, endpoint)),
                        port,
                        addr: endpoint.addr,
                    })
                });
                self.add_hosts(name, found, hosts.collect());
            }
            ServiceKind::Headless => {
                self.add_addresses(name, found.endpoints().map(|(_, endpoint)| endpoint.addr));
            }
        }
        None
    }

    fn add_port(&mut self, name: &Name, found: Found<'_>, hosts: &PortHosts<'_>) {
        if !matches!(self.record_type, RecordType::Srv | RecordType::Any) {
            return;
        }
        let hosts = match hosts {
            PortHosts::Service(numbers) => {
                service_hosts(numbers.iter().copied(), found.service.cluster_ips())
            }
            PortHosts::Endpoints(hosts) => hosts
                .iter()
                .map(|&(slice, endpoint, port)| Host {
                    label: Some(hostname_of(slice, endpoint)),
                    port,
                    addr: endpoint.addr,
                })
                .collect(),
        };
        self.add_hosts(name, found, hosts);
    }

    /// Adds addresses of the type of the question, each once.
    fn add_addresses(&mut self, name: &Name, addresses: impl IntoIterator<Item = IpAddr>) {
        let (v4, v6) = match self.record_type {
            RecordType::A => (true, false),
            RecordType::Aaaa => (false, true),
            RecordType::Any => (true, true),
            _ => return,
        };
        let addresses = addresses.into_iter();
        let mut addresses: Vec<_> = addresses
            .filter(|addr| if addr.is_ipv4() { v4 } else { v6 })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        self.answer.answers.reserve_exact(addresses.len());
        for addr in addresses {
            self.push(name, address(addr));
        }
    }

    /// Adds a record for each host and port, and the addresses of the hosts.
    fn add_hosts(&mut self, name: &Name, found: Found<'_>, mut hosts: Vec<Host>) {
        let entry = found.entry;
        let Some(base) = self.domain.below([&*entry.name, &*entry.namespace, "svc"]) else {
            return;
        };
        hosts.sort_unstable();
        hosts.dedup();
        // All hosts have equal weights, at least 1.
        let weight = u16::try_from(100 / hosts.len().max(1)).unwrap_or(0).max(1);
        for group in hosts.chunk_by(|one, other| one.label == other.label) {
            let label = group.first().and_then(|host| host.label.as_deref());
            let Some(target) = label.map_or_else(|| Some(base.clone()), |it| base.below([it]))
            else {
                continue;
            };
            for same_port in group.chunk_by(|one, other| one.port == other.port) {
                let port = same_port.first().map_or(0, |host| host.port);
                let data = RecordData::Srv {
                    priority: 0,
                    weight,
                    port,
                    target: target.clone(),
                };
                self.push(name, data);
            }
            let addresses: BTreeSet<_> = group.iter().map(|host| host.addr).collect();
            for addr in addresses {
                let record = self.record(&target, address(addr));
                self.answer.additionals.push(record);
            }
        }
    }

    /// Adds the names of an address: those of Services, or else those of endpoints.
    fn add_pointers(&mut self, name: &Name, addr: IpAddr) {
        if !matches!(self.record_type, RecordType::Ptr | RecordType::Any) {
            return;
        }
        let index = &self.zone.index;
        let services = index.services_at(addr);
        let mut owners: BTreeSet<_> = services.map(|found| owner(found, None)).collect();
        if owners.is_empty() {
            let endpoints = index.endpoints_at(addr);
            owners.extend(endpoints.map(|(found, slice, endpoint)| {
                let hostname = hostname_of(slice, endpoint);
                owner(found, Some(hostname))
            }));
        }
        for owner in &owners {
            if let Some(target) = self.name_of(owner) {
                self.push(name, RecordData::Ptr(target));
            }
        }
    }

    fn add_apex(&mut self, name: &Name) {
        if matches!(self.record_type, RecordType::Soa | RecordType::Any) {
            let soa = self.soa();
            self.answer.answers.push(soa);
        }
        if !matches!(self.record_type, RecordType::Ns | RecordType::Any) {
            return;
        }
        let mut former = None;
        for (server, addr) in self.name_servers() {
            let record = self.record(&server, address(addr));
            self.answer.additionals.push(record);
            if former.as_ref() != Some(&server) {
                self.push(name, RecordData::Ns(server.clone()));
                former = Some(server);
            }
        }
    }

    fn add_schema_version(&mut self, name: &Name) {
        if matches!(self.record_type, RecordType::Txt | RecordType::Any) {
            let data = RecordData::Txt(vec![SCHEMA_VERSION.to_owned()]);
            self.answer.answers.push(Record {
                name: name.clone(),
                ttl: SCHEMA_VERSION_TTL,
                data,
            });
        }
    }

    /// Returns the name servers with their addresses, sorted: the Services of this server,
    /// or else this server.
    fn name_servers(&self) -> Vec<(Name, IpAddr)> {
        let (index, local) = (&self.zone.index, &self.zone.options.local_addresses);
        let mut servers = BTreeSet::new();
        for &addr in local {
            for found in index.services_at(addr) {
                let cluster_ips = found.service.cluster_ips().iter();
                servers.extend(cluster_ips.map(|&addr| (owner(found, None), addr)));
            }
            for (found, slice, endpoint) in index.endpoints_at(addr) {
                if found.service.kind == ServiceKind::Headless {
                    let hostname = Some(hostname_of(slice, endpoint));
                    servers.insert((owner(found, hostname), addr));
                }
                let cluster_ips = found.service.cluster_ips().iter();
                servers.extend(cluster_ips.map(|&addr| (owner(found, None), addr)));
            }
        }
        let named = servers
            .iter()
            .filter_map(|(owner, addr)| Some((self.name_of(owner)?, *addr)));
        let named: Vec<_> = named.collect();
        match named.is_empty() {
            true => local
                .iter()
                .map(|&addr| (self.default_server(), addr))
                .collect(),
            false => named,
        }
    }

    /// Returns the name of a Service or an endpoint.
    fn name_of(&self, (namespace, service, hostname): &Owner) -> Option<Name> {
        let labels = [&**service, &**namespace, "svc"];
        self.domain
            .below(hostname.as_deref().into_iter().chain(labels))
    }

    /// Returns `ns.dns.ZONE`.
    fn default_server(&self) -> Name {
        let name = self.domain.below(["ns", "dns"]);
        name.unwrap_or_else(|| self.domain.clone())
    }

    fn soa(&self) -> Record {
        let options = &self.zone.options;
        let mailbox = self.domain.below(["hostmaster"]);
        Record {
            name: self.apex.clone(),
            ttl: options.ttl.min(MAX_SOA_TTL),
            data: RecordData::Soa(Soa {
                name_server: self.default_server(),
                mailbox: mailbox.unwrap_or_else(|| self.domain.clone()),
                serial: self.zone.serial,
                refresh: 7200,
                retry: 1800,
                expire: 86_400,
                minimum: options.ttl,
            }),
        }
    }

    fn push(&mut self, name: &Name, data: RecordData) {
        let record = self.record(name, data);
        self.answer.answers.push(record);
    }

    fn record(&self, name: &Name, data: RecordData) -> Record {
        Record {
            name: name.clone(),
            ttl: self.zone.options.ttl,
            data,
        }
    }
}

/// Returns the hosts of a Service with cluster IPs.
fn service_hosts(numbers: impl Iterator<Item = u16>, cluster_ips: &[IpAddr]) -> Vec<Host> {
    let hosts = numbers.flat_map(|port| {
        cluster_ips.iter().map(move |&addr| Host {
            label: None,
            port,
            addr,
        })
    });
    hosts.collect()
}

fn owner(found: Found<'_>, hostname: Option<Arc<str>>) -> Owner {
    let entry = found.entry;
    (
        Arc::clone(&entry.namespace),
        Arc::clone(&entry.name),
        hostname,
    )
}

fn address(addr: IpAddr) -> RecordData {
    match addr {
        IpAddr::V4(addr) => RecordData::A(addr),
        IpAddr::V6(addr) => RecordData::Aaaa(addr),
    }
}
