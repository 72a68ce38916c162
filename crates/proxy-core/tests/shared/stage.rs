//! An engine on the node of a lab, and Services with every kind of address.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use proxy_core::{Config, Event};
use testkit::generate::ServiceBuilder;
use testkit::lab::{Host, Lab};
use testkit::link;
use testkit::traffic::{Answer, Probe, Protocol, Server};
use vipline_service_model::{DetectLocal, api};

use crate::fixtures::{self, NODE, OTHER_NODE, apply, service_cidr};
use crate::rules::{Opened, Rules};

/// The port of every Service, in both protocols.
pub(crate) const PORT: u16 = 80;
/// A port that no Service has.
pub(crate) const OTHER_PORT: u16 = 81;
/// The port of endpoints.
pub(crate) const TARGET: u16 = 8080;

/// Number of requests after which both of two endpoints have answered.
const MAX_REQUESTS: usize = 40;
/// The same in mode ipvs, which selects endpoints in turn instead of at random.
const MAX_REQUESTS_IN_TURN: usize = 12;
/// Minimum number of requests if both endpoints have answered.
const MIN_REQUESTS: usize = 10;
/// Number of failures after which no more requests are sent.
const MAX_FAILURES: usize = 2;
/// Maximum time until a rejection. The client ignores a rejection that arrives while it
/// still sends the first packet, and retransmits after a second.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Source of packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// A pod on the node that is not an endpoint.
    Pod,
    /// The node, with the source address of the route to the destination.
    Node,
    /// A host outside of the cluster.
    External,
    /// The node, to its own loopback address.
    Localhost,
}

/// Destination of packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Destination {
    ClusterIp,
    /// The node port on the primary address of the node.
    NodePort,
    LoadBalancer,
    ExternalIp,
}

/// An IP family and a transport protocol. Tests run for all combinations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// 0 for IPv4, 1 for IPv6, as in [`Host::addresses`].
    pub(crate) family: usize,
    pub(crate) protocol: Protocol,
}

pub(crate) const WAYS: [Way; 4] = [
    Way::new(0, Protocol::Tcp),
    Way::new(1, Protocol::Tcp),
    Way::new(0, Protocol::Udp),
    Way::new(1, Protocol::Udp),
];

impl Way {
    const fn new(family: usize, protocol: Protocol) -> Self {
        Self { family, protocol }
    }

    pub(crate) fn probe(self, address: IpAddr, port: u16) -> Probe {
        Probe::new(self.protocol, SocketAddr::new(address, port))
    }
}

/// A lab with an engine on its node. The engine detects pods by their networks.
///
/// The endpoints are a backend on the node and the pod of the other node. Host `world`
/// answers everything that leaves the cluster without a route.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) rules: Rules,
    config: Config,
    /// In a mutex only to make the stage `Sync`.
    pub(crate) opened: Mutex<Opened>,
    now: Duration,
    world: Vec<Server>,
    _endpoints: Vec<Server>,
}

/// Returns the configuration that stages start from.
pub(crate) fn config(rules: Rules) -> Config {
    let networks = Lab::POD_NETWORKS.split(',');
    let networks = networks.map(|text| text.parse().expect("a network"));
    rules.configured(
        fixtures::config().with_detect_local(DetectLocal::ClusterCidr(networks.collect())),
    )
}

/// Addresses of the node on its link to host `world`.
pub(crate) const TO_WORLD: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)),
];

/// Loopback addresses of the node.
pub(crate) const LOCALHOST: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

impl Stage {
    /// Sets up a stage with one backend and without Services.
    pub(crate) fn new(rules: Rules, config: Config) -> Self {
        Self::with_backends(1, rules, config)
    }

