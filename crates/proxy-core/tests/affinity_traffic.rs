//! Session affinity, judged by real connections and datagrams in both families.
#![cfg(all(feature = "nftables", feature = "iptables"))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod rules;

mod stage;

use std::io;
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fixtures::NODE;
use rules::Rules;
use stage::{
    Destination::{self, ClusterIp, ExternalIp, LoadBalancer, NodePort},
    Source::External,
    Stage, WAYS, Way, Web, config,
};
use testkit::lab::Host;
use testkit::nft;
use testkit::traffic::{Ask, Protocol};
use vipline_service_model::api;

/// For how long a client without a connection is remembered, in seconds.
const TIMEOUT: u32 = 3;
/// Longer than a test takes, in seconds.
const LONG: u32 = 600;
/// How many endpoints there are, all on the node.
const ENDPOINTS: usize = 8;
/// How long a connection is tried that cannot be made.
const STUCK: Duration = Duration::from_millis(2500);
/// For how much of that the endpoint is still there.
const BEFORE: Duration = Duration::from_millis(300);
/// How often something is tried that is a matter of chance: with eight
/// endpoints it fails once in eight to the power of this.
const TRIES: usize = 8;
/// The Service.
const NUMBER: u16 = 1;

rules::tests_of_rules! {
    all {
        a_client_stays_with_its_endpoint_and_another_may_have_another
        a_client_that_comes_back_in_time_stays_and_one_that_does_not_may_move
        a_client_moves_at_once_when_its_endpoint_is_removed
        a_client_stays_while_others_come_and_go_and_when_the_engine_is_restarted
        a_client_chooses_anew_each_time_without_affinity
        a_connection_that_got_stuck_is_led_elsewhere_as_others_are
        a_client_has_the_same_endpoint_by_each_address_of_a_service
    }
    iptables {
    }
}

fn a_client_stays_with_its_endpoint_and_another_may_have_another(rules: Rules) {
    let stage = stage(rules);
    for (way, to) in ways() {
        let ask = stage.ask(External, to, NUMBER, way);
        let first = stays(&stage.lab.client, ask, 50);
        let others = [&stage.lab.pod, &stage.lab.remote, &stage.lab.neighbor];
        let others = others.into_iter().chain(&stage.lab.backends);
        let others: Vec<String> = others.map(|client| stays(client, ask, 5)).collect();
        assert!(
            others.iter().any(|other| *other != first),
            "{ask:?}: {first}"
        );
    }
}

fn a_client_that_comes_back_in_time_stays_and_one_that_does_not_may_move(rules: Rules) {
    let stage = stage(rules);
    let remembered = Duration::from_secs(TIMEOUT.into());
    let asks = ways().map(|(way, to)| stage.ask(External, to, NUMBER, way));
    let asks: Vec<Ask> = asks.collect();
    let all = || -> Vec<String> {
        let answers = asks.iter().map(|ask| answer(&stage.lab.client, *ask));
        answers.collect()
    };
    let first = all();
    for _ in 0..3 {
        thread::sleep(remembered * 2 / 3);
        assert_eq!(all(), first);
    }
    let mut moved = vec![false; asks.len()];
    for _ in 0..TRIES {
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
        asks.iter().zip(moved).collect::<Vec<_>>()
    );
}

fn a_client_moves_at_once_when_its_endpoint_is_removed(rules: Rules) {
    let mut stage = stage(rules);
    for (way, to) in ways() {
        let ask = stage.ask(External, to, NUMBER, way);
        let mut gone = Vec::new();
        for _ in 0..3 {
            let before = stays(&stage.lab.client, ask, 5);
            gone.push(before);
            stage.sync(web(&stage, &gone).events());
            let after = stays(&stage.lab.client, ask, 50);
            assert!(!gone.contains(&after), "{ask:?}: {after} of {gone:?}");
        }
        stage.sync(web(&stage, &[]).events());
    }
}

