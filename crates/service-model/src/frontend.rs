//! A parsed Service object, without endpoints.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::api::MetadataKey;
use crate::limit::{self, ExternalAddresses, OverLimit, PortOverLimit};
use crate::warning::{Field, Problem, Warnings};
use crate::{
    Family, ObjectName, PortName, Scheduler, SpecialAddress, Timestamp, UnservedAddress,
    UnservedReason, api, parse_address, parse_network,
};

/// Default session affinity timeout in seconds.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// Whether `spec.externalIPs` are served.
///
/// Exhaustive: external IPs are served or ignored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ExternalIps {
    /// External IPs are ignored.
    Ignore,
    /// External IPs are served.
    #[default]
    Serve,
}

/// A parsed Service that this proxy serves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Frontend {
    /// Invariant: sorted by name, each name once.
    pub(crate) ports: Box<[Port]>,
    /// Invariant: not empty, IPv4 first, each family at most once.
    pub(crate) addresses: Vec<Addresses>,
    pub(crate) affinity: Option<u32>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) preserves_destination: bool,
    pub(crate) internal_policy_local: bool,
    pub(crate) external_policy_local: bool,
    pub(crate) health_check_node_port: Option<u16>,
    /// External addresses that are not served.
    pub(crate) unserved: Box<[UnservedAddress]>,
    /// Ports and addresses beyond the limits of one Service.
    pub(crate) over_limit: Box<[OverLimit]>,
    /// The ports of these, in the order of the object.
    pub(crate) ports_over_limit: Box<[PortOverLimit]>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: Arc<PortName>,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}

/// The addresses of a Service in one family. Lists have no duplicates and keep the
/// order of the object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Addresses {
    pub(crate) family: Family,
    pub(crate) cluster_ip: IpAddr,
    pub(crate) external_ips: Arc<[IpAddr]>,
    pub(crate) load_balancer_ips: Arc<[IpAddr]>,
    pub(crate) source_ranges: Arc<[IpNet]>,
    /// Whether the Service has external IPs of the family, served or not.
    wants_external_ips: bool,
}

impl Frontend {
    /// Parses a Service. Returns `None` if this proxy does not serve it.
    pub(crate) fn read(
        service: &api::Service,
        name: &ObjectName,
        external_ips: ExternalIps,
        warnings: &mut Warnings<'_>,
    ) -> Option<Self> {
        let spec = &service.spec;
        if service
            .metadata
            .label(MetadataKey::ServiceProxyName)
            .is_some()
            || matches!(&*spec.cluster_ip, "" | "None")
            || spec.kind == api::ServiceType::ExternalName
        {
            return None;
        }
        let cluster_ips = cluster_ips(spec, warnings);
        if cluster_ips.is_empty() {
            return None;
        }
        let outside = Outside::read(service, warnings);
        outside.check_source_ranges(&cluster_ips, warnings);
        let mut unserved = outside.unserved(&cluster_ips, external_ips);
        let ports = Ports::read(service, name, warnings);
        let mut over_limit = Vec::new();
        let mut addresses = Vec::with_capacity(cluster_ips.len());
        for ip in cluster_ips {
            let (of_family, cut) = Addresses::new(ip, &outside, external_ips, &ports);
            over_limit.extend(limit::describe_ports(of_family.family, &ports.beyond));
            over_limit.extend(cut.descriptions);
            unserved.extend(cut.addresses);
            addresses.push(of_family);
        }
        for beyond in &over_limit {
            warnings.push_over_limit(beyond);
        }
        let external_policy_local =
            reaches_outside(spec) && spec.external_traffic_policy == api::TrafficPolicy::Local;
        Some(Self {
            ports: ports.served,
            addresses,
            affinity: affinity(spec, warnings),
            scheduler: scheduler(&service.metadata, warnings),
            preserves_destination: service
                .metadata
                .annotation(MetadataKey::PreserveDestination)
                == Some("true"),
            internal_policy_local: spec.internal_traffic_policy == api::TrafficPolicy::Local,
            external_policy_local,
            health_check_node_port: health_check(spec, external_policy_local, warnings),
            unserved: unserved.into(),
            over_limit: over_limit.into(),
            ports_over_limit: ports.beyond,
        })
    }

    /// Returns whether a port of the Service has an external address in a family.
    pub(crate) fn is_external(port: &Port, addresses: &Addresses) -> bool {
        port.node_port.is_some()
            || !addresses.load_balancer_ips.is_empty()
            || addresses.wants_external_ips
    }
}