    /// Sets up a stage with `count` backends on the node.
    pub(crate) fn with_backends(count: usize, rules: Rules, config: Config) -> Self {
        let lab = Lab::with_backends(count).expect("network namespaces");
        let opened = lab.node.netns.run(|| {
            if rules.is_iptables() && config.serves_localhost() {
                link::set_sysctl("ipv4/conf/all/route_localnet", "1").expect("the sysctl exists");
            }
            let opened = rules.open(config.clone());
            if rules == Rules::Ipvs {
                for setting in [
                    "conntrack",
                    "expire_nodest_conn",
                    "expire_quiescent_template",
                ] {
                    link::set_sysctl(&format!("ipv4/vs/{setting}"), "1")
                        .expect("the sysctl exists");
                }
            }
            opened
        });
        let endpoints = lab.backends.iter().chain([&lab.remote]);
        let endpoints = endpoints.flat_map(|host| {
            let addresses = host.addresses().into_iter();
            addresses.flat_map(|address| serve(host, address, TARGET))
        });
        let any = Ipv6Addr::UNSPECIFIED.into();
        let world = [PORT, OTHER_PORT].map(|port| serve(&lab.world, any, port));
        let mut stage = Self {
            _endpoints: endpoints.collect(),
            world: world.into_iter().flatten().collect(),
            lab,
            rules,
            config,
            opened: Mutex::new(opened),
            now: Duration::ZERO,
        };
        stage.first_sync([]);
        stage.wait_for_ipv6();
        stage
    }

    /// Applies the Node, the ServiceCIDR and `events` to a new engine, and syncs.
    fn first_sync(&mut self, events: impl IntoIterator<Item = Event>) {
        let own = [self.lab.node.addresses(), TO_WORLD, LOCALHOST];
        let inner = [Lab::GATEWAYS, Lab::TO_NEIGHBOR];
        let addresses = own.into_iter().chain(inner).flatten().collect();
        let opened = self.opened.get_mut();
        let opened = opened.expect("no test continues after a panic");
        opened.engine.set_addresses(addresses);
        let node = node(&self.lab.node);
        let cidr = service_cidr(&["10.96.0.0/16", "fd00:10:96::/112"]);
        let events = events.into_iter().chain([Event::Synced]);
        self.sync([node, cidr].into_iter().chain(events));
    }

    /// Replaces the engine by a new one over the programmed state.
    pub(crate) fn restart(&mut self, events: impl IntoIterator<Item = Event>) {
        let open = || self.rules.open(self.config.clone());
        self.opened = Mutex::new(self.lab.node.netns.run(open));
        self.now = Duration::ZERO;
        self.first_sync(events);
    }

    /// Waits until IPv6 uses the new links. Earlier datagrams are lost, for up to a
    /// second.
    fn wait_for_ipv6(&self) {
        let lab = &self.lab;
        let servers = lab.backends.iter().chain([&lab.remote]);
        let way = Way::new(1, Protocol::Udp);
        let probes: Vec<Probe> = servers
            .map(|host| way.probe(host.v6.into(), TARGET))
            .map(|probe| probe.timeout(Duration::from_millis(50)))
            .collect();
        let deadline = Instant::now() + Duration::from_secs(10);
        for host in [&lab.node, &lab.client, &lab.pod, &lab.neighbor, &lab.remote] {
            for probe in &probes {
                while let Err(error) = probe.once(&host.netns) {
                    assert!(
                        Instant::now() < deadline,
                        "{probe:?} from {}: {error}",
                        host.name
                    );
                }
            }
        }
    }

    /// Applies events and syncs at a time at which no interval delays the sync.
    pub(crate) fn sync(&mut self, events: impl IntoIterator<Item = Event>) {
        let opened = self.opened.get_mut();
        let engine = &mut opened.expect("no test continues after a panic").engine;
        let now = &mut self.now;
        apply(engine, events);
        let report = self.lab.node.netns.run(|| {
            (0..2).find_map(|_| {
                *now += Duration::from_secs(10);
                engine.poll(*now)
            })
        });
        let report = report.expect("a sync is due");
        assert!(report.is_success(), "{report}");
    }

    /// Advances the clock and polls, without a pending change.
    pub(crate) fn poll_idle(&mut self) {
        let opened = self.opened.get_mut();
        let engine = &mut opened.expect("no test continues after a panic").engine;
        self.now += Duration::from_secs(10);
        self.lab.node.netns.run(|| drop(engine.poll(self.now)));
    }

    /// Returns the endpoint on the node.
    pub(crate) fn near(&self) -> (&Host, &'static str) {
        (&self.lab.backends[0], NODE)
    }

    /// Returns the endpoint on the other node.
    pub(crate) fn far(&self) -> (&Host, &'static str) {
        (&self.lab.remote, OTHER_NODE)
    }

    pub(crate) fn host(&self, source: Source) -> &Host {
        match source {
            Source::Pod => &self.lab.pod,
            Source::Node | Source::Localhost => &self.lab.node,
            Source::External => &self.lab.client,
        }
    }

