//! Connections through kube-proxy in a lab of network namespaces.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::commits::CommitMonitor;
use testkit::generate::{ServiceBuilder, service_cidr};
use testkit::lab::{Host, Lab};
use testkit::netns::Netns;
use testkit::nft;
use testkit::proxy::{Options, Proxy};
use testkit::scoped::Directory;
use testkit::traffic::{Answers, Connection, Load, Probe, Protocol, Server};
use vipline_service_model::api;

mod program;

use program::program;

/// Addresses of the Service `web`, whose endpoints are the backends.
const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
/// Addresses of the Service `empty`, which has no endpoints.
const EMPTY: [&str; 2] = ["10.96.0.11", "fd00:10:96::11"];
/// Addresses of the ServiceCIDRs that no Service has.
const UNUSED: [&str; 2] = ["10.96.0.99", "fd00:10:96::99"];
const SERVICE_NETWORKS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
/// Protocols of both Services, with port and target port.
const PORTS: [(Protocol, u16, u16); 2] = [(Protocol::Tcp, 80, 8080), (Protocol::Udp, 53, 5353)];
/// Port that no Service has.
const OTHER_PORT: u16 = 81;
/// Time limit for a rejection; shorter than the request timeout.
///
/// The kernel ignores a rejection that arrives while it is still sending the first
/// packet, and retransmits after a second.
const REJECT_LIMIT: Duration = Duration::from_secs(2);
/// Time that a server runs after the proxy has removed its endpoint.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Time limit for the repair of rules that another process removed, on an idle host.
const REPAIR_LIMIT: Duration = Duration::from_millis(100);
/// Time without a commit after which a sync is complete.
const QUIET: Duration = Duration::from_millis(200);
/// Time limit of other operations.
const TIMEOUT: Duration = Duration::from_secs(15);

#[test]
fn a_thousand_connections_are_balanced_over_three_endpoints_and_none_fails() {
    let stage = Stage::new();
    for probe in probes(Protocol::Tcp, WEB, 80) {
        assert_balanced(&probe.times(&stage.lab.client.netns, 1000));
    }
}

#[test]
fn a_thousand_datagrams_are_balanced_over_three_endpoints_and_none_is_lost() {
    let stage = Stage::new();
    for probe in probes(Protocol::Udp, WEB, 53) {
        assert_balanced(&probe.times(&stage.lab.client.netns, 1000));
    }
}

#[test]
fn pods_and_the_node_reach_a_service_as_clients_do() {
    let stage = Stage::new();
    for host in [&stage.lab.pod, &stage.lab.node] {
        for probe in web() {
            let answers = probe.times(&host.netns, 100);
            assert_eq!(answers.succeeded(), 100, "{}: {answers}", host.name);
            assert_eq!(answers.servers.len(), 3, "{}: {answers}", host.name);
        }
    }
}

#[test]
fn nothing_fails_while_endpoints_are_replaced_under_load() {
    let mut stage = Stage::with_backends(5);
    let client = &stage.lab.client.netns;
    let mut connections: Vec<Connection> = probes(Protocol::Tcp, WEB, 80)
        .map(|probe| connect_to(&stage.lab.client, probe, "backend-1"))
        .into();
    let loads: Vec<(Probe, Load)> = web()
        .map(|probe| {
            (
                probe,
                Load::start(client, probe.retransmitting(), 3, Duration::from_millis(3)).unwrap(),
            )
        })
        .collect();
    for current in [[0, 1, 3], [0, 4, 3], [0, 4, 2], [0, 1, 2]] {
        stage.serve(&[0, 1, 2, 3, 4]);
        stage.write_web(&current);
        stage.wait_until_only(&current);
        stage.serve(&current);
        for connection in &mut connections {
            connection
                .exchange("a remaining endpoint keeps its connections")
                .unwrap();
        }
    }
    for (probe, load) in loads {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{probe:?}: {answers}");
        assert_eq!(answers.servers.len(), 5, "{probe:?}: {answers}");
    }
}

