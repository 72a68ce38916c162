//! The valid configuration, in the types of the other modules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use daemon::duration::GoDuration;
use vipline_kube_source::api::Access;
use vipline_rtnl::Name as InterfaceName;
use vipline_service_dns::{Name, Options, PodRecords};
use vipline_service_model::parse_address;

use super::{Configuration, Logging, Pods};
use crate::failure::Failure;
use crate::forward::{ForwardOptions, StubDomain, Upstreams, parse_upstream};
use crate::node_local;
use crate::server::TcpOptions;

/// Port of DNS.
const DNS_PORT: u16 = 53;

/// Largest number of threads that answer over UDP.
const MAX_THREADS: u16 = 256;

/// The settings of all modules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Source of the objects.
    pub source: Source,
    /// Options of the zone.
    pub zone: Options,
    /// Addresses to serve on.
    pub listen: Vec<SocketAddr>,
    /// Number of threads that answer over UDP.
    pub threads: usize,
    /// Limits of TCP.
    pub tcp: TcpOptions,
    /// EDNS buffer size in bytes.
    pub payload_size: u16,
    /// Options of forwarding; `None` disables it.
    pub forward: Option<ForwardOptions>,
    /// Use on a node.
    pub node_local: Option<node_local::Options>,
    /// Addresses of health, readiness and metrics.
    pub pages: Vec<SocketAddr>,
    /// Time from SIGTERM to the end.
    pub lame_duck: Duration,
    /// Whether every query is logged.
    pub log_queries: bool,
    /// The log.
    pub logging: Logging,
}

/// Source of the objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file, or a directory of files.
    Manifests(PathBuf),
    /// An API server.
    Api(Access),
}

/// Problems of a configuration, one line each.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// Returns the value, or adds the problem of a field.
    fn check<T, E: std::fmt::Display>(&mut self, field: &str, value: Result<T, E>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.push(format!("{field}: {error}"));
                None
            }
        }
    }

    fn require(&mut self, field: &str, condition: bool, reason: &str) {
        if !condition {
            self.0.push(format!("{field}: {reason}"));
        }
    }
}

impl Settings {
    /// Validates a configuration.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] with one line per invalid field.
    pub fn new(configuration: &Configuration) -> Result<Self, Failure> {
        let mut problems = Problems::default();
        let node_local = node_local(configuration, &mut problems);
        let listen = listen(configuration, &mut problems);
        let domains = domains(configuration, &mut problems);
        let stubs = stubs(configuration, &domains, &mut problems);
        let mut domains = domains.into_iter();
        let mut zone = Options::new(domains.next().unwrap_or_else(Name::root));
        zone.other_zones = domains.collect();
        zone.ttl = configuration.ttl;
        zone.pods = match configuration.pods {
            Pods::Disabled => PodRecords::Disabled,
            Pods::Insecure => PodRecords::Insecure,
        };
        problems.require("ttl", configuration.ttl <= 3600, "must be at most 3600");
        let payload_size = configuration.udp_payload_size;
        let is_valid = (512..=4096).contains(&payload_size);
        problems.require("udpPayloadSize", is_valid, "must be from 512 to 4096");
        let tcp = TcpOptions {
            max_connections: configuration.tcp.max_connections,
            max_connections_per_client: configuration.tcp.max_connections_per_client,
            idle_timeout: configuration.tcp.idle_timeout.positive(),
        };
        let is_valid = tcp.max_connections > 0;
        problems.require("tcp.maxConnections", is_valid, "must be more than 0");
        let is_valid = tcp.max_connections_per_client > 0;
        problems.require(
            "tcp.maxConnectionsPerClient",
            is_valid,
            "must be more than 0",
        );
        let is_valid = tcp.idle_timeout > Duration::ZERO;
        problems.require("tcp.idleTimeout", is_valid, "must be more than 0s");
        let forward = forward(configuration, &listen, stubs, &mut problems);
        let is_valid = configuration.threads <= MAX_THREADS;
        problems.require("threads", is_valid, "must be at most 256");
        let mut pages = Vec::new();
        for (field, text) in [
            ("metrics", &configuration.metrics),
            ("health", &configuration.health),
            ("ready", &configuration.ready),
        ] {
            if !text.is_empty() {
                let address = problems.check(field, socket_address(text));
                pages.extend(address.filter(|address| !pages.contains(address)));
            }
        }
        if !problems.0.is_empty() {
            return Err(Failure::Input(problems.0));
        }
        let processors = available_parallelism().map_or(1, usize::from);
        Ok(Self {
            source: source(configuration),
            zone,
            listen,
            threads: match configuration.threads {
                0 => processors,
                threads => threads.into(),
            },
            tcp,
            payload_size,
            forward,
            node_local,
            pages,
            lame_duck: configuration.lame_duck.positive(),
            log_queries: configuration.log_queries,
            logging: configuration.logging.clone(),
        })
    }
}

