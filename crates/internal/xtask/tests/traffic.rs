//! Real connections through a real proxy, in a lab of network namespaces.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::commits::Commits;
use testkit::generate::{Plan, service_cidr};
use testkit::lab::{Host, Lab};
use testkit::leftovers::Directory;
use testkit::netns::Netns;
use testkit::nft;
use testkit::proxy::{Options, Proxy};
use testkit::traffic::{Answers, Ask, Conversation, Load, Protocol, Server};
use vipline_service_model::api;

mod program;

use program::program;

/// The addresses of the Service `web`, which the backends serve.
const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
/// The addresses of the Service `empty`, which nobody serves.
const EMPTY: [&str; 2] = ["10.96.0.11", "fd00:10:96::11"];
/// Addresses of the service networks that no Service has.
const NOBODY: [&str; 2] = ["10.96.0.99", "fd00:10:96::99"];
const SERVICE_NETWORKS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
/// The ports of both Services, and those that the backends listen on.
const PORTS: [(Protocol, u16, u16); 2] = [(Protocol::Tcp, 80, 8080), (Protocol::Udp, 53, 5353)];
/// A port that no Service has.
const OTHER_PORT: u16 = 81;
/// How long a refusal may take, which is less than giving up.
///
/// A refusal that arrives while the kernel is still sending the first packet is
/// lost on it; the second packet follows after a second.
const AT_ONCE: Duration = Duration::from_secs(2);
/// How long an endpoint serves on after the proxy knows that it is removed.
const SERVES_ON: Duration = Duration::from_secs(1);
/// How long what somebody else did may stay, on a machine that has time.
const MENDED: Duration = Duration::from_millis(100);
/// How long nothing is committed once all is.
const QUIET: Duration = Duration::from_millis(200);
/// How long anything may take that happens soon.
const SOON: Duration = Duration::from_secs(15);

#[test]
fn a_thousand_connections_are_spread_over_three_endpoints_and_none_fails() {
    let stage = Stage::new();
    for ask in asks(Protocol::Tcp, WEB, 80) {
        evenly(&ask.times(&stage.lab.client.netns, 1000));
    }
}

#[test]
fn a_thousand_datagrams_are_spread_over_three_endpoints_and_none_is_lost() {
    let stage = Stage::new();
    for ask in asks(Protocol::Udp, WEB, 53) {
        evenly(&ask.times(&stage.lab.client.netns, 1000));
    }
}

#[test]
fn pods_and_the_node_reach_a_service_as_clients_do() {
    let stage = Stage::new();
    for host in [&stage.lab.pod, &stage.lab.node] {
        for ask in web() {
            let answers = ask.times(&host.netns, 100);
            assert_eq!(answers.answered(), 100, "{}: {answers}", host.name);
            assert_eq!(answers.servers.len(), 3, "{}: {answers}", host.name);
        }
    }
}

#[test]
fn nothing_fails_while_endpoints_are_replaced_under_load() {
    let mut stage = Stage::with_backends(5);
    let client = &stage.lab.client.netns;
    let mut talks: Vec<Conversation> = asks(Protocol::Tcp, WEB, 80)
        .map(|ask| talk_with(&stage.lab.client, ask, "backend-1"))
        .into();
    let loads: Vec<(Ask, Load)> = web()
        .map(|ask| {
            (
                ask,
                Load::start(client, ask.resending(), 3, Duration::from_millis(3)).unwrap(),
            )
        })
        .collect();
    for current in [[0, 1, 3], [0, 4, 3], [0, 4, 2], [0, 1, 2]] {
        stage.serve(&[0, 1, 2, 3, 4]);
        stage.write_web(&current);
        stage.wait_until_only(&current);
        stage.serve(&current);
        for talk in &mut talks {
            talk.say("an endpoint that stays keeps its connections")
                .unwrap();
        }
    }
    for (ask, load) in loads {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{ask:?}: {answers}");
        assert_eq!(answers.servers.len(), 5, "{ask:?}: {answers}");
    }
}