#[test]
fn no_new_connection_fails_while_all_endpoints_are_replaced_one_by_one() {
    let mut stage = Stage::with_backends(6);
    stage.serve(&[0, 1, 2, 3, 4, 5]);
    let client = &stage.lab.client.netns;
    let start = Instant::now();
    let loads = probes(Protocol::Tcp, WEB, 80)
        .map(|probe| Load::start(client, probe, 6, Duration::from_millis(20)).unwrap());
    for first in 1..=3 {
        let current = [first, first + 1, first + 2];
        stage.write_web(&current);
        stage.wait_until_only(&current);
        thread::sleep(GRACE_PERIOD);
        stage.serve(&Vec::from_iter(first..6));
    }
    let elapsed = start.elapsed();
    let answers = loads.map(Load::stop);
    let asked: usize = answers.iter().map(Answers::requests).sum();
    assert!(
        asked as f64 >= 200.0 * elapsed.as_secs_f64(),
        "{asked} in {elapsed:?}"
    );
    for answers in answers {
        assert!(answers.failures.is_empty(), "{answers}");
        assert_eq!(answers.servers.len(), 6, "{answers}");
    }
}

#[test]
fn an_endpoint_can_reach_itself_through_its_own_service() {
    let stage = Stage::new();
    let backend = &stage.lab.backends[0];
    for probe in web() {
        let answers = probe.times(&backend.netns, 100);
        assert_eq!(answers.succeeded(), 100, "{probe:?}: {answers}");
        assert!(answers.count("backend-1") > 0, "{probe:?}: {answers}");
        assert!(answers.count("backend-2") > 0, "{probe:?}: {answers}");
    }
}

#[test]
fn a_service_without_endpoints_rejects_connections_immediately() {
    let stage = Stage::new();
    stage.with_world_servers(&PORTS.map(|(protocol, port, _)| (protocol, port)), || {
        for (protocol, port, _) in PORTS {
            for probe in probes(protocol, EMPTY, port) {
                stage.assert_rejected(probe);
            }
        }
    });
}

#[test]
fn connections_to_an_unknown_service_port_are_rejected_immediately() {
    let stage = Stage::new();
    let both = PORTS.map(|(protocol, ..)| (protocol, OTHER_PORT));
    stage.with_world_servers(&both, || {
        for (protocol, port) in both {
            for probe in probes(protocol, WEB, port) {
                stage.assert_rejected(probe);
            }
        }
    });
}

#[test]
fn packets_to_a_cluster_ip_without_a_service_are_dropped() {
    let stage = Stage::new();
    let both = PORTS.map(|(protocol, port, _)| (protocol, port));
    stage.with_world_servers(&both, || {
        for (protocol, port) in both {
            for probe in probes(protocol, UNUSED, port) {
                let probe = probe.timeout(Duration::from_millis(300));
                for host in [&stage.lab.client, &stage.lab.pod] {
                    let kind = probe.once(&host.netns).unwrap_err().kind();
                    assert_eq!(kind, ErrorKind::TimedOut, "{probe:?} from {}", host.name);
                }
            }
        }
    });
}

#[test]
fn external_clients_are_masqueraded_and_pods_are_not() {
    let stage = Stage::new();
    for probe in web() {
        let family = usize::from(probe.target.is_ipv6());
        for (host, seen) in [
            (&stage.lab.client, Lab::GATEWAYS[family]),
            (&stage.lab.pod, stage.lab.pod.addresses()[family]),
        ] {
            let answers = probe.times(&host.netns, 30);
            assert_eq!(answers.succeeded(), 30, "{probe:?}: {answers}");
            let clients: Vec<&IpAddr> = answers.clients.keys().collect();
            assert_eq!(clients, [&seen], "{probe:?} from {}", host.name);
        }
    }
}

