//! Destinations of packets.

use std::time::Duration;

use proxy_core::IptablesBackend;
use testkit::traffic::{Connection, Load, Probe, Protocol};
use vipline_service_model::api;

use super::BACKENDS;
use super::cells::{Row, cells, cells_of_request, check_cells, compare, compare_hairpin};
use super::fixtures::{NODE, OTHER_NODE};
use super::rules::Rules;
use super::stage::{
    Destination, OTHER_PORT, Source, Stage, WAYS, Way, Web, addresses, config, serve,
};

use Destination::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
use Source::{External, Localhost, Node, Pod};

/// Time limit of requests that must succeed. The CPU of a guest can be busy for seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// Three Services: traffic policies Cluster, external policy Local, internal policy
/// Local.
///
/// A virtual server cannot distinguish sources. With external policy Local all clients
/// reach the endpoints of the node, if any exist.
#[rustfmt::skip]
const MATRIX: [Row<3>; 13] = [
    (Pod,       ClusterIp,    ["all",    "all",    "local"]),
    (Pod,       NodePort,     ["all M",  "local",  "all M"]),
    (Pod,       LoadBalancer, ["all M",  "local",  "all M"]),
    (Pod,       ExternalIp,   ["all M",  "local",  "all M"]),
    (Node,      ClusterIp,    ["all M",  "all M",  "local M"]),
    (Node,      NodePort,     ["all M",  "local",  "all M"]),
    (Node,      LoadBalancer, ["all M",  "local",  "all M"]),
    (Node,      ExternalIp,   ["all M",  "local",  "all M"]),
    (Localhost, NodePort,     ["REJECT", "REJECT", "REJECT"]),
    (External,  ClusterIp,    ["all M",  "all M",  "local M"]),
    (External,  NodePort,     ["all M",  "local",  "all M"]),
    (External,  LoadBalancer, ["all M",  "local",  "all M"]),
    (External,  ExternalIp,   ["all M",  "local",  "all M"]),
];

/// Services 1 and 2: the endpoint on the node terminates, external policy Local and
/// Cluster. Service 3: both endpoints terminate, external policy Local.
#[rustfmt::skip]
const TERMINATING: [Row<3>; 5] = [
    (Pod,       ClusterIp,    ["remote",   "remote",   "all"]),
    (Pod,       NodePort,     ["local",    "remote M", "local"]),
    (Node,      LoadBalancer, ["local",    "remote M", "local"]),
    (External,  ClusterIp,    ["remote M", "remote M", "all M"]),
    (External,  NodePort,     ["local",    "remote M", "local"]),
];

/// Services 1 and 2: no endpoints, policies Cluster and Local. Services 3 and 4: an
/// endpoint on the other node only, external policy Local and internal policy Local.
///
/// Policy Local falls back to endpoints on other nodes. With external policy Local they see
/// the address of the client.
#[rustfmt::skip]
const NO_USABLE_ENDPOINTS: [Row<4>; 13] = [
    (Pod,       ClusterIp,    ["REJECT", "REJECT", "remote",   "remote"]),
    (Pod,       NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ClusterIp,    ["REJECT", "REJECT", "remote M", "remote M"]),
    (Node,      NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Localhost, NodePort,     ["REJECT", "REJECT", "REJECT",   "REJECT"]),
    (External,  ClusterIp,    ["REJECT", "REJECT", "remote M", "remote M"]),
    (External,  NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (External,  LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (External,  ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
];
#[test]
fn each_packet_reaches_the_expected_destination() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local(), web(3).internally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &MATRIX);
    compare_hairpin(&stage, &[(ClusterIp, 1)]);
}

#[test]
fn services_without_local_endpoints_are_rejected_or_use_other_nodes() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let no_endpoints = |number| Web::new(number, []);
    let far = |number| Web::new(number, [stage.far()]);
    let services = [
        no_endpoints(1),
        no_endpoints(2).externally_local().internally_local(),
        far(3).externally_local(),
        far(4).internally_local(),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &NO_USABLE_ENDPOINTS);
}

#[test]
fn terminating_endpoints_serve_only_without_ready_endpoints() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let terminating = api::Conditions {
        ready: Some(false),
        serving: Some(true),
        terminating: Some(true),
    };
    let here = |number| {
        let web = Web::new(number, [stage.near(), stage.far()]);
        web.conditions(NODE, &terminating)
    };
    let services = [
        here(1).externally_local(),
        here(2),
        here(3)
            .externally_local()
            .conditions(OTHER_NODE, &terminating),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &TERMINATING);
}

#[test]
fn service_addresses_have_no_other_ports_and_respect_source_ranges() {
    for backend in BACKENDS {
        assert_restricted(backend);
    }
}