#[test]
fn no_new_connection_fails_while_all_endpoints_are_replaced_one_by_one() {
    let mut stage = Stage::with_backends(6);
    stage.serve(&[0, 1, 2, 3, 4, 5]);
    let client = &stage.lab.client.netns;
    let start = Instant::now();
    let loads = asks(Protocol::Tcp, WEB, 80)
        .map(|ask| Load::start(client, ask, 6, Duration::from_millis(20)).unwrap());
    for first in 1..=3 {
        let current = [first, first + 1, first + 2];
        stage.write_web(&current);
        stage.wait_until_only(&current);
        thread::sleep(SERVES_ON);
        stage.serve(&Vec::from_iter(first..6));
    }
    let elapsed = start.elapsed();
    let answers = loads.map(Load::stop);
    let asked: usize = answers.iter().map(Answers::asked).sum();
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
fn an_endpoint_that_asks_its_own_service_may_reach_itself() {
    let stage = Stage::new();
    let backend = &stage.lab.backends[0];
    for ask in web() {
        let answers = ask.times(&backend.netns, 100);
        assert_eq!(answers.answered(), 100, "{ask:?}: {answers}");
        assert!(answers.by("backend-1") > 0, "{ask:?}: {answers}");
        assert!(answers.by("backend-2") > 0, "{ask:?}: {answers}");
    }
}

#[test]
fn a_service_without_endpoints_refuses_at_once() {
    let stage = Stage::new();
    stage.let_the_world_answer(&PORTS.map(|(protocol, port, _)| (protocol, port)), || {
        for (protocol, port, _) in PORTS {
            for ask in asks(protocol, EMPTY, port) {
                stage.is_refused(ask);
            }
        }
    });
}

#[test]
fn a_port_that_a_service_does_not_have_is_refused_at_once() {
    let stage = Stage::new();
    let both = PORTS.map(|(protocol, ..)| (protocol, OTHER_PORT));
    stage.let_the_world_answer(&both, || {
        for (protocol, port) in both {
            for ask in asks(protocol, WEB, port) {
                stage.is_refused(ask);
            }
        }
    });
}

#[test]
fn a_cluster_ip_that_no_service_has_gets_no_answer() {
    let stage = Stage::new();
    let both = PORTS.map(|(protocol, port, _)| (protocol, port));
    stage.let_the_world_answer(&both, || {
        for (protocol, port) in both {
            for ask in asks(protocol, NOBODY, port) {
                let ask = ask.patience(Duration::from_millis(300));
                for host in [&stage.lab.client, &stage.lab.pod] {
                    let kind = ask.once(&host.netns).unwrap_err().kind();
                    assert_eq!(kind, ErrorKind::TimedOut, "{ask:?} from {}", host.name);
                }
            }
        }
    });
}

#[test]
fn endpoints_see_the_node_for_clients_from_outside_and_pods_as_they_are() {
    let stage = Stage::new();
    for ask in web() {
        let family = usize::from(ask.target.is_ipv6());
        for (host, seen) in [
            (&stage.lab.client, Lab::GATEWAYS[family]),
            (&stage.lab.pod, stage.lab.pod.addresses()[family]),
        ] {
            let answers = ask.times(&host.netns, 30);
            assert_eq!(answers.answered(), 30, "{ask:?}: {answers}");
            let clients: Vec<&IpAddr> = answers.clients.keys().collect();
            assert_eq!(clients, [&seen], "{ask:?} from {}", host.name);
        }
    }
}

#[test]
fn all_rules_are_back_within_100_milliseconds_when_they_are_flushed_under_load() {
    let stage = Stage::new();
    let (client, node) = (&stage.lab.client.netns, &stage.lab.node.netns);
    let rules = || node.run(|| nft::run(&["list", "ruleset"], "").stdout);
    let programmed = rules();
    let load = |ask| Load::start(client, ask, 3, Duration::from_millis(3)).unwrap();
    let loads: Vec<Load> = asks(Protocol::Tcp, WEB, 80).map(load).into();
    let commits = Commits::listen(node).unwrap();
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        assert!(
            node.run(|| nft::run(&["flush", "ruleset"], ""))
                .status
                .success()
        );
        let last = commits.last(begin + SOON, QUIET).unwrap();
        best = best.min(last.expect("nft committed") - begin);
        until("the rules are back", || rules() == programmed);
    }
    assert!(best < MENDED, "{best:?}");
    let before: Vec<usize> = loads.iter().map(Load::asked).collect();
    until("the load goes on", || {
        let asked = loads.iter().map(Load::asked);
        asked.zip(&before).all(|(now, before)| now > before + 50)
    });
    for load in loads {
        let answers = load.stop();
        assert_eq!(answers.servers.len(), 3, "{answers}");
    }
    stage.proxy.stop().unwrap();
}

#[test]
fn connections_go_on_when_the_proxy_is_killed_and_when_it_is_back() {
    let mut stage = Stage::new();
    let client = &stage.lab.client.netns;
    let loads: Vec<Load> = web()
        .map(|ask| Load::start(client, ask.resending(), 2, Duration::from_millis(3)).unwrap())
        .collect();
    let answer_more = || {
        let before: Vec<usize> = loads.iter().map(Load::asked).collect();
        until("more is asked", || {
            let asked = loads.iter().map(Load::asked);
            asked.zip(&before).all(|(now, before)| now > before + 50)
        });
    };
    answer_more();
    stage.proxy.process().signal(Signal::KILL).unwrap();
    answer_more();
    stage.proxy = Proxy::start(&stage.lab, &options(&stage.folder)).unwrap();
    stage.write_web(&[0, 1]);
    stage.wait_until_only(&[0, 1]);
    answer_more();
    for load in loads {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{answers}");
    }
    stage.proxy.stop().unwrap();
}