    /// Returns the request of a source to Service `number` at a destination.
    pub(crate) fn probe(&self, from: Source, to: Destination, number: u16, way: Way) -> Probe {
        if from == Source::Localhost {
            return way.probe(LOCALHOST[way.family], node_port(number));
        }
        match to {
            Destination::NodePort => {
                let node = self.lab.node.addresses()[way.family];
                way.probe(node, node_port(number))
            }
            _ => way.probe(addresses(to, number)[way.family], PORT),
        }
    }

    /// Sends requests until the outcome is certain. Returns the servers that answered
    /// and the client addresses that they saw.
    ///
    /// The result is a cell of the matrix: `all` endpoints or the `local` one, followed
    /// by `M` if they saw the node. A failure is `REJECT` or `DROP`. Otherwise it is
    /// the name of a server, including `world` if `world` got a request.
    pub(crate) fn observe(&self, from: &Host, probe: Probe) -> String {
        let before = self.world_requests();
        let count = match self.rules {
            Rules::Ipvs => MAX_REQUESTS_IN_TURN,
            _ => MAX_REQUESTS,
        };
        let (servers, clients) = from.netns.run(|| self.outcomes(probe, count, before));
        // All datagrams of `world` come from one address, so they match no request.
        if self.world_requests() > before {
            return self.lab.world.name.clone();
        }
        let (near, far) = (&*self.near().0.name, &*self.far().0.name);
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let servers = match &*servers {
            [one, other] if [*one, *other] == [near, far] => "all".into(),
            [one] if *one == near => "local".into(),
            others => others.join(" + "),
        };
        let clients: Vec<String> = clients.into_iter().collect();
        servers + &clients.join(" or")
    }

    /// Sends `count` requests, or fewer if requests fail, if both endpoints have answered,
    /// or if `world` got more than `before` requests. Returns the servers that answered or the kinds of failure, and the
    /// client addresses that the servers saw.
    fn outcomes(
        &self,
        probe: Probe,
        count: usize,
        before: usize,
    ) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut servers, mut clients) = (BTreeSet::new(), BTreeSet::new());
        let mut failures = 0;
        let both = [self.near(), self.far()].map(|(host, _)| &host.name);
        for sent in 1..=count {
            let start = Instant::now();
            match probe.in_current_netns() {
                Ok(answer) => {
                    clients.insert(self.client_as_seen(&answer));
                    servers.insert(answer.server);
                }
                Err(error) => {
                    failures += 1;
                    servers.insert(match error.kind() {
                        ErrorKind::ConnectionRefused if start.elapsed() < REJECT_TIMEOUT => {
                            "REJECT".into()
                        }
                        ErrorKind::TimedOut => "DROP".into(),
                        _ => format!("({error} after {:?})", start.elapsed()),
                    });
                }
            }
            let have_both_answered = both.iter().all(|&name| servers.contains(name));
            let is_certain = sent >= MIN_REQUESTS && have_both_answered;
            if is_certain || failures == MAX_FAILURES || self.world_requests() > before {
                break;
            }
        }
        (servers, clients)
    }

    /// Returns the empty string for the address of the client, ` M` for that of the
    /// node.
    fn client_as_seen(&self, answer: &Answer) -> String {
        let family = usize::from(answer.client.is_ipv6());
        let node = match answer.server == self.lab.remote.name {
            false => Lab::GATEWAYS[family],
            true => Lab::TO_NEIGHBOR[family],
        };
        match answer.client {
            client if client == answer.local => String::new(),
            client if client == node => " M".into(),
            client => format!(" as {client}"),
        }
    }

    fn world_requests(&self) -> usize {
        self.world.iter().map(Server::requests).sum()
    }
}

/// A Service with a port in both protocols at each destination.
#[derive(Clone)]
pub(crate) struct Web {
    pub(crate) service: api::Service,
    pub(crate) slices: Vec<api::EndpointSlice>,
}