/// Returns the IPVS scheduler of the annotation. An unknown name is ignored.
fn scheduler(metadata: &api::ObjectMeta, warnings: &mut Warnings<'_>) -> Option<Scheduler> {
    let name = metadata.annotation(MetadataKey::IpvsScheduler)?;
    let scheduler = Scheduler::known(name);
    if scheduler.is_none() {
        let field = Field::plain("metadata.annotations[service.kubernetes.io/ipvs-scheduler]");
        warnings.push(field, Problem::Unknown(name.into()));
    }
    scheduler
}

/// Returns whether clients outside of the cluster can reach the Service.
fn reaches_outside(spec: &api::ServiceSpec) -> bool {
    match spec.kind {
        api::ServiceType::LoadBalancer | api::ServiceType::NodePort => true,
        api::ServiceType::ClusterIp => !spec.external_ips.is_empty(),
        _ => false,
    }
}

/// Returns the cluster IP of each family, IPv4 first.
///
/// If `ipFamilies` is empty, the families follow from the addresses, as in the
/// defaulting of the API server.
fn cluster_ips(spec: &api::ServiceSpec, warnings: &mut Warnings<'_>) -> Vec<IpAddr> {
    let only = [spec.cluster_ip.clone()];
    let texts = if spec.cluster_ips.is_empty() {
        &only[..]
    } else {
        &spec.cluster_ips[..]
    };
    let mut found: [Option<IpAddr>; 2] = [None, None];
    for (index, text) in texts.iter().enumerate() {
        let field = Field::member("spec.clusterIPs[]", index);
        let listed = spec.ip_families.get(index).and_then(api::IpFamily::family);
        if listed.is_none() && !spec.ip_families.is_empty() {
            continue;
        }
        match (parse_address(text), listed) {
            (None, _) => warnings.push(field, Problem::BadAddress(text.as_str().into())),
            (Some(addr), Some(family)) if Family::of(addr) != family => {
                warnings.push(field, Problem::WrongFamily(addr, family));
            }
            (Some(addr), _) => {
                let [v4, v6] = &mut found;
                if addr.is_ipv4() { v4 } else { v6 }.get_or_insert(addr);
            }
        }
    }
    found.into_iter().flatten().collect()
}

/// External addresses of both families.
struct Outside {
    external_ips: Vec<IpAddr>,
    load_balancer_ips: Vec<IpAddr>,
    /// Load balancer IPs with `ipMode: Proxy`.
    proxy_ips: Vec<IpAddr>,
    source_ranges: Vec<IpNet>,
}

impl Outside {
    fn read(service: &api::Service, warnings: &mut Warnings<'_>) -> Self {
        Self {
            external_ips: external_ips(&service.spec, warnings),
            load_balancer_ips: load_balancer_ips(&service.status, warnings),
            proxy_ips: proxy_ips(&service.status),
            source_ranges: source_ranges(&service.spec, warnings),
        }
    }

    /// Warns about source ranges that are all of another family than a load balancer IP.
    ///
    /// Upstream selects the ranges by family and takes none for no restriction. A firewall
    /// that its author believes to be closed is open then.
    fn check_source_ranges(&self, cluster_ips: &[IpAddr], warnings: &mut Warnings<'_>) {
        if self.source_ranges.is_empty() {
            return;
        }
        for family in cluster_ips.iter().map(|&ip| Family::of(ip)) {
            let ranges = &mut self.source_ranges.iter();
            let mut ips = self.load_balancer_ips.iter();
            if !ranges.any(|&range| Family::of_network(range) == family)
                && let Some(&ip) = ips.find(|&&ip| Family::of(ip) == family)
            {
                let field = Field::plain("spec.loadBalancerSourceRanges");
                warnings.push(field, Problem::NoSourceRange(ip));
            }
        }
    }

    /// Returns the addresses that are not served, with the reason.
    fn unserved(&self, cluster_ips: &[IpAddr], serve: ExternalIps) -> Vec<UnservedAddress> {
        let has_family = |addr: IpAddr| {
            let families = cluster_ips.iter().map(|&ip| Family::of(ip));
            families
                .into_iter()
                .any(|family| family == Family::of(addr))
        };
        let is_ignored = serve == ExternalIps::Ignore;
        let external = self.external_ips.iter().map(|&addr| (addr, is_ignored));
        let load_balancer = self.load_balancer_ips.iter().map(|&addr| (addr, false));
        let served = external
            .chain(load_balancer)
            .filter_map(|(addr, is_ignored)| {
                let reason = match has_family(addr) {
                    false => UnservedReason::Family,
                    true if is_ignored => UnservedReason::ExternalIpsIgnored,
                    true => return None,
                };
                Some(UnservedAddress { addr, reason })
            });
        let reason = UnservedReason::ProxyMode;
        let proxied = self.proxy_ips.iter();
        let proxied = proxied.map(|&addr| UnservedAddress { addr, reason });
        served.chain(proxied).collect()
    }
}