/// A lab in which the proxy serves `web` and `empty`.
struct Stage {
    lab: Lab,
    folder: Directory,
    proxy: Proxy,
    /// The servers of each backend that serves.
    servers: BTreeMap<usize, Vec<Server>>,
}

impl Stage {
    fn new() -> Self {
        Self::with_backends(3)
    }

    /// Makes a lab with that many backends, of which the first three serve.
    fn with_backends(count: usize) -> Self {
        let lab = Lab::with_backends(count).unwrap();
        let folder = Directory::new().unwrap();
        folder
            .write("networks.yaml", &service_cidr(&SERVICE_NETWORKS))
            .unwrap();
        folder
            .write("empty.yaml", &plan("empty", EMPTY).manifest())
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
        for ask in web() {
            let from = &stage.lab.client.netns;
            wait_for(&mut stage.proxy, from, ask);
        }
        stage
    }

    /// Lets these backends serve `web`, and no others.
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

    /// Lets these backends be the endpoints of `web`.
    fn write_web(&self, backends: &[usize]) {
        let manifest = web_plan(&self.lab, backends);
        self.folder.write("web.yaml", &manifest).unwrap();
    }

    /// Waits until these backends are asked, and no others any more.
    fn wait_until_only(&self, backends: &[usize]) {
        for ask in web() {
            until("the endpoints are replaced", || {
                let answers = ask.times(&self.lab.pod.netns, 30);
                let mut names: Vec<String> = backends
                    .iter()
                    .map(|number| self.lab.backends[*number].name.clone())
                    .collect();
                names.sort();
                answers.servers.into_keys().eq(names)
            });
        }
    }

    fn is_refused(&self, ask: Ask) {
        // To a datagram of its own the node's kernel says EPERM instead.
        let node = (ask.protocol == Protocol::Tcp).then_some(&self.lab.node);
        for host in [&self.lab.client, &self.lab.pod].into_iter().chain(node) {
            let start = Instant::now();
            let result = ask.once(&host.netns);
            let kind = result.map_err(|error| error.kind());
            assert_eq!(
                kind,
                Err(ErrorKind::ConnectionRefused),
                "{ask:?} from {}",
                host.name
            );
            assert!(start.elapsed() < AT_ONCE, "{ask:?} from {}", host.name);
        }
    }

    /// Answers whatever reaches the world at these ports, during `work`.
    fn let_the_world_answer(&self, ports: &[(Protocol, u16)], work: impl FnOnce()) {
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
    let mut plan = plan("web", WEB);
    for number in backends {
        for address in lab.backends[*number].addresses() {
            plan = plan.endpoint(address, Proxy::NODE);
        }
    }
    plan.manifest()
}

fn plan(name: &str, addresses: [&str; 2]) -> Plan {
    let plan = Plan::new(name)
        .at(addresses[0].parse().unwrap())
        .at(addresses[1].parse().unwrap());
    PORTS.iter().fold(plan, |plan, &(protocol, port, target)| {
        let protocol = match protocol {
            Protocol::Tcp => api::Protocol::Tcp,
            Protocol::Udp => api::Protocol::Udp,
        };
        plan.port(protocol, port, target)
    })
}

/// Asks `web` in both protocols and families.
fn web() -> impl Iterator<Item = Ask> {
    PORTS
        .into_iter()
        .flat_map(|(protocol, port, _)| asks(protocol, WEB, port))
}

fn asks(protocol: Protocol, addresses: [&str; 2], port: u16) -> [Ask; 2] {
    addresses.map(|address| {
        let address: IpAddr = address.parse().unwrap();
        Ask::new(protocol, (address, port).into())
    })
}

fn evenly(answers: &Answers) {
    assert!(answers.failures.is_empty(), "{answers}");
    for server in ["backend-1", "backend-2", "backend-3"] {
        let share = answers.share(server);
        assert!(
            (0.25..=0.42).contains(&share),
            "{server} {share}: {answers}"
        );
    }
    assert_eq!(answers.answered(), 1000);
}

/// Opens a connection that a certain server answers.
fn talk_with(from: &Host, ask: Ask, server: &str) -> Conversation {
    (0..200)
        .map(|_| Conversation::open(&from.netns, ask).unwrap())
        .find(|talk| talk.server() == server)
        .unwrap()
}

fn wait_for(proxy: &mut Proxy, from: &Netns, ask: Ask) {
    if let Err(error) = proxy.wait_for(from, ask, SOON) {
        panic!("{error}");
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