fn source(configuration: &Configuration) -> Source {
    match &configuration.manifests {
        Some(path) => Source::Manifests(path.clone()),
        None => {
            let connection = &configuration.client_connection;
            let mut access = Access::default();
            access.kubeconfig.clone_from(&connection.kubeconfig);
            access.server.clone_from(&connection.server);
            Source::Api(access)
        }
    }
}

fn listen(configuration: &Configuration, problems: &mut Problems) -> Vec<SocketAddr> {
    let mut listen = Vec::new();
    let node_local = &configuration.node_local.addresses;
    let texts = match (&configuration.listen[..], &node_local[..]) {
        ([], []) => vec!["0.0.0.0:53", "[::]:53"],
        (given, more) => given.iter().chain(more).map(|text| &**text).collect(),
    };
    for text in texts {
        let addresses = problems.check("listen", listeners(text));
        for address in addresses.into_iter().flatten() {
            let is_new = !listen.contains(&address);
            problems.require("listen", is_new, &format!("{address} occurs twice"));
            let has_port = address.port() != 0;
            problems.require("listen", has_port, &format!("{address} has the port 0"));
            listen.push(address);
        }
    }
    listen
}

fn node_local(
    configuration: &Configuration,
    problems: &mut Problems,
) -> Option<node_local::Options> {
    let given = &configuration.node_local;
    if given.addresses.is_empty() {
        return None;
    }
    let mut addresses = Vec::new();
    for text in &given.addresses {
        let address = parse_address(text).ok_or_else(|| format!("{text:?} is no IP address"));
        addresses.extend(problems.check("nodeLocal.addresses", address));
    }
    let interface = given.interface.as_deref();
    let interface = interface.unwrap_or(node_local::Options::INTERFACE);
    let interface = InterfaceName::new(interface);
    let interface = problems.check("nodeLocal.interface", interface)?;
    let options = node_local::Options::new(addresses, DNS_PORT, interface);
    let options = problems.check("nodeLocal.addresses", options)?;
    Some(match given.keep {
        true => options.kept(),
        false => options,
    })
}

/// Returns the names of the zone, without those that are invalid.
///
/// A name with other characters than those of host names is a mistake, such as a list with
/// another separator. As one long label it would be a zone that nobody asks, and every name
/// of the cluster would go to the upstreams.
fn domains(configuration: &Configuration, problems: &mut Problems) -> Vec<Name> {
    let mut domains: Vec<Name> = Vec::new();
    for text in configuration.zone.split(',').map(str::trim) {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || !text.chars().all(is_allowed) {
            let reason = format!("{text:?} is no domain; expected DOMAIN[,DOMAIN]");
            problems.require("zone", false, &reason);
            continue;
        }
        let Some(domain) = problems.check("zone", text.parse::<Name>()) else {
            continue;
        };
        let is_new = !domains.contains(&domain);
        problems.require("zone", is_new, &format!("{text} occurs twice"));
        domains.push(domain);
    }
    domains
}

/// Returns the stub domains. A name of the zone never reaches a stub domain.
fn stubs(
    configuration: &Configuration,
    zones: &[Name],
    problems: &mut Problems,
) -> Vec<StubDomain> {
    let mut stubs: Vec<StubDomain> = Vec::new();
    for stub in &configuration.stubs {
        let domain = &stub.domain;
        let text = format!("{domain}={}", stub.to.join(","));
        let Some(stub) = problems.check("stubs", text.parse::<StubDomain>()) else {
            continue;
        };
        let name = domain.parse::<Name>().ok();
        let is_around = |zone: &&Name| name.as_ref().is_some_and(|name| name.is_within(zone));
        if let Some(zone) = zones.iter().find(is_around) {
            let reason = format!("{domain} is in the zone {zone} of this server");
            problems.require("stubs", false, &reason);
        }
        let is_new = stubs.iter().all(|other| other.domain != stub.domain);
        problems.require("stubs", is_new, &format!("{domain} occurs twice"));
        stubs.push(stub);
    }
    stubs
}