impl Addresses {
    /// Returns the addresses of the family of a cluster IP, and those beyond the limits.
    fn new(
        cluster_ip: IpAddr,
        outside: &Outside,
        serve: ExternalIps,
        ports: &Ports,
    ) -> (Self, limit::Cut) {
        let family = Family::of(cluster_ip);
        let ours = |addresses: &[IpAddr]| {
            let ours = addresses.iter().copied();
            distinct(ours.filter(|&addr| Family::of(addr) == family).collect())
        };
        let source_ranges = shared(bounds(&outside.source_ranges, family));
        let external_ips = ours(&outside.external_ips);
        let wants_external_ips = !external_ips.is_empty();
        let mut served = ExternalAddresses {
            family,
            load_balancer_ips: ours(&outside.load_balancer_ips),
            external_ips: match serve {
                ExternalIps::Serve => external_ips,
                ExternalIps::Ignore => Vec::new(),
            },
        };
        let cut = served.cut(
            cluster_ip,
            ports.served.len(),
            ports.pairs,
            source_ranges.len(),
        );
        let addresses = Self {
            family,
            cluster_ip,
            external_ips: shared(served.external_ips),
            load_balancer_ips: shared(served.load_balancer_ips),
            source_ranges,
            wants_external_ips,
        };
        (addresses, cut)
    }
}

/// Returns the source ranges of a family. The result is empty, which means no
/// restriction, if a range has prefix length 0.
fn bounds(ranges: &[IpNet], family: Family) -> Vec<IpNet> {
    let ours = ranges
        .iter()
        .copied()
        .filter(|&range| Family::of_network(range) == family);
    let ours: Vec<_> = ours.collect();
    if ours.iter().any(|range| range.prefix_len() == 0) {
        Vec::new()
    } else {
        ours
    }
}

fn external_ips(spec: &api::ServiceSpec, warnings: &mut Warnings<'_>) -> Vec<IpAddr> {
    let texts = spec.external_ips.iter().enumerate();
    let field = |index| Field::member("spec.externalIPs[]", index);
    texts
        .filter_map(|(index, text)| vip(text, field(index), warnings))
        .collect()
}

fn load_balancer_ips(status: &api::ServiceStatus, warnings: &mut Warnings<'_>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (index, ingress) in status.load_balancer.ingress.iter().enumerate() {
        if ingress.ip_mode == api::IpMode::Vip {
            let field = Field::member("status.loadBalancer.ingress[].ip", index);
            addresses.extend(vip(&ingress.ip, field, warnings));
        }
    }
    addresses
}

/// Returns the load balancer IPs with `ipMode: Proxy`.
fn proxy_ips(status: &api::ServiceStatus) -> Vec<IpAddr> {
    let ingress = status.load_balancer.ingress.iter();
    let proxied = ingress.filter(|it| it.ip_mode != api::IpMode::Vip);
    proxied.filter_map(|it| parse_address(&it.ip)).collect()
}

/// Parses an external address.
///
/// Rejects special-purpose addresses: authors of Services could otherwise take over
/// the traffic of the node itself.
fn vip(text: &str, field: Field, warnings: &mut Warnings<'_>) -> Option<IpAddr> {
    if text.trim().is_empty() {
        return None;
    }
    let Some(addr) = parse_address(text) else {
        warnings.push(field, Problem::BadAddress(text.into()));
        return None;
    };
    if let Some(special) = SpecialAddress::of(addr) {
        warnings.push(field, Problem::SpecialAddress(addr, special));
        return None;
    }
    Some(addr)
}

fn source_ranges(spec: &api::ServiceSpec, warnings: &mut Warnings<'_>) -> Vec<IpNet> {
    let mut ranges = Vec::new();
    for (index, text) in spec.load_balancer_source_ranges.iter().enumerate() {
        match parse_network(text.trim()) {
            Some(range) => ranges.push(range),
            None => warnings.push(
                Field::member("spec.loadBalancerSourceRanges[]", index),
                Problem::BadNetwork(text.as_str().into()),
            ),
        }
    }
    ranges
}