fn a_client_stays_while_others_come_and_go_and_when_the_engine_is_restarted(rules: Rules) {
    // More than can be chosen, so that there are others.
    let mut stage = Stage::with_backends(2 * ENDPOINTS, rules, config(rules));
    let web = |stage: &Stage, without: &[String]| remembering(web(stage, without), LONG);
    stage.sync(web(&stage, &[]).events());
    let asks = ways().map(|(way, to)| stage.ask(External, to, NUMBER, way));
    let asks: Vec<Ask> = asks.collect();
    let first: Vec<_> = asks
        .iter()
        .map(|ask| stays(&stage.lab.client, *ask, 5))
        .collect();
    let all = |stage: &Stage, when: &str| {
        for (ask, first) in asks.iter().zip(&first) {
            assert_eq!(stays(&stage.lab.client, *ask, 5), *first, "{when}: {ask:?}");
        }
    };
    let backends = stage.lab.backends.iter().map(|host| host.name.clone());
    let others: Vec<_> = backends.filter(|name| !first.contains(name)).collect();
    // Some of the others leave, come back, and leave again.
    let (some, _) = others.split_at(others.len() / 2);
    for gone in [some, &[], some] {
        stage.sync(web(&stage, gone).events());
        all(&stage, "others came or went");
    }
    stage.restart(web(&stage, some).events());
    all(&stage, "the engine was restarted");
    stage.restart(web(&stage, &[]).events());
    all(&stage, "others came meanwhile");
}

fn a_client_has_the_same_endpoint_by_each_address_of_a_service(rules: Rules) {
    let stage = stage(rules);
    for way in WAYS {
        let at = |to| stage.ask(External, to, NUMBER, way);
        let first = stays(&stage.lab.client, at(ClusterIp), 5);
        for to in [NodePort, LoadBalancer, ExternalIp] {
            let other = stays(&stage.lab.client, at(to), 5);
            assert_eq!(other, first, "{way:?} {to:?}");
        }
    }
}

fn a_client_chooses_anew_each_time_without_affinity(rules: Rules) {
    let mut stage = stage(rules);
    let mut web = web(&stage, &[]);
    web.service.spec.session_affinity = api::Affinity::None;
    for (way, to) in ways() {
        let ask = stage.ask(External, to, NUMBER, way);
        stays(&stage.lab.client, ask, 5);
    }
    stage.sync(web.events());
    for (way, to) in ways() {
        let ask = stage.ask(External, to, NUMBER, way);
        let first = answer(&stage.lab.client, ask);
        let others = (0..50).filter(|_| answer(&stage.lab.client, ask) != first);
        assert!(others.count() > 0, "{ask:?}: always {first}");
    }
}

fn a_connection_that_got_stuck_is_led_elsewhere_as_others_are(rules: Rules) {
    let mut stage = stage(rules);
    let mut silent = Vec::new();
    for (family, to) in [(0, ClusterIp), (1, NodePort)] {
        let way = Way {
            family,
            protocol: Protocol::Tcp,
        };
        let ask = stage.ask(External, to, NUMBER, way);
        let gone = stays(&stage.lab.client, ask, 5);
        let stuck = get_stuck(&stage, ask, &gone);
        silent.push(gone.clone());
        stage.sync(web(&stage, &silent).events());
        let stuck = stuck.join().expect("a connection does not panic");
        assert!(stuck.is_ok(), "{ask:?}: {stuck:?}");
        assert_ne!(stays(&stage.lab.client, ask, 5), gone, "{ask:?}");
    }
}