fn forward(
    configuration: &Configuration,
    listen: &[SocketAddr],
    stub_domains: Vec<StubDomain>,
    problems: &mut Problems,
) -> Option<ForwardOptions> {
    let given = &configuration.forward;
    let mut options = ForwardOptions {
        listen: listen.to_vec(),
        stub_domains,
        udp_payload_size: configuration.udp_payload_size,
        force_tcp: given.force_tcp,
        try_timeout: given.try_timeout.map(GoDuration::positive),
        attempts: given.attempts,
        ..ForwardOptions::default()
    };
    match &given.to[..] {
        [] => {}
        [none] if none == "none" => options.upstreams = Upstreams::None,
        [file] if file.starts_with('/') => options.upstreams = Upstreams::ResolvConf(file.into()),
        addresses => {
            let parsed = addresses.iter().map(|text| parse_upstream(text));
            let parsed = parsed.collect::<Result<_, _>>();
            let parsed = problems.check("forward.to", parsed);
            options.upstreams = Upstreams::Addresses(parsed.unwrap_or_default());
        }
    }
    if let Some(policy) = &given.policy {
        let policy = problems.check("forward.policy", policy.parse());
        options.policy = policy.unwrap_or_default();
    }
    let set_time = |field: &mut Duration, value: Option<GoDuration>| {
        *field = value.map_or(*field, GoDuration::positive);
    };
    let set_number = |field: &mut usize, value: Option<usize>| *field = value.unwrap_or(*field);
    set_number(&mut options.max_concurrent, given.max_concurrent);
    options.max_fails = given.max_fails.unwrap_or(options.max_fails);
    set_time(&mut options.health_check, given.health_check);
    let (cache, given) = (&mut options.cache, &configuration.cache);
    set_number(&mut cache.success_capacity, given.success_capacity);
    set_number(&mut cache.denial_capacity, given.denial_capacity);
    set_time(&mut cache.max_success_ttl, given.max_success_ttl);
    set_time(&mut cache.max_denial_ttl, given.max_denial_ttl);
    cache.prefetch_hits = given.prefetch_hits.unwrap_or(cache.prefetch_hits);
    set_time(&mut cache.stale, given.stale);
    let is_enabled = options.upstreams != Upstreams::None || !options.stub_domains.is_empty();
    is_enabled.then_some(options)
}

/// Parses `ADDRESS`, `ADDRESS:PORT` or `:PORT` of listeners. An empty address means all
/// addresses of both families.
fn listeners(text: &str) -> Result<Vec<SocketAddr>, String> {
    if let Some(port) = wildcard_port(text) {
        let wildcards = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(wildcards
            .map(|any: IpAddr| SocketAddr::new(any, port))
            .into());
    }
    if let Some(address) = parse_address(text) {
        return Ok(vec![SocketAddr::new(address, DNS_PORT)]);
    }
    Ok(vec![socket_address(text)?])
}

/// Returns the port of `:PORT`.
fn wildcard_port(text: &str) -> Option<u16> {
    text.strip_prefix(':')?.parse().ok()
}