#[test]
fn flushed_rules_are_restored_within_100_milliseconds_under_load() {
    let stage = Stage::new();
    let (client, node) = (&stage.lab.client.netns, &stage.lab.node.netns);
    let rules = || node.run(|| nft::run(&["list", "ruleset"], "").stdout);
    let programmed = rules();
    let load = |probe| Load::start(client, probe, 3, Duration::from_millis(3)).unwrap();
    let loads: Vec<Load> = probes(Protocol::Tcp, WEB, 80).map(load).into();
    let commits = CommitMonitor::open(node).unwrap();
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        assert!(
            node.run(|| nft::run(&["flush", "ruleset"], ""))
                .status
                .success()
        );
        let last = commits.last_commit(begin + TIMEOUT, QUIET).unwrap();
        best = best.min(last.expect("nft committed") - begin);
        until("the rules are restored", || rules() == programmed);
    }
    assert!(best < REPAIR_LIMIT, "{best:?}");
    let before: Vec<usize> = loads.iter().map(Load::requests).collect();
    until("the load continues", || {
        let asked = loads.iter().map(Load::requests);
        asked.zip(&before).all(|(now, before)| now > before + 50)
    });
    for load in loads {
        let answers = load.stop();
        assert_eq!(answers.servers.len(), 3, "{answers}");
    }
    stage.proxy.stop().unwrap();
}

#[test]
fn connections_continue_while_the_proxy_is_killed_and_restarted() {
    let mut stage = Stage::new();
    let client = &stage.lab.client.netns;
    let loads: Vec<Load> = web()
        .map(|probe| {
            Load::start(client, probe.retransmitting(), 2, Duration::from_millis(3)).unwrap()
        })
        .collect();
    let continue_load = || {
        let before: Vec<usize> = loads.iter().map(Load::requests).collect();
        until("the load continues", || {
            let asked = loads.iter().map(Load::requests);
            asked.zip(&before).all(|(now, before)| now > before + 50)
        });
    };
    continue_load();
    stage.proxy.process().signal(Signal::KILL).unwrap();
    continue_load();
    stage.proxy = Proxy::start(&stage.lab, &options(&stage.folder)).unwrap();
    stage.write_web(&[0, 1]);
    stage.wait_until_only(&[0, 1]);
    continue_load();
    for load in loads {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{answers}");
    }
    stage.proxy.stop().unwrap();
}

/// A lab with a proxy for the Services `web` and `empty`.
struct Stage {
    lab: Lab,
    folder: Directory,
    proxy: Proxy,
    /// Running servers by the number of their backend.
    servers: BTreeMap<usize, Vec<Server>>,
}

impl Stage {
    fn new() -> Self {
        Self::with_backends(3)
    }

    /// Creates a lab with `count` backends and starts servers on the first three.
    fn with_backends(count: usize) -> Self {
        let lab = Lab::with_backends(count).unwrap();
        let folder = Directory::new().unwrap();
        folder
            .write("networks.yaml", &service_cidr(&SERVICE_NETWORKS))
            .unwrap();
        folder
            .write("empty.yaml", &builder("empty", EMPTY).manifest())
            .unwrap();
        folder
            .write("web.yaml", &web_plan(&lab, &[0, 1, 2]))
            .unwrap();
        let proxy = Proxy::start(&lab, &options(&folder)).unwrap();
        let mut stage = Self {
            lab,
            folder,
            proxy,
            servers: BTreeMap::new(),
        };
        stage.serve(&[0, 1, 2]);
        for probe in web() {
            let from = &stage.lab.client.netns;
            wait_for(&mut stage.proxy, from, probe);
        }
        stage
    }

    /// Runs servers on these backends, and stops all others.
    fn serve(&mut self, backends: &[usize]) {
        self.servers.retain(|number, _| backends.contains(number));
        for &number in backends {
            let host = &self.lab.backends[number];
            let start = || {
                let each = PORTS.iter().flat_map(|&(protocol, _, port)| {
                    host.addresses().map(|address| (protocol, (address, port)))
                });
                each.map(|(protocol, at)| {
                    Server::start(&host.netns, protocol, at.into(), &host.name)
                })
                .map(Result::unwrap)
                .collect()
            };
            self.servers.entry(number).or_insert_with(start);
        }
    }