impl Web {
    /// Returns Service `number` with traffic policies Cluster and these endpoints.
    pub(crate) fn new<'a>(
        number: u16,
        endpoints: impl IntoIterator<Item = (&'a Host, &'static str)>,
    ) -> Self {
        let mut builder = ServiceBuilder::new(format!("web-{number}"));
        for address in addresses(Destination::ClusterIp, number) {
            builder = builder.cluster_ip(address);
        }
        for protocol in [api::TransportProtocol::Tcp, api::TransportProtocol::Udp] {
            builder = builder.port(protocol, PORT, TARGET);
        }
        for (host, node) in endpoints {
            for address in host.addresses() {
                builder = builder.endpoint(address, node);
            }
        }
        let mut service = builder.service();
        service.spec.kind = api::ServiceType::LoadBalancer;
        for port in &mut service.spec.ports {
            port.node_port = node_port(number);
        }
        let external = addresses(Destination::ExternalIp, number);
        service.spec.external_ips = external.map(|address| address.to_string()).into();
        let balancer = addresses(Destination::LoadBalancer, number);
        service.status.load_balancer.ingress = balancer.map(ingress).into();
        Self {
            service,
            slices: builder.slices(),
        }
    }

    /// Sets external traffic policy Local.
    pub(crate) fn externally_local(mut self) -> Self {
        self.service.spec.external_traffic_policy = api::TrafficPolicy::Local;
        self
    }

    /// Sets internal traffic policy Local.
    pub(crate) fn internally_local(mut self) -> Self {
        self.service.spec.internal_traffic_policy = api::TrafficPolicy::Local;
        self
    }

    /// Sets the source ranges of the load balancer IPs.
    pub(crate) fn with_source_ranges(mut self, ranges: &[&str]) -> Self {
        let ranges = ranges.iter().map(|&range| range.into());
        self.service.spec.load_balancer_source_ranges = ranges.collect();
        self
    }

    /// Sets the conditions of the endpoints on a node.
    pub(crate) fn conditions(mut self, node: &str, conditions: &api::Conditions) -> Self {
        for slice in &mut self.slices {
            for endpoint in &mut slice.endpoints {
                if endpoint.node_name.as_deref() == Some(node) {
                    endpoint.conditions = conditions.clone();
                }
            }
        }
        self
    }

    /// Makes an endpoint serving and terminating.
    pub(crate) fn leaving(mut self, host: &Host) -> Self {
        let own = host.addresses().map(|address| address.to_string());
        let slices = self.slices.iter_mut();
        for endpoint in slices.flat_map(|slice| &mut slice.endpoints) {
            if endpoint.addresses.iter().any(|each| own.contains(each)) {
                endpoint.conditions = api::Conditions {
                    ready: Some(false),
                    serving: Some(true),
                    terminating: Some(true),
                };
            }
        }
        self
    }

    /// Returns the events that apply the Service and its slices.
    pub(crate) fn events(self) -> Vec<Event> {
        let slices = self.slices.into_iter().map(Event::from);
        [self.service.into()].into_iter().chain(slices).collect()
    }
}

/// Returns the cluster IPs, load balancer IPs or external IPs of Service `number`, IPv4
/// first.
pub(crate) fn addresses(of: Destination, number: u16) -> [IpAddr; 2] {
    let [v4, v6] = match of {
        Destination::ClusterIp => ["10.96.0.", "fd00:10:96::"],
        Destination::LoadBalancer => ["203.0.113.", "2001:db8:203::"],
        Destination::ExternalIp => ["198.18.0.", "2001:db8:18::"],
        Destination::NodePort => panic!("node ports are at the addresses of nodes"),
    };
    [v4, v6].map(|prefix| format!("{prefix}{number}").parse().expect("an address"))
}

pub(crate) fn node_port(number: u16) -> u16 {
    30_000 + number
}

/// Returns the event of the lab's node, with its primary addresses.
pub(crate) fn node(host: &Host) -> Event {
    let address = |address: IpAddr| api::NodeAddress {
        kind: "InternalIP".into(),
        address: address.to_string(),
    };
    api::Node {
        metadata: api::ObjectMeta::named("", NODE),
        status: api::NodeStatus {
            addresses: host.addresses().map(address).into(),
        },
        ..api::Node::default()
    }
    .into()
}

fn ingress(address: IpAddr) -> api::Ingress {
    api::Ingress {
        ip: address.to_string(),
        ..api::Ingress::default()
    }
}

/// Starts a server for each protocol.
pub(crate) fn serve(host: &Host, address: IpAddr, port: u16) -> [Server; 2] {
    [Protocol::Tcp, Protocol::Udp].map(|protocol| {
        let at = (address, port).into();
        Server::start(&host.netns, protocol, at, &host.name).expect("the port is free")
    })
}
