//! The records of an answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::Zone;
use super::node::{Node, PortHosts};
use crate::index::{Found, Hosts, Port, ServiceKind, hostname_of};
use crate::name::MAX_NAME;
use crate::{Answer, Name, Question, Record, RecordData, RecordType, ResponseCode, Soa};

/// Version of the specification that the records follow.
const SCHEMA_VERSION: &str = "1.1.0";

/// Time to live of the schema version in seconds.
const SCHEMA_VERSION_TTL: u32 = 28_800;

/// Maximum time to live of a start of authority in seconds.
const MAX_SOA_TTL: u32 = 300;

/// Least size of a record in a message, without its data: a name of 1 byte, type, class, time
/// to live and length.
const LEAST_RECORD: usize = 1 + 2 + 2 + 4 + 2;

/// Least size of an address record.
const LEAST_ADDRESS: usize = LEAST_RECORD + 4;

/// Least size of an SRV record, without its target.
const LEAST_SRV: usize = LEAST_RECORD + 6;

/// An answer that is being assembled.
pub(super) struct Response<'a> {
    zone: &'a Zone,
    record_type: RecordType,
    rotation: usize,
    /// Size of the message in bytes.
    size: usize,
    /// Whether the records of the last name begin at the rotation. They are not complete.
    is_partial: bool,
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
    pub(super) fn new(zone: &'a Zone, question: &Question, rotation: usize, size: usize) -> Self {
        Self {
            zone,
            record_type: question.record_type,
            rotation,
            size,
            is_partial: false,
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
        let options = &self.zone.options;
        self.domain = match apex == options.zone || options.other_zones.contains(&apex) {
            true => apex.clone(),
            false => options.zone.clone(),
        };
        self.apex = apex;
    }

    /// Adds the records of a node, or the start of authority if there are none of the type.
    /// Returns the canonical name if the node is an alias that the question follows.
    pub(super) fn add(&mut self, name: &Name, node: &Node<'_>) -> Option<Name> {
        let start = self.answer.answers.len();
        self.is_partial = false;
        let canonical = self.add_records(name, node);
        match self.answer.answers.get_mut(start..) {
            Some(added) if self.is_partial && !added.is_empty() => {}
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
                self.add_addresses(name, servers.len(), servers.iter().map(|(_, addr)| *addr));
            }
            Node::SchemaVersion => self.add_schema_version(name),
            Node::Service(found) => return self.add_service(name, *found),
            Node::Port(found, hosts) => self.add_port(name, *found, hosts),
            Node::Endpoint(found, endpoints) => {
                let at = self.rotation % endpoints.len().max(1);
                let (before, after) = endpoints.split_at(at);
                let endpoints = after.iter().chain(before);
                let addresses = endpoints.clone().map(|(_, endpoint)| endpoint.addr);
                self.add_addresses(name, before.len() + after.len(), addresses);
                if self.record_type == RecordType::Srv {
                    let ports = endpoints.clone().map(|(slice, _)| slice.ports.all().len());
                    let hosts = endpoints.flat_map(|&(slice, endpoint)| {
                        let ports = slice.ports.all().iter();
                        ports.map(move |port| Host {
                            label: Some(hostname_of(slice, endpoint)),
                            port: port.number(),
                            addr: endpoint.addr,
                        })
                    });
                    self.add_hosts(name, *found, ports.sum(), hosts);
                }
            }
            Node::Pod(addr) => self.add_addresses(name, 1, [*addr]),
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
                let hosts = service_hosts(ports.all(), cluster_ips);
                self.add_hosts(name, found, hosts.len(), hosts);
            }
            ServiceKind::Cluster { cluster_ips, .. } => {
                self.add_addresses(name, cluster_ips.len(), cluster_ips.iter().copied());
            }
            ServiceKind::Headless if is_srv => self.add_endpoints(name, found, &found.hosts()),
            ServiceKind::Headless => {
                let hosts = found.addresses(|addr| self.is_wanted(addr));
                let endpoints = hosts.starting_at(self.rotation);
                let addresses = endpoints.map(|(_, endpoint, _)| endpoint.addr);
                self.add_addresses(name, hosts.count(), addresses);
            }
        }
        None
    }

    fn add_port(&mut self, name: &Name, found: Found<'_>, hosts: &PortHosts<'_>) {
        if !matches!(self.record_type, RecordType::Srv | RecordType::Any) {
            return;
        }
        match hosts {
            PortHosts::Service(ports) => {
                let hosts = service_hosts(ports, found.service.cluster_ips());
                self.add_hosts(name, found, hosts.len(), hosts);
            }
            PortHosts::Endpoints(hosts) => self.add_endpoints(name, found, hosts),
        }
    }

    fn add_endpoints(&mut self, name: &Name, found: Found<'_>, hosts: &Hosts<'_>) {
        let endpoints = hosts.starting_at(self.rotation);
        let endpoints = endpoints.map(|(slice, endpoint, port)| Host {
            label: Some(hostname_of(slice, endpoint)),
            port,
            addr: endpoint.addr,
        });
        self.add_hosts(name, found, hosts.count(), endpoints);
    }

    /// Returns whether the question asks for the family of an address.
    fn is_wanted(&self, addr: IpAddr) -> bool {
        match self.record_type {
            RecordType::A => addr.is_ipv4(),
            RecordType::Aaaa => addr.is_ipv6(),
            RecordType::Any => true,
            _ => false,
        }
    }

    /// Adds addresses of the type of the question, each once. Their number is at most
    /// `count`.
    fn add_addresses(
        &mut self,
        name: &Name,
        count: usize,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) {
        let most = self.size / LEAST_ADDRESS;
        let addresses = addresses.into_iter();
        let addresses = addresses.filter(|addr| self.is_wanted(*addr));
        let (mut addresses, is_partial) = match count <= most {
            true => (addresses.collect(), false),
            false => first_distinct(addresses, most, |addr| *addr),
        };
        self.is_partial = is_partial;
        if !is_partial {
            addresses.sort_unstable();
            addresses.dedup();
        }
        self.answer.answers.reserve_exact(addresses.len());
        for addr in addresses {
            self.push(name, address(addr));
        }
    }

    /// Adds a record for each host and port, and the addresses of the hosts. The number of
    /// hosts is at most `count`.
    ///
    /// If more records than fit exist, adds these from the first host on, without addresses.
    fn add_hosts(
        &mut self,
        name: &Name,
        found: Found<'_>,
        count: usize,
        hosts: impl IntoIterator<Item = Host>,
    ) {
        let entry = found.entry;
        let Some(base) = self.domain.below([&*entry.name, &*entry.namespace, "svc"]) else {
            return;
        };
        let most = self.size / (LEAST_SRV + base.as_wire().len());
        // No target is longer than a name, so that each host has a record.
        let longest = MAX_NAME.saturating_sub(base.as_wire().len() + 1);
        let hosts = hosts.into_iter();
        let hosts = hosts.filter(|host| host.label.as_ref().is_none_or(|it| it.len() <= longest));
        let (hosts, is_partial) = match count <= most {
            true => (hosts.collect(), false),
            false => first_distinct(hosts, most, |host| (host.label.clone(), host.port)),
        };
        self.is_partial = is_partial;
        if !is_partial {
            self.add_all_hosts(name, &base, hosts);
            return;
        }
        for host in hosts {
            if let Some(target) = target(&base, host.label.as_deref()) {
                let (weight, port) = (weight(count), host.port);
                self.push(name, srv(weight, port, target));
            }
        }
    }

    fn add_all_hosts(&mut self, name: &Name, base: &Name, mut hosts: Vec<Host>) {
        hosts.sort_unstable();
        hosts.dedup();
        let weight = weight(hosts.len());
        // One more than fits. Then a message has no additional records.
        let most = (self.size / LEAST_ADDRESS).saturating_add(1);
        for group in hosts.chunk_by(|one, other| one.label == other.label) {
            let label = group.first().and_then(|host| host.label.as_deref());
            let Some(target) = target(base, label) else {
                continue;
            };
            for same_port in group.chunk_by(|one, other| one.port == other.port) {
                let port = same_port.first().map_or(0, |host| host.port);
                self.push(name, srv(weight, port, target.clone()));
            }
            let addresses: BTreeSet<_> = group.iter().map(|host| host.addr).collect();
            let room = most.saturating_sub(self.answer.additionals.len());
            for addr in addresses.into_iter().take(room) {
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
fn service_hosts(ports: &[Port], cluster_ips: &[IpAddr]) -> Vec<Host> {
    let hosts = ports.iter().flat_map(|port| {
        cluster_ips.iter().map(move |&addr| Host {
            label: None,
            port: port.number(),
            addr,
        })
    });
    hosts.collect()
}

/// Returns the items until more than `most` have distinct keys, each key once, and whether
/// there are that many. Otherwise returns all items.
fn first_distinct<T, K: Ord>(
    items: impl Iterator<Item = T>,
    most: usize,
    key: impl Fn(&T) -> K,
) -> (Vec<T>, bool) {
    let (mut keys, mut first, mut others) = (BTreeSet::new(), Vec::new(), Vec::new());
    for item in items {
        match keys.insert(key(&item)) {
            true => first.push(item),
            false => others.push(item),
        }
        if keys.len() > most {
            return (first, true);
        }
    }
    first.append(&mut others);
    (first, false)
}

/// Returns the weight of one of several hosts. All have equal weights, at least 1.
fn weight(hosts: usize) -> u16 {
    u16::try_from(100 / hosts.max(1)).unwrap_or(0).max(1)
}

/// Returns the name of an endpoint of a Service, or that of the Service.
fn target(service: &Name, label: Option<&str>) -> Option<Name> {
    label.map_or_else(|| Some(service.clone()), |label| service.below([label]))
}

fn srv(weight: u16, port: u16, target: Name) -> RecordData {
    RecordData::Srv {
        priority: 0,
        weight,
        port,
        target,
    }
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