    /// Makes these backends the endpoints of `web`.
    fn write_web(&self, backends: &[usize]) {
        let manifest = web_plan(&self.lab, backends);
        self.folder.write("web.yaml", &manifest).unwrap();
    }

    /// Waits until exactly these backends receive requests.
    fn wait_until_only(&self, backends: &[usize]) {
        for probe in web() {
            until("the endpoints are replaced", || {
                let answers = probe.times(&self.lab.pod.netns, 30);
                let mut names: Vec<String> = backends
                    .iter()
                    .map(|number| self.lab.backends[*number].name.clone())
                    .collect();
                names.sort();
                answers.servers.into_keys().eq(names)
            });
        }
    }

    fn assert_rejected(&self, probe: Probe) {
        // For a datagram from the node itself, the kernel returns EPERM instead.
        let node = (probe.protocol == Protocol::Tcp).then_some(&self.lab.node);
        for host in [&self.lab.client, &self.lab.pod].into_iter().chain(node) {
            let start = Instant::now();
            let result = probe.once(&host.netns);
            let kind = result.map_err(|error| error.kind());
            assert_eq!(
                kind,
                Err(ErrorKind::ConnectionRefused),
                "{probe:?} from {}",
                host.name
            );
            assert!(
                start.elapsed() < REJECT_LIMIT,
                "{probe:?} from {}",
                host.name
            );
        }
    }

    /// Runs servers outside the cluster at these ports during `work`.
    fn with_world_servers(&self, ports: &[(Protocol, u16)], work: impl FnOnce()) {
        let world = &self.lab.world;
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut servers = Vec::new();
        for &(protocol, port) in ports {
            for address in any {
                let at = SocketAddr::new(address, port);
                servers.extend(Server::start(&world.netns, protocol, at, "world"));
            }
        }
        work();
        assert!(servers.len() >= ports.len());
    }
}

fn options(folder: &Directory) -> Options {
    Options::new(program(), "nftables", folder.path())
}

fn web_plan(lab: &Lab, backends: &[usize]) -> String {
    let mut builder = builder("web", WEB);
    for number in backends {
        for address in lab.backends[*number].addresses() {
            builder = builder.endpoint(address, Proxy::NODE);
        }
    }
    builder.manifest()
}

fn builder(name: &str, addresses: [&str; 2]) -> ServiceBuilder {
    let builder = ServiceBuilder::new(name)
        .cluster_ip(addresses[0].parse().unwrap())
        .cluster_ip(addresses[1].parse().unwrap());
    PORTS
        .iter()
        .fold(builder, |builder, &(protocol, port, target)| {
            let protocol = match protocol {
                Protocol::Tcp => api::TransportProtocol::Tcp,
                Protocol::Udp => api::TransportProtocol::Udp,
            };
            builder.port(protocol, port, target)
        })
}

/// Returns requests to `web` in both protocols and families.
fn web() -> impl Iterator<Item = Probe> {
    PORTS
        .into_iter()
        .flat_map(|(protocol, port, _)| probes(protocol, WEB, port))
}

fn probes(protocol: Protocol, addresses: [&str; 2], port: u16) -> [Probe; 2] {
    addresses.map(|address| {
        let address: IpAddr = address.parse().unwrap();
        Probe::new(protocol, (address, port).into())
    })
}

fn assert_balanced(answers: &Answers) {
    assert!(answers.failures.is_empty(), "{answers}");
    for server in ["backend-1", "backend-2", "backend-3"] {
        let share = answers.share(server);
        assert!(
            (0.25..=0.42).contains(&share),
            "{server} {share}: {answers}"
        );
    }
    assert_eq!(answers.succeeded(), 1000);
}

/// Opens a connection to a particular server.
fn connect_to(from: &Host, probe: Probe, server: &str) -> Connection {
    (0..200)
        .map(|_| Connection::open(&from.netns, probe).unwrap())
        .find(|connection| connection.server() == server)
        .unwrap()
}

fn wait_for(proxy: &mut Proxy, from: &Netns, probe: Probe) {
    if let Err(error) = proxy.wait_for(from, probe, TIMEOUT) {
        panic!("{error}");
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