/// The ports of a Service.
struct Ports {
    /// The served ports, sorted by name.
    served: Box<[Port]>,
    /// Number of pairs of a served port with the cluster IP or its node port.
    pairs: usize,
    /// The ports beyond the limit, in the order of the Service.
    beyond: Box<[PortOverLimit]>,
}

impl Ports {
    /// Reads the ports. The last port of a name is used.
    fn read(service: &api::Service, name: &ObjectName, warnings: &mut Warnings<'_>) -> Self {
        let created = created(service, warnings);
        let mut ports = BTreeMap::new();
        for (index, port) in service.spec.ports.iter().enumerate() {
            let Some(protocol) = port.protocol.transport() else {
                let word = port.protocol.as_str().into();
                warnings.push(
                    Field::member("spec.ports[].protocol", index),
                    Problem::Unknown(word),
                );
                continue;
            };
            if port.port == 0 {
                warnings.push(Field::member("spec.ports[].port", index), Problem::Zero);
                continue;
            }
            let name = Arc::new(PortName {
                namespace: Arc::clone(&name.namespace),
                service: Arc::clone(&name.name),
                port: port_name(&port.name),
                protocol,
                created,
            });
            let port = Port {
                name: Arc::clone(&name),
                port: port.port,
                node_port: (port.node_port != 0).then_some(port.node_port),
            };
            if ports.insert(name, (index, port)).is_some() {
                warnings.push(Field::member("spec.ports[]", index), Problem::Duplicate);
            }
        }
        let mut ports: Vec<_> = ports.into_values().collect();
        ports.sort_unstable_by_key(|(index, _)| *index);
        let has_node_port = ports.iter().map(|(_, port)| port.node_port.is_some());
        let (served, pairs) = limit::served_ports(has_node_port);
        let beyond = ports.drain(served..).map(|(_, port)| PortOverLimit {
            protocol: port.name.protocol,
            port: port.port,
            node_port: port.node_port,
        });
        let beyond = beyond.collect();
        let mut served: Vec<_> = ports.into_iter().map(|(_, port)| port).collect();
        served.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Self {
            served: served.into(),
            pairs,
            beyond,
        }
    }
}

/// Returns the name of a port, without allocation for an empty name.
fn port_name(name: &str) -> Arc<str> {
    if name.is_empty() {
        Arc::default()
    } else {
        name.into()
    }
}

fn created(service: &api::Service, warnings: &mut Warnings<'_>) -> Option<Timestamp> {
    let text = service.metadata.creation_timestamp.as_deref()?;
    let created = Timestamp::parse(text);
    if created.is_none() {
        let field = Field::plain("metadata.creationTimestamp");
        warnings.push(field, Problem::BadTime(text.into()));
    }
    created
}

fn affinity(spec: &api::ServiceSpec, warnings: &mut Warnings<'_>) -> Option<u32> {
    match &spec.session_affinity {
        api::Affinity::None => return None,
        api::Affinity::ClientIp => {}
        api::Affinity::Other(word) => {
            let field = Field::plain("spec.sessionAffinity");
            warnings.push(field, Problem::Unknown(word.clone()));
            return None;
        }
    }
    let client_ip = spec
        .session_affinity_config
        .as_ref()
        .and_then(|c| c.client_ip.as_ref());
    match client_ip.and_then(|config| config.timeout_seconds) {
        Some(0) => {
            let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            warnings.push(Field::plain(path), Problem::Zero);
            Some(DEFAULT_AFFINITY_SECONDS)
        }
        seconds => seconds.or(Some(DEFAULT_AFFINITY_SECONDS)),
    }
}

fn health_check(
    spec: &api::ServiceSpec,
    external_policy_local: bool,
    warnings: &mut Warnings<'_>,
) -> Option<u16> {
    if spec.kind != api::ServiceType::LoadBalancer || !external_policy_local {
        return None;
    }
    if spec.health_check_node_port == 0 {
        warnings.push(Field::plain("spec.healthCheckNodePort"), Problem::Zero);
        return None;
    }
    Some(spec.health_check_node_port)
}

/// Removes duplicates.
fn distinct<T: Copy + Eq + Hash>(mut items: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(items.len());
    items.retain(|&item| seen.insert(item));
    items
}

/// Removes duplicates and returns a shared list.
fn shared<T: Copy + Eq + Hash>(items: Vec<T>) -> Arc<[T]> {
    match items.is_empty() {
        true => Arc::default(),
        false => distinct(items).into(),
    }
}
