//! Session affinity with real connections and datagrams in both families.

use std::io;
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::lab::Host;
use testkit::nft;
use testkit::traffic::{Probe, Protocol};
use vipline_service_model::api;

use crate::fixtures::NODE;
use crate::rules::Rules;
use crate::stage::{
    Destination::{self, ClusterIp, ExternalIp, LoadBalancer, NodePort},
    Source::External,
    Stage, WAYS, Way, Web, config,
};

/// Affinity timeout of the Service, in seconds.
const TIMEOUT: u32 = 3;
/// An affinity timeout longer than any test, in seconds.
const LONG_TIMEOUT: u32 = 600;
/// Number of endpoints, all on the node.
const ENDPOINTS: usize = 8;
/// Timeout of the client whose endpoint does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2500);
/// Time for which the unanswering endpoint stays before it is removed.
const ATTEMPT_TIME: Duration = Duration::from_millis(300);
/// Number of attempts of a random choice. With eight endpoints, all attempts fail with
/// probability 1/8 to the power of this number.
const ATTEMPTS: usize = 8;
/// Number of requests that show affinity. Without affinity all of them reach one of eight
/// endpoints with probability 1e-10.
const REQUESTS: usize = 12;
/// Number of the Service.
const NUMBER: u16 = 1;

crate::rules::tests_of_rules! {
    all {
        a_client_keeps_its_endpoint_and_other_clients_may_get_others
        a_client_keeps_its_endpoint_until_its_affinity_timeout_expires
        a_client_moves_at_once_when_its_endpoint_is_removed
        a_client_keeps_its_endpoint_when_others_change_and_when_the_engine_restarts
        each_connection_gets_a_random_endpoint_without_affinity
        an_unanswered_connection_attempt_moves_when_its_endpoint_is_removed
        a_client_gets_the_same_endpoint_at_each_address_of_a_service
    }
    iptables {
    }
}

fn a_client_keeps_its_endpoint_and_other_clients_may_get_others(rules: Rules) {
    let stage = stage(rules);
    for (way, to) in ways() {
        let probe = stage.probe(External, to, NUMBER, way);
        let first = sole_endpoint(&stage.lab.client, probe, REQUESTS);
        let others = [&stage.lab.pod, &stage.lab.remote, &stage.lab.neighbor];
        let others = others.into_iter().chain(&stage.lab.backends);
        let others: Vec<String> = others
            .map(|client| sole_endpoint(client, probe, 5))
            .collect();
        assert!(
            others.iter().any(|other| *other != first),
            "{probe:?}: {first}"
        );
    }
}

fn a_client_keeps_its_endpoint_until_its_affinity_timeout_expires(rules: Rules) {
    let stage = stage(rules);
    let remembered = Duration::from_secs(TIMEOUT.into());
    let probes = ways().map(|(way, to)| stage.probe(External, to, NUMBER, way));
    let probes: Vec<Probe> = probes.collect();
    let all = || -> Vec<String> {
        let answers = probes.iter().map(|probe| answer(&stage.lab.client, *probe));
        answers.collect()
    };
    let first = all();
    for _ in 0..3 {
        thread::sleep(remembered * 2 / 3);
        assert_eq!(all(), first);
    }
    let mut moved = vec![false; probes.len()];
    for _ in 0..ATTEMPTS {
        let before = all();
        thread::sleep(remembered + remembered / 4);
        for ((moved, before), after) in moved.iter_mut().zip(before).zip(all()) {
            *moved |= before != after;
        }
        if moved.iter().all(|moved| *moved) {
            return;
        }
    }
    panic!(
        "never moved: {:?}",
        probes.iter().zip(moved).collect::<Vec<_>>()
    );
}

