//! Connections over endpoints that come and go, real ones in both families.
#![cfg(all(feature = "nftables", feature = "iptables"))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod rules;

mod stage;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use fixtures::NODE;
use proxy_core::Event;
use rules::Rules;
use stage::{
    Destination::{self, ClusterIp, ExternalIp, NodePort},
    Source::External,
    Stage, WAYS, Way, Web, config,
};
use testkit::traffic::{Ask, Conversation, Load, Protocol};

/// How many endpoints there are, all on the node.
const ENDPOINTS: usize = 5;
/// The Service.
const NUMBER: u16 = 1;
/// How often is asked to see how the answers are shared out.
const QUESTIONS: usize = 1000;
/// How far from the fair share a server's may be: five times what is usual.
const UNFAIR: usize = 64;
/// How much is asked between two changes, at least.
const ASKED: usize = 20;
/// How long that may take.
const DEADLINE: Duration = Duration::from_secs(30);

rules::tests_of_rules! {
    all {
        answers_are_shared_out_evenly
        connections_outlive_their_endpoint_and_their_service_and_new_ones_do_not_get_there
        nothing_fails_while_endpoints_are_replaced_under_load
    }
    iptables {}
}

fn answers_are_shared_out_evenly(rules: Rules) {
    let stage = stage(rules);
    for way in WAYS {
        let ask = stage.ask(External, ClusterIp, NUMBER, way);
        let answers = ask.times(&stage.lab.client.netns, QUESTIONS);
        assert!(answers.failures.is_empty(), "{ask:?}: {answers}");
        let fair = QUESTIONS / ENDPOINTS;
        for host in &stage.lab.backends {
            let share = answers.by(&host.name);
            assert!(share.abs_diff(fair) <= UNFAIR, "{ask:?}: {answers}");
        }
    }
}

fn connections_outlive_their_endpoint_and_their_service_and_new_ones_do_not_get_there(
    rules: Rules,
) {
    let mut stage = stage(rules);
    let asks = asks(&stage).filter(|ask| ask.protocol == Protocol::Tcp);
    let asks: Vec<_> = asks.collect();
    let open = |ask: &Ask| Conversation::open(&stage.lab.client.netns, *ask);
    let mut talks: Vec<_> = asks
        .iter()
        .flat_map(|ask| (0..3).map(move |_| open(ask).expect("it is served")))
        .collect();
    let go_on = |talks: &mut Vec<Conversation>, when| {
        for talk in talks {
            let said = talk.say("it goes on");
            assert!(said.is_ok(), "{when}: {} {said:?}", talk.server());
        }
    };
    // All but the last leave, so most of them have connections.
    stage.sync(web(&stage, &[ENDPOINTS - 1]).events());
    go_on(&mut talks, "endpoints left");
    let last = stage.lab.backends[ENDPOINTS - 1].name.clone();
    for ask in &asks {
        let answers = ask.times(&stage.lab.client.netns, 20);
        assert_eq!(answers.by(&last), 20, "{ask:?}: {answers}");
    }
    stage.restart(web(&stage, &[]).events());
    go_on(&mut talks, "none is left, and the engine is another");
    let name = web(&stage, &[]).service.metadata.object_name();
    stage.sync([Event::ServiceDeleted(name)]);
    go_on(&mut talks, "the Service is gone");
}

fn nothing_fails_while_endpoints_are_replaced_under_load(rules: Rules) {
    let mut stage = stage(rules);
    stage.sync(web(&stage, &[0, 1]).events());
    let pause = Duration::from_millis(5);
    let client = &stage.lab.client.netns;
    let loads = asks(&stage).map(|ask| {
        let load = Load::start(client, ask, 1, pause).expect("there is room for threads");
        (ask, load)
    });
    let loads: Vec<(Ask, Load)> = loads.collect();
    let judge = |(ask, load): (Ask, Load)| {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{ask:?}: {answers}");
        assert_eq!(answers.servers.len(), ENDPOINTS, "{ask:?}: {answers}");
    };
    // In UDP the last answer of one that goes without a word may be lost.
    let pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]];
    for (former, current) in pairs.iter().zip(&pairs[1..]) {
        go_on_asking(&loads);
        let all: BTreeSet<usize> = former.iter().chain(current).copied().collect();
        let mut leaving = web(&stage, &Vec::from_iter(all));
        for gone in former.iter().filter(|index| !current.contains(index)) {
            leaving = leaving.leaving(&stage.lab.backends[*gone]);
        }
        stage.sync(leaving.events());
        go_on_asking(&loads);
        stage.sync(web(&stage, current).events());
    }
    go_on_asking(&loads);
    let (streams, datagrams): (Vec<_>, Vec<_>) = loads
        .into_iter()
        .partition(|(ask, _)| ask.protocol == Protocol::Tcp);
    datagrams.into_iter().for_each(judge);
    for current in [[0, 2], [1, 3], [2, 4], [3, 0]] {
        stage.sync(web(&stage, &current).events());
        go_on_asking(&streams);
    }
    streams.into_iter().for_each(judge);
}

/// Waits until each load has asked some more.
fn go_on_asking(loads: &[(Ask, Load)]) {
    let deadline = Instant::now() + DEADLINE;
    let wanted: Vec<_> = loads.iter().map(|(_, load)| load.asked() + ASKED).collect();
    let is_behind = |((_, load), wanted): (&(Ask, Load), &usize)| load.asked() < *wanted;
    while loads.iter().zip(&wanted).any(is_behind) {
        assert!(Instant::now() < deadline, "the clients got stuck");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the questions of a client to several addresses of the Service.
fn asks(stage: &Stage) -> impl Iterator<Item = Ask> {
    let each = |way: Way| [ClusterIp, NodePort, ExternalIp].map(|to: Destination| (way, to));
    WAYS.into_iter()
        .flat_map(each)
        .map(|(way, to)| stage.ask(External, to, NUMBER, way))
}

/// Sets up the Service with all its endpoints.
fn stage(rules: Rules) -> Stage {
    let mut stage = Stage::with_backends(ENDPOINTS, rules, config(rules));
    let all: Vec<_> = (0..ENDPOINTS).collect();
    stage.sync(web(&stage, &all).events());
    stage
}

/// Returns the Service with some backends.
fn web(stage: &Stage, some: &[usize]) -> Web {
    let backends = some.iter().map(|&index| &stage.lab.backends[index]);
    Web::new(NUMBER, backends.map(|host| (host, NODE)))
}
