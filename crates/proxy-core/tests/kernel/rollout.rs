//! Connections while endpoints change, with real traffic in both families.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use proxy_core::Event;
use testkit::traffic::{Connection, Load, Probe, Protocol};

use crate::fixtures::NODE;
use crate::rules::Rules;
use crate::stage::{
    Destination::{self, ClusterIp, ExternalIp, NodePort},
    Source::External,
    Stage, WAYS, Way, Web, config,
};

/// Number of endpoints, all on the node.
const ENDPOINTS: usize = 5;
/// Number of the Service.
const NUMBER: u16 = 1;
/// Number of requests in the test of the distribution.
const REQUESTS: usize = 1000;
/// Maximum deviation from the fair share of a server: five times the usual deviation.
const MAX_DEVIATION: usize = 64;
/// Minimum number of requests between two changes.
const MIN_REQUESTS: usize = 20;
/// Timeout for these requests.
const DEADLINE: Duration = Duration::from_secs(30);

crate::rules::tests_of_rules! {
    all {
        connections_are_distributed_evenly_over_endpoints
        connections_outlive_their_endpoint_and_service_and_new_ones_avoid_removed_endpoints
        no_request_fails_while_endpoints_are_replaced_under_load
    }
    iptables {}
}

fn connections_are_distributed_evenly_over_endpoints(rules: Rules) {
    let stage = stage(rules);
    for way in WAYS {
        let probe = stage.probe(External, ClusterIp, NUMBER, way);
        let answers = probe.times(&stage.lab.client.netns, REQUESTS);
        assert!(answers.failures.is_empty(), "{probe:?}: {answers}");
        let fair = REQUESTS / ENDPOINTS;
        for host in &stage.lab.backends {
            let share = answers.count(&host.name);
            assert!(
                share.abs_diff(fair) <= MAX_DEVIATION,
                "{probe:?}: {answers}"
            );
        }
    }
}

fn connections_outlive_their_endpoint_and_service_and_new_ones_avoid_removed_endpoints(
    rules: Rules,
) {
    let mut stage = stage(rules);
    let probes = probes(&stage).filter(|probe| probe.protocol == Protocol::Tcp);
    let probes: Vec<_> = probes.collect();
    let open = |probe: &Probe| Connection::open(&stage.lab.client.netns, *probe);
    let mut connections: Vec<_> = probes
        .iter()
        .flat_map(|probe| (0..3).map(move |_| open(probe).expect("an endpoint answers")))
        .collect();
    let exchange = |connections: &mut Vec<Connection>, when| {
        for connection in connections {
            let result = connection.exchange("a message");
            assert!(result.is_ok(), "{when}: {} {result:?}", connection.server());
        }
    };
    // All endpoints except the last are removed, so most removed endpoints have
    // connections.
    stage.sync(web(&stage, &[ENDPOINTS - 1]).events());
    exchange(&mut connections, "endpoints were removed");
    let last = stage.lab.backends[ENDPOINTS - 1].name.clone();
    for probe in &probes {
        let answers = probe.times(&stage.lab.client.netns, 20);
        assert_eq!(answers.count(&last), 20, "{probe:?}: {answers}");
    }
    stage.restart(web(&stage, &[]).events());
    exchange(
        &mut connections,
        "all endpoints were removed, and the engine restarted",
    );
    let name = web(&stage, &[]).service.metadata.object_name();
    stage.sync([Event::ServiceDeleted(name)]);
    exchange(&mut connections, "the Service was deleted");
}

fn no_request_fails_while_endpoints_are_replaced_under_load(rules: Rules) {
    let mut stage = stage(rules);
    stage.sync(web(&stage, &[0, 1]).events());
    let pause = Duration::from_millis(5);
    let client = &stage.lab.client.netns;
    let loads = probes(&stage).map(|probe| {
        let load = Load::start(client, probe, 1, pause).expect("threads start");
        (probe, load)
    });
    let loads: Vec<(Probe, Load)> = loads.collect();
    let judge = |(probe, load): (Probe, Load)| {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{probe:?}: {answers}");
        assert_eq!(answers.servers.len(), ENDPOINTS, "{probe:?}: {answers}");
    };
    // UDP clients may lose the last answer of an endpoint that is removed without
    // terminating first.
    let pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]];
    for (former, current) in pairs.iter().zip(&pairs[1..]) {
        wait_for_requests(&loads);
        let all: BTreeSet<usize> = former.iter().chain(current).copied().collect();
        let mut terminating = web(&stage, &Vec::from_iter(all));
        for gone in former.iter().filter(|index| !current.contains(index)) {
            terminating = terminating.leaving(&stage.lab.backends[*gone]);
        }
        stage.sync(terminating.events());
        wait_for_requests(&loads);
        stage.sync(web(&stage, current).events());
    }
    wait_for_requests(&loads);
    let (streams, datagrams): (Vec<_>, Vec<_>) = loads
        .into_iter()
        .partition(|(probe, _)| probe.protocol == Protocol::Tcp);
    datagrams.into_iter().for_each(judge);
    for current in [[0, 2], [1, 3], [2, 4], [3, 0]] {
        stage.sync(web(&stage, &current).events());
        wait_for_requests(&streams);
    }
    streams.into_iter().for_each(judge);
}

/// Waits until each load has sent some more requests.
fn wait_for_requests(loads: &[(Probe, Load)]) {
    let deadline = Instant::now() + DEADLINE;
    let wanted: Vec<_> = loads
        .iter()
        .map(|(_, load)| load.requests() + MIN_REQUESTS)
        .collect();
    let is_behind = |((_, load), wanted): (&(Probe, Load), &usize)| load.requests() < *wanted;
    while loads.iter().zip(&wanted).any(is_behind) {
        assert!(Instant::now() < deadline, "the clients make no progress");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the requests of a client to several addresses of the Service.
fn probes(stage: &Stage) -> impl Iterator<Item = Probe> {
    let each = |way: Way| [ClusterIp, NodePort, ExternalIp].map(|to: Destination| (way, to));
    WAYS.into_iter()
        .flat_map(each)
        .map(|(way, to)| stage.probe(External, to, NUMBER, way))
}

/// Sets up a stage with the Service and all its endpoints.
fn stage(rules: Rules) -> Stage {
    let mut stage = Stage::with_backends(ENDPOINTS, rules, config(rules));
    let all: Vec<_> = (0..ENDPOINTS).collect();
    stage.sync(web(&stage, &all).events());
    stage
}

/// Returns the Service with the backends at `indexes`.
fn web(stage: &Stage, indexes: &[usize]) -> Web {
    let backends = indexes.iter().map(|&index| &stage.lab.backends[index]);
    Web::new(NUMBER, backends.map(|host| (host, NODE)))
}