fn a_client_moves_at_once_when_its_endpoint_is_removed(rules: Rules) {
    let mut stage = stage(rules);
    for (way, to) in ways() {
        let probe = stage.probe(External, to, NUMBER, way);
        let mut gone = Vec::new();
        for _ in 0..3 {
            let before = sole_endpoint(&stage.lab.client, probe, 5);
            gone.push(before);
            stage.sync(web(&stage, &gone).events());
            let after = sole_endpoint(&stage.lab.client, probe, REQUESTS);
            assert!(!gone.contains(&after), "{probe:?}: {after} of {gone:?}");
        }
        stage.sync(web(&stage, &[]).events());
    }
}

fn a_client_keeps_its_endpoint_when_others_change_and_when_the_engine_restarts(rules: Rules) {
    // More endpoints than connections can choose, so some endpoints stay unchosen.
    let mut stage = Stage::with_backends(2 * ENDPOINTS, rules, config(rules));
    let web = |stage: &Stage, without: &[String]| with_affinity(web(stage, without), LONG_TIMEOUT);
    stage.sync(web(&stage, &[]).events());
    let probes = ways().map(|(way, to)| stage.probe(External, to, NUMBER, way));
    let probes: Vec<Probe> = probes.collect();
    let first: Vec<_> = probes
        .iter()
        .map(|probe| sole_endpoint(&stage.lab.client, *probe, 5))
        .collect();
    let all = |stage: &Stage, when: &str| {
        for (probe, first) in probes.iter().zip(&first) {
            assert_eq!(
                sole_endpoint(&stage.lab.client, *probe, 5),
                *first,
                "{when}: {probe:?}"
            );
        }
    };
    let backends = stage.lab.backends.iter().map(|host| host.name.clone());
    let others: Vec<_> = backends.filter(|name| !first.contains(name)).collect();
    // Half of the other endpoints are removed, added and removed again.
    let (some, _) = others.split_at(others.len() / 2);
    for gone in [some, &[], some] {
        stage.sync(web(&stage, gone).events());
        all(&stage, "other endpoints changed");
    }
    stage.restart(web(&stage, some).events());
    all(&stage, "the engine restarted");
    stage.restart(web(&stage, &[]).events());
    all(&stage, "endpoints were added during the restart");
}

fn a_client_gets_the_same_endpoint_at_each_address_of_a_service(rules: Rules) {
    let stage = stage(rules);
    for way in WAYS {
        let at = |to| stage.probe(External, to, NUMBER, way);
        let first = sole_endpoint(&stage.lab.client, at(ClusterIp), 5);
        for to in [NodePort, LoadBalancer, ExternalIp] {
            let other = sole_endpoint(&stage.lab.client, at(to), 5);
            assert_eq!(other, first, "{way:?} {to:?}");
        }
    }
}

fn each_connection_gets_a_random_endpoint_without_affinity(rules: Rules) {
    let mut stage = stage(rules);
    let mut web = web(&stage, &[]);
    web.service.spec.session_affinity = api::Affinity::None;
    for (way, to) in ways() {
        let probe = stage.probe(External, to, NUMBER, way);
        sole_endpoint(&stage.lab.client, probe, 5);
    }
    stage.sync(web.events());
    for (way, to) in ways() {
        let probe = stage.probe(External, to, NUMBER, way);
        let first = answer(&stage.lab.client, probe);
        let others = (0..50).filter(|_| answer(&stage.lab.client, probe) != first);
        assert!(others.count() > 0, "{probe:?}: always {first}");
    }
}

fn an_unanswered_connection_attempt_moves_when_its_endpoint_is_removed(rules: Rules) {
    let mut stage = stage(rules);
    let mut removed = Vec::new();
    for (family, to) in [(0, ClusterIp), (1, NodePort)] {
        let way = Way {
            family,
            protocol: Protocol::Tcp,
        };
        let probe = stage.probe(External, to, NUMBER, way);
        let gone = sole_endpoint(&stage.lab.client, probe, 5);
        let attempt = start_unanswered_connection(&stage, probe, &gone);
        removed.push(gone.clone());
        stage.sync(web(&stage, &removed).events());
        let attempt = attempt.join().expect("a connection does not panic");
        assert!(attempt.is_ok(), "{probe:?}: {attempt:?}");
        assert_ne!(
            sole_endpoint(&stage.lab.client, probe, 5),
            gone,
            "{probe:?}"
        );
    }
}