fn assert_restricted(backend: IptablesBackend) {
    let mut config = config(Rules::Ipvs);
    config.iptables.backend = backend;
    let mut stage = Stage::new(Rules::Ipvs, config);
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [
        web(1).with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).with_source_ranges(&["172.16.0.0/16", "fd00:172::/64"]),
        web(3)
            .with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"])
            .externally_local(),
        Web::new(4, []).with_source_ranges(&["192.0.2.0/24", "2001:db8::/64"]),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    // Another program listens on all addresses of the node.
    let any = "::".parse().expect("an address");
    let other = serve(&stage.lab.node, any, OTHER_PORT);
    let mut all = Vec::new();
    for (of, number, expected) in [
        (ClusterIp, 1, "REJECT"),
        (LoadBalancer, 1, "REJECT"),
        (ExternalIp, 1, "REJECT"),
        (ClusterIp, 99, "world"),
    ] {
        for from in [Pod, External] {
            let probe = |way: Way| way.probe(addresses(of, number)[way.family], OTHER_PORT);
            all.extend(cells_of_request(&stage, stage.host(from), probe, expected));
        }
    }
    for (number, external, node, pod, neighbor) in [
        // The node has an address in the source range.
        (1, "all M", "all M", "DROP", "DROP"),
        (2, "DROP", "DROP", "DROP", "all M"),
        (3, "local", "local", "DROP", "DROP"),
        (4, "REJECT", "REJECT", "DROP", "DROP"),
    ] {
        for (from, expected) in [(External, external), (Node, node), (Pod, pod)] {
            all.extend(cells(&stage, number, from, LoadBalancer, expected));
        }
        let probe = |way| stage.probe(External, LoadBalancer, number, way);
        all.extend(cells_of_request(
            &stage,
            &stage.lab.neighbor,
            probe,
            neighbor,
        ));
    }
    check_cells(&stage, all);
    assert!(other.iter().all(|server| server.requests() == 0));
}

#[test]
fn connections_outlive_their_endpoint_and_new_ones_avoid_it() {
    let mut stage = Stage::with_backends(3, Rules::Ipvs, config(Rules::Ipvs));
    let web = |stage: &Stage, numbers: &[usize]| {
        let hosts = numbers
            .iter()
            .map(|number| (&stage.lab.backends[*number], NODE));
        Web::new(1, hosts)
    };
    let first = web(&stage, &[0, 1]);
    stage.sync(first.events());
    let probe = |to, way| stage.probe(External, to, 1, way).timeout(PATIENCE);
    let ways = WAYS
        .iter()
        .flat_map(|way| [ClusterIp, NodePort].map(|to| probe(to, *way)));
    let probes: Vec<_> = ways.collect();
    let loads: Vec<_> = probes
        .iter()
        .map(|probe| {
            let load = Load::start(
                &stage.lab.client.netns,
                *probe,
                1,
                Duration::from_millis(20),
            );
            (probe.protocol, load.unwrap())
        })
        .collect();
    let answered = |(_, load): (Protocol, Load)| {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{answers}");
    };
    let is_tcp = |probe: &&Probe| probe.protocol == Protocol::Tcp;
    let streams = probes.iter().filter(is_tcp);
    let mut connections: Vec<_> = streams
        .flat_map(|probe| {
            (0..4).map(|_| Connection::open(&stage.lab.client.netns, *probe).unwrap())
        })
        .collect();
    let exchange = |connections: &mut Vec<Connection>| {
        for connection in connections {
            connection
                .exchange("a message")
                .unwrap_or_else(|error| panic!("{}: {error}", connection.server()));
        }
    };
    // UDP clients may lose the last answer of an endpoint that is removed without
    // terminating first.
    let all = web(&stage, &[0, 1, 2]).leaving(&stage.lab.backends[0]);
    stage.sync(all.events());
    exchange(&mut connections);
    let (loads, datagrams): (Vec<_>, Vec<_>) = loads
        .into_iter()
        .partition(|(protocol, _)| *protocol == Protocol::Tcp);
    datagrams.into_iter().for_each(answered);
    let others = web(&stage, &[1, 2]);
    stage.sync(others.events());
    exchange(&mut connections);
    // The engine polls the draining real server several times. The real server still
    // has connections.
    for _ in 0..3 {
        stage.poll_idle();
    }
    exchange(&mut connections);
    let gone = stage.lab.backends[0].name.clone();
    assert!(
        connections
            .iter()
            .any(|connection| connection.server() == gone),
        "it had connections"
    );
    for probe in &probes {
        let answers = probe.times(&stage.lab.client.netns, 20);
        assert!(answers.failures.is_empty(), "{probe:?}: {answers}");
        assert_eq!(answers.count(&gone), 0, "{probe:?}: {answers}");
    }
    loads.into_iter().for_each(answered);
    // A crash leaves weight 0. The next engine restores the planned weight.
    let first = web(&stage, &[0, 1]);
    stage.restart(first.events());
    exchange(&mut connections);
    for probe in &probes {
        assert!(
            probe.times(&stage.lab.client.netns, 20).count(&gone) > 0,
            "{probe:?}"
        );
    }
}