/// Parses `ADDRESS:PORT` or `:PORT` of a page. The wildcard address of IPv4 serves both
/// families.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = wildcard_port(text) {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    let parsed = text.parse::<SocketAddr>();
    parsed.map_err(|_| format!("{text:?} must be ADDRESS:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, Failure> {
        Settings::new(&Configuration::parse(text).unwrap())
    }

    #[test]
    fn defaults_serve_both_families_and_forward() {
        let settings = settings("").unwrap();
        let listen: Vec<_> = settings.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["0.0.0.0:53", "[::]:53"]);
        assert_eq!(settings.zone.zone.to_string(), "cluster.local.");
        assert_eq!(settings.forward.unwrap().upstreams, Upstreams::default());
        assert_eq!(settings.lame_duck, Duration::from_secs(5));
        assert!(settings.threads > 0);
    }

    #[test]
    fn a_zone_has_several_names_and_no_others() {
        let zone = settings("zone: 'a.example, B.example,c'\n").unwrap().zone;
        let others: Vec<_> = zone.other_zones.iter().map(ToString::to_string).collect();
        assert_eq!((&*zone.zone.to_string(), others.len()), ("a.example.", 2));
        assert_eq!(others, ["B.example.", "c."]);
        for (text, problem) in [
            (
                "a.example b.example",
                "\"a.example b.example\" is no domain; expected DOMAIN[,DOMAIN]",
            ),
            (
                "a.example;b.example",
                "\"a.example;b.example\" is no domain; expected DOMAIN[,DOMAIN]",
            ),
            ("a.example,", "\"\" is no domain; expected DOMAIN[,DOMAIN]"),
            ("a.example,A.example.", "A.example. occurs twice"),
            ("a..example", "a label is empty"),
        ] {
            let Err(Failure::Input(problems)) = settings(&format!("zone: '{text}'\n")) else {
                panic!("{text}: valid");
            };
            assert_eq!(problems, [format!("zone: {problem}")]);
        }
        let text = "zone: a.example,b.example\nstubs: [{domain: x.b.example, to: [192.0.2.1]}]\n";
        assert!(settings(text).is_err());
    }

    #[test]
    fn node_local_addresses_replace_the_default_listeners() {
        let text = "nodeLocal: {addresses: [169.254.20.10, 10.96.0.10]}\n";
        let settings = settings(text).unwrap();
        let listen: Vec<_> = settings.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["169.254.20.10:53", "10.96.0.10:53"]);
        assert_eq!(settings.node_local.unwrap().addresses().len(), 2);
    }

    #[test]
    fn every_problem_is_reported() {
        let text = "zone: a..b\nttl: 9999\nlisten: ['x', '127.0.0.1', '127.0.0.1:53']\n\
                    udpPayloadSize: 100\nforward: {to: [there], policy: best}\n\
                    stubs: [{domain: a.example, to: [nowhere]}]\nmetrics: '127.0.0.1'\n\
                    tcp: {maxConnections: 0, maxConnectionsPerClient: 0, idleTimeout: 0s}\nnodeLocal: {addresses: [fe80::1], interface: a/b}\n";
        let Err(Failure::Input(problems)) = settings(text) else {
            panic!("the configuration is valid");
        };
        for field in [
            "zone",
            "ttl",
            "udpPayloadSize",
            "forward.to",
            "forward.policy",
            "stubs",
            "metrics",
            "tcp.maxConnections",
            "tcp.maxConnectionsPerClient",
            "tcp.idleTimeout",
            "nodeLocal.interface",
        ] {
            let prefix = format!("{field}: ");
            let found = problems.iter().any(|problem| problem.starts_with(&prefix));
            assert!(found, "{field}: {problems:#?}");
        }
        let listen = problems
            .iter()
            .filter(|problem| problem.starts_with("listen: "));
        assert_eq!(listen.count(), 2, "{problems:#?}");
    }

    #[test]
    fn forwarding_is_disabled_by_none_except_for_stub_domains() {
        let text = "forward: {to: [none]}\n";
        assert!(settings(text).unwrap().forward.is_none());
        let text = format!("{text}stubs: [{{domain: a.example, to: [192.0.2.1]}}]\n");
        let forward = settings(&text).unwrap().forward.unwrap();
        assert_eq!(forward.upstreams, Upstreams::None);
        assert_eq!(forward.stub_domains.len(), 1);
    }

    #[test]
    fn a_page_address_is_served_once() {
        let text = "metrics: '127.0.0.1:1'\nhealth: '127.0.0.1:2'\nready: '127.0.0.1:1'\n";
        let pages = settings(text).unwrap().pages;
        let pages: Vec<_> = pages.iter().map(SocketAddr::port).collect();
        assert_eq!(pages, [1, 2]);
    }

    #[test]
    fn a_listener_without_an_address_serves_both_families() {
        let text = "listen: [':6002', '127.0.0.1']\nmetrics: ':9153'\n";
        let settings = settings(text).unwrap();
        let listen: Vec<_> = settings.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["0.0.0.0:6002", "[::]:6002", "127.0.0.1:53"]);
        assert_eq!(settings.pages, ["0.0.0.0:9153".parse().unwrap()]);
    }

    #[test]
    fn threads_have_the_bounds_of_the_flag() {
        assert_eq!(settings("threads: 256\n").unwrap().threads, 256);
        let Err(Failure::Input(problems)) = settings("threads: 257\n") else {
            panic!("the configuration is valid");
        };
        assert_eq!(problems, ["threads: must be at most 256"]);
    }

    #[test]
    fn a_stub_domain_is_outside_of_the_zone_and_occurs_once() {
        let stubs = |domains: &str| {
            let domains = domains.split(' ');
            let line = |domain| format!("- {{domain: {domain}, to: [192.0.2.1]}}\n");
            settings(&format!(
                "stubs:\n{}",
                domains.map(line).collect::<String>()
            ))
        };
        assert!(stubs("local xcluster.local a.example b.a.example").is_ok());
        for (domains, problem) in [
            (
                "a.Cluster.local",
                "stubs: a.Cluster.local is in the zone cluster.local. of this server",
            ),
            (
                "cluster.local.",
                "stubs: cluster.local. is in the zone cluster.local. of this server",
            ),
            ("a.example A.Example.", "stubs: A.Example. occurs twice"),
        ] {
            let Err(Failure::Input(problems)) = stubs(domains) else {
                panic!("{domains}: valid");
            };
            assert_eq!(problems, [problem]);
        }
    }
}