/// Returns the names of all IPv4 maps of clients.
fn maps_of_clients() -> Vec<String> {
    let maps = nft::succeeds(&["list", "maps", "ip"], "");
    let maps = maps.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("map ")?.strip_suffix(" {")?;
        name.starts_with("clients-").then(|| name.to_owned())
    });
    maps.collect()
}

/// Adds clients to all IPv4 maps of clients until the maps are full.
fn fill() {
    const SIZE: u32 = 131_072;
    for map in maps_of_clients() {
        let client = |number: u32| {
            let [_, second, third, last] = number.to_be_bytes();
            format!("1:1 . 198.{}.{third}.{last} timeout 1h : 1:1", 16 + second)
        };
        let nearly = SIZE - 20;
        let clients: Vec<_> = (0..nearly).map(client).collect();
        let elements = format!("{{ {} }}", clients.join(", "));
        nft::succeeds(
            &["-f", "-"],
            &format!("add element ip kube-proxy {map} {elements}"),
        );
        let is_accepted = |number: u32| {
            let element = format!("{{ {} }}", client(number));
            let args = ["add", "element", "ip", "kube-proxy", &map, &element];
            nft::run(&args, "").status.success()
        };
        assert!(
            (nearly..SIZE + 20).any(|number| !is_accepted(number)),
            "{map} is full"
        );
    }
}

/// Records clients once more.
fn restore(records: &[(String, String)]) {
    for (map, elements) in records {
        let command = format!("add element ip kube-proxy {map} {elements}\n");
        nft::succeeds(&["-f", "-"], &command);
    }
}

/// Returns the IPv4 maps with recorded clients, and their elements in braces, without
/// expiration.
fn recorded() -> Vec<(String, String)> {
    let with_elements = |map: String| {
        let list = nft::succeeds(&["list", "map", "ip", "kube-proxy", &map], "");
        let (_, elements) = list.split_once("elements = ")?;
        let (elements, _) = elements.split_once('}')?;
        let mut kept = Vec::new();
        let mut words = elements.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "expires" => drop(words.next()),
                word => kept.push(word),
            }
        }
        Some((map, kept.join(" ") + " }"))
    };
    maps_of_clients()
        .into_iter()
        .filter_map(with_elements)
        .collect()
}

#[test]
fn a_removed_endpoint_that_is_recorded_again_is_not_used() {
    let mut stage = stage(Rules::Nftables);
    stage.sync(with_affinity(web(&stage, &[]), LONG_TIMEOUT).events());
    let probe = stage.probe(External, ClusterIp, NUMBER, WAYS[0]);
    let gone = sole_endpoint(&stage.lab.client, probe, 5);
    let records = stage.lab.node.netns.run(recorded);
    assert_eq!(records.len(), 1, "one client of one port: {records:?}");
    let without = [gone.clone()];
    stage.sync(with_affinity(web(&stage, &without), LONG_TIMEOUT).events());
    // As if a packet of the old connection came after the sync.
    stage.lab.node.netns.run(|| restore(&records));
    let other = sole_endpoint(&stage.lab.client, probe, REQUESTS);
    assert_ne!(other, gone);
    let after = stage.lab.node.netns.run(recorded);
    assert_eq!(after.len(), 1, "{after:?}");
    assert_ne!(
        after, records,
        "the client is recorded with its new endpoint"
    );
}

#[test]
fn services_with_the_same_clients_have_separate_records() {
    let mut stage = stage(Rules::Nftables);
    let numbers = [NUMBER, NUMBER + 1];
    let backends = || stage.lab.backends.iter().map(|host| (host, NODE));
    let webs = numbers.map(|number| with_affinity(Web::new(number, backends()), LONG_TIMEOUT));
    for web in webs {
        stage.sync(web.events());
    }
    let probe = |number| stage.probe(External, ClusterIp, number, WAYS[0]);
    let first = numbers.map(|number| answer(&stage.lab.client, probe(number)));
    for _ in 0..REQUESTS {
        let now = numbers.map(|number| answer(&stage.lab.client, probe(number)));
        assert_eq!(now, first);
    }
}