/// Adds clients to all maps of clients in IPv4 until these are full.
fn fill() {
    let maps = nft::succeeds(&["list", "maps", "ip"], "");
    let maps = maps.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("map ")?.strip_suffix(" {")?;
        name.starts_with("clients-").then_some(name)
    });
    for map in maps {
        let client = |number: u32| {
            let [_, _, third, last] = number.to_be_bytes();
            format!("198.18.{third}.{last} timeout 1h : 192.0.2.1 . 1")
        };
        let clients: Vec<_> = (0..65_500).map(client).collect();
        let elements = format!("{{ {} }}", clients.join(", "));
        nft::succeeds(
            &["-f", "-"],
            &format!("add element ip kube-proxy {map} {elements}"),
        );
        let fits = |number: u32| {
            let element = format!("{{ {} }}", client(number));
            let args = ["add", "element", "ip", "kube-proxy", map, &element];
            nft::run(&args, "").status.success()
        };
        assert!(
            (65_500..65_536).any(|number| !fits(number)),
            "{map} is full"
        );
    }
}

#[test]
fn clients_of_one_service_take_no_room_from_those_of_another() {
    let mut stage = stage(Rules::Nftables);
    stage.lab.node.netns.run(fill);
    let backends = stage.lab.backends.iter().map(|host| (host, NODE));
    let other = remembering(Web::new(NUMBER + 1, backends), TIMEOUT);
    stage.sync(other.events());
    let ask = |number| stage.ask(External, ClusterIp, number, WAYS[0]);
    stays(&stage.lab.client, ask(NUMBER + 1), 50);
    let first = answer(&stage.lab.client, ask(NUMBER));
    let all = ask(NUMBER).times(&stage.lab.client.netns, 50);
    assert!(all.by(&first) < 50, "this Service has no room: {all}");
}

/// Lets a backend answer no more, and a client connect to it in vain.
///
/// The client sends its first packet again each second.
fn get_stuck(stage: &Stage, ask: Ask, to: &str) -> JoinHandle<io::Result<TcpStream>> {
    let mut backends = stage.lab.backends.iter();
    let backend = backends.find(|host| host.name == to).expect("a backend");
    let silence = "table inet silence {
        chain input { type filter hook input priority 0; tcp dport 8080 drop; }
    }";
    let output = backend.netns.run(|| nft::run(&["-f", "-"], silence));
    assert!(output.status.success(), "{output:?}");
    let connect = move || TcpStream::connect_timeout(&ask.target, STUCK);
    let stuck = stage.lab.client.netns.run(|| thread::spawn(connect));
    thread::sleep(BEFORE);
    stuck
}

/// Returns each way to the cluster IP and to the node port.
fn ways() -> impl Iterator<Item = (Way, Destination)> {
    WAYS.into_iter()
        .flat_map(|way| [(way, ClusterIp), (way, NodePort)])
}

/// Sets up a Service with all its endpoints.
fn stage(rules: Rules) -> Stage {
    let mut stage = Stage::with_backends(ENDPOINTS, rules, config(rules));
    stage.sync(web(&stage, &[]).events());
    stage
}

/// Returns the Service with affinity and with all backends but some.
fn web(stage: &Stage, without: &[String]) -> Web {
    let backends = stage.lab.backends.iter();
    let backends = backends.filter(|host| !without.contains(&host.name));
    let web = Web::new(NUMBER, backends.map(|host| (host, NODE)));
    remembering(web, TIMEOUT)
}

/// Lets a Service remember clients for so many seconds.
fn remembering(mut web: Web, seconds: u32) -> Web {
    web.service.spec.session_affinity = api::Affinity::ClientIp;
    web.service.spec.session_affinity_config = Some(api::SessionAffinityConfig {
        client_ip: Some(api::ClientIpConfig {
            timeout_seconds: Some(seconds),
        }),
    });
    web
}

/// Asks some times and returns the one endpoint that answered.
fn stays(client: &Host, ask: Ask, times: usize) -> String {
    let first = answer(client, ask);
    let answers = ask.times(&client.netns, times - 1);
    assert_eq!(
        answers.by(&first),
        times - 1,
        "{ask:?}: first {first}, then {answers}"
    );
    first
}

fn answer(client: &Host, ask: Ask) -> String {
    let answer = ask.once(&client.netns);
    answer
        .unwrap_or_else(|error| panic!("{ask:?}: {error}"))
        .server
}