#[test]
fn a_full_affinity_map_of_one_service_does_not_affect_another_service() {
    let mut stage = stage(Rules::Nftables);
    stage.lab.node.netns.run(fill);
    let full = stage.lab.node.netns.run(maps_of_clients);
    let backends = stage.lab.backends.iter().map(|host| (host, NODE));
    let other = with_affinity(Web::new(NUMBER + 1, backends), TIMEOUT);
    stage.sync(other.events());
    let maps = stage.lab.node.netns.run(maps_of_clients);
    assert_eq!(maps.len(), 2 * full.len(), "each port has a map of its own");
    let probe = |number| stage.probe(External, ClusterIp, number, WAYS[0]);
    sole_endpoint(&stage.lab.client, probe(NUMBER + 1), REQUESTS);
    let first = answer(&stage.lab.client, probe(NUMBER));
    let all = probe(NUMBER).times(&stage.lab.client.netns, 50);
    assert!(all.count(&first) < 50, "this Service has no room: {all}");
}

/// Makes a backend drop requests and starts a connection attempt to it.
///
/// The client retransmits its SYN every second.
fn start_unanswered_connection(
    stage: &Stage,
    probe: Probe,
    to: &str,
) -> JoinHandle<io::Result<TcpStream>> {
    let mut backends = stage.lab.backends.iter();
    let backend = backends.find(|host| host.name == to).expect("a backend");
    let drop_requests = "table inet mute {
        chain input { type filter hook input priority 0; tcp dport 8080 drop; }
    }";
    let output = backend.netns.run(|| nft::run(&["-f", "-"], drop_requests));
    assert!(output.status.success(), "{output:?}");
    let connect = move || TcpStream::connect_timeout(&probe.target, CONNECT_TIMEOUT);
    let attempt = stage.lab.client.netns.run(|| thread::spawn(connect));
    thread::sleep(ATTEMPT_TIME);
    attempt
}

/// Returns the cluster IP and the node port for each family and protocol.
fn ways() -> impl Iterator<Item = (Way, Destination)> {
    WAYS.into_iter()
        .flat_map(|way| [(way, ClusterIp), (way, NodePort)])
}

/// Sets up a stage with the Service and all its endpoints.
fn stage(rules: Rules) -> Stage {
    let mut stage = Stage::with_backends(ENDPOINTS, rules, config(rules));
    stage.sync(web(&stage, &[]).events());
    stage
}

/// Returns the Service with affinity and all backends except those in `without`.
fn web(stage: &Stage, without: &[String]) -> Web {
    let backends = stage.lab.backends.iter();
    let backends = backends.filter(|host| !without.contains(&host.name));
    let web = Web::new(NUMBER, backends.map(|host| (host, NODE)));
    with_affinity(web, TIMEOUT)
}

/// Enables session affinity with a timeout in seconds.
fn with_affinity(mut web: Web, seconds: u32) -> Web {
    web.service.spec.session_affinity = api::Affinity::ClientIp;
    web.service.spec.session_affinity_config = Some(api::SessionAffinityConfig {
        client_ip: Some(api::ClientIpConfig {
            timeout_seconds: Some(seconds),
        }),
    });
    web
}

/// Sends `times` requests, asserts that one endpoint answers every request, and returns
/// its name.
fn sole_endpoint(client: &Host, probe: Probe, times: usize) -> String {
    let first = answer(client, probe);
    let answers = probe.times(&client.netns, times - 1);
    assert_eq!(
        answers.count(&first),
        times - 1,
        "{probe:?}: first {first}, then {answers}"
    );
    first
}

fn answer(client: &Host, probe: Probe) -> String {
    let answer = probe.once(&client.netns);
    answer
        .unwrap_or_else(|error| panic!("{probe:?}: {error}"))
        .server
}
