//! Mode ipvs in a kernel that has IPVS: what tools see of it, and who gets a
//! packet.
#![cfg(feature = "ipvs")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel judges what was programmed"
)]

mod fixtures;

mod rules;

mod stage;

mod cells;

mod flows;

mod tools;

mod upstream_tools;

mod upstream_sets;

mod upstream_ipvs;

mod ipvs_takeover;

use std::collections::BTreeSet;
use std::time::Duration;

use cells::{Row, cells, compare, compare_hairpin, in_each_way, judge};
use fixtures::{ELSEWHERE, NODE, apply, sync};
use flows::{
    a_client_that_keeps_its_port_is_led_to_whoever_serves,
    attempts_to_connect_go_elsewhere_and_connections_stay,
    every_question_is_answered_while_endpoints_come_and_go,
    flows_stay_with_an_endpoint_while_it_serves_on_its_way_out,
    flows_that_are_not_stale_are_left_alone,
};
use proxy_core::{Config, Engine, Event, Family, Mode, Report, Trigger};
use rules::Rules;
use stage::{Destination, OTHER_PORT, Source, Stage, WAYS, Way, Web, addresses, config, serve};
use testkit::generate::Plan;
use testkit::netns::Netns;
use testkit::traffic::{Conversation, Load, Protocol};
use tools::{assert_tools_see, lines};
use vipline_service_model::{Scheduler, api};

use Destination::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
use Source::{External, Localhost, Node, Pod};

/// Services of policy Cluster, external policy Local and internal policy Local.
///
/// A virtual server cannot tell from where packets come: with external policy
/// Local everybody is sent to the endpoints of the node, if there are any.
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

/// The endpoint on the node terminates: external policy Local and Cluster; then
/// both do, with external policy Local.
#[rustfmt::skip]
const TERMINATING: [Row<3>; 5] = [
    (Pod,       ClusterIp,    ["remote",   "remote",   "all"]),
    (Pod,       NodePort,     ["local",    "remote M", "local"]),
    (Node,      LoadBalancer, ["local",    "remote M", "local"]),
    (External,  ClusterIp,    ["remote M", "remote M", "all M"]),
    (External,  NodePort,     ["local",    "remote M", "local"]),
];

/// No endpoints with policies Cluster and Local; then an endpoint on the other
/// node alone, with external policy Local and internal policy Local.
///
/// From outside, policy Local falls back to endpoints elsewhere, which see the
/// client; inside nobody is asked.
#[rustfmt::skip]
const NOBODY_HERE: [Row<4>; 13] = [
    (Pod,       ClusterIp,    ["REJECT", "REJECT", "remote",   "REJECT"]),
    (Pod,       NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Pod,       ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ClusterIp,    ["REJECT", "REJECT", "remote M", "REJECT"]),
    (Node,      NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (Node,      ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
    (Localhost, NodePort,     ["REJECT", "REJECT", "REJECT",   "REJECT"]),
    (External,  ClusterIp,    ["REJECT", "REJECT", "remote M", "REJECT"]),
    (External,  NodePort,     ["REJECT", "REJECT", "remote",   "remote M"]),
    (External,  LoadBalancer, ["REJECT", "REJECT", "remote",   "remote M"]),
    (External,  ExternalIp,   ["REJECT", "REJECT", "remote",   "remote M"]),
];

rules::tests_of_rules! {
    stale_flows: crate::rules::Rules::Ipvs;
    a_client_that_keeps_its_port_is_led_to_whoever_serves
    flows_that_are_not_stale_are_left_alone
    flows_stay_with_an_endpoint_while_it_serves_on_its_way_out
    every_question_is_answered_while_endpoints_come_and_go
    attempts_to_connect_go_elsewhere_and_connections_stay
}

fn open(config: &Config) -> Engine {
    let config = Config {
        mode: Mode::Ipvs,
        ..config.clone()
    };
    Engine::open(config).expect("the kernel has IPVS")
}

#[test]
fn what_is_planned_is_what_tools_see_and_a_restart_writes_nothing() {
    // A guest takes its time: these have all there is, but for what golden files
    // show as well.
    let chosen = [
        "overall",
        "udp-and-sctp",
        "source-ranges",
        "affinity-v6",
        "node-ports-all",
    ];
    let fixtures = fixtures::all();
    let fixtures = fixtures.iter().filter(|it| chosen.contains(&it.name));
    for fixture in fixtures {
        println!("{}", fixture.name);
        Netns::new().unwrap().run(|| {
            for edits in [None, Some(0)] {
                let mut engine = open(&fixture.config);
                apply(&mut engine, fixture.events.iter().cloned());
                engine.apply(Event::Synced);
                let difference = engine.difference().unwrap();
                if edits == Some(0) {
                    assert_eq!(difference.script, "", "{}", fixture.name);
                }
                let report = sync(&mut engine, &mut Duration::default());
                assert!(report.is_success(), "{}: {report}", fixture.name);
                assert_tools_see(&mut engine);
            }
        });
    }
}

#[test]
fn each_packet_takes_its_way() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [web(1), web(2).externally_local(), web(3).internally_local()];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &MATRIX);
    compare_hairpin(&stage, &[(ClusterIp, 1)]);
}

#[test]
fn what_nobody_here_serves_is_refused_or_led_elsewhere() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let nobody = |number| Web::new(number, []);
    let far = |number| Web::new(number, [stage.far()]);
    let services = [
        nobody(1),
        nobody(2).externally_local().internally_local(),
        far(3).externally_local(),
        far(4).internally_local(),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &NOBODY_HERE);
}

#[test]
fn terminating_endpoints_serve_as_long_as_no_others_do() {
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
            .conditions(ELSEWHERE, &terminating),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    compare(&stage, &TERMINATING);
}

#[test]
fn addresses_of_services_have_no_other_ports_and_only_some_may_use_guarded_ones() {
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
    let web = |number| Web::new(number, [stage.near(), stage.far()]);
    let services = [
        web(1).only_for(&["192.0.2.0/24", "2001:db8::/64"]),
        web(2).only_for(&["172.16.0.0/16", "fd00:172::/64"]),
        web(3)
            .only_for(&["192.0.2.0/24", "2001:db8::/64"])
            .externally_local(),
        Web::new(4, []).only_for(&["192.0.2.0/24", "2001:db8::/64"]),
    ];
    stage.sync(services.into_iter().flat_map(Web::events));
    // Another program of the node listens at its addresses, all of them.
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
            let ask = |way: Way| way.ask(addresses(of, number)[way.family], OTHER_PORT);
            all.extend(in_each_way(&stage, stage.host(from), ask, expected));
        }
    }
    for (number, external, node, pod, neighbor) in [
        // The node has an address in the range.
        (1, "all M", "all M", "DROP", "DROP"),
        (2, "DROP", "DROP", "DROP", "all M"),
        (3, "local", "local", "DROP", "DROP"),
        (4, "REJECT", "REJECT", "DROP", "DROP"),
    ] {
        for (from, expected) in [(External, external), (Node, node), (Pod, pod)] {
            all.extend(cells(&stage, number, from, LoadBalancer, expected));
        }
        let ask = |way| stage.ask(External, LoadBalancer, number, way);
        all.extend(in_each_way(&stage, &stage.lab.neighbor, ask, neighbor));
    }
    judge(&stage, all);
    assert!(other.iter().all(|server| server.asked() == 0));
}

#[test]
fn connections_outlive_their_endpoint_and_new_ones_do_not_get_there() {
    let mut stage = Stage::with_backends(3, Rules::Ipvs, config(Rules::Ipvs));
    let web = |stage: &Stage, numbers: &[usize]| {
        let hosts = numbers
            .iter()
            .map(|number| (&stage.lab.backends[*number], NODE));
        Web::new(1, hosts)
    };
    let first = web(&stage, &[0, 1]);
    stage.sync(first.events());
    let ask = |to, way| stage.ask(External, to, 1, way);
    let ways = WAYS
        .iter()
        .flat_map(|way| [ClusterIp, NodePort].map(|to| ask(to, *way)));
    let asks: Vec<_> = ways.collect();
    let loads: Vec<_> = asks
        .iter()
        .map(|ask| {
            let load = Load::start(&stage.lab.client.netns, *ask, 1, Duration::from_millis(20));
            (ask.protocol, load.unwrap())
        })
        .collect();
    let answered = |(_, load): (Protocol, Load)| {
        let answers = load.stop();
        assert!(answers.failures.is_empty(), "{answers}");
    };
    let streams = asks.iter().filter(|ask| ask.protocol == Protocol::Tcp);
    let mut talks: Vec<_> = streams
        .flat_map(|ask| (0..4).map(|_| Conversation::open(&stage.lab.client.netns, *ask).unwrap()))
        .collect();
    let go_on = |talks: &mut Vec<Conversation>| {
        for talk in talks {
            talk.say("it goes on")
                .unwrap_or_else(|error| panic!("{}: {error}", talk.server()));
        }
    };
    // The last answer of one that goes without a word may be lost in UDP: it says
    // before that it leaves.
    let all = web(&stage, &[0, 1, 2]).leaving(&stage.lab.backends[0]);
    stage.sync(all.events());
    go_on(&mut talks);
    let (loads, datagrams): (Vec<_>, Vec<_>) = loads
        .into_iter()
        .partition(|(protocol, _)| *protocol == Protocol::Tcp);
    datagrams.into_iter().for_each(answered);
    let others = web(&stage, &[1, 2]);
    stage.sync(others.events());
    go_on(&mut talks);
    // The real server is looked after now and in a while, and still has connections.
    for _ in 0..3 {
        stage.look();
    }
    go_on(&mut talks);
    let gone = stage.lab.backends[0].name.clone();
    assert!(
        talks.iter().any(|talk| talk.server() == gone),
        "it had connections"
    );
    for ask in &asks {
        let answers = ask.times(&stage.lab.client.netns, 20);
        assert!(answers.failures.is_empty(), "{ask:?}: {answers}");
        assert_eq!(answers.by(&gone), 0, "{ask:?}: {answers}");
    }
    loads.into_iter().for_each(answered);
    // Weight 0 is left behind by a crash: the next engine takes it as it is wanted.
    let first = web(&stage, &[0, 1]);
    stage.restart(first.events());
    go_on(&mut talks);
    for ask in &asks {
        assert!(
            ask.times(&stage.lab.client.netns, 20).by(&gone) > 0,
            "{ask:?}"
        );
    }
}

/// Starts an engine with one Service, for which it makes two virtual servers.
fn begin(config: &Config) -> (Engine, Duration) {
    let (mut engine, mut now) = (open(config), Duration::default());
    apply(&mut engine, fixtures::web_with("10.96.0.10", 2).events());
    engine.apply(Event::Synced);
    let report = sync(&mut engine, &mut now);
    assert!(report.is_success(), "{report}");
    (engine, now)
}

/// What somebody may do of which nobody tells.
const UNHEARD: [&str; 5] = [
    "ipvsadm -d -t 10.96.0.10:80 -r 10.1.0.1:8080",
    "ipvsadm -e -t 10.96.0.10:80 -r 10.1.0.1:8080 -m -w 0",
    "ipvsadm -E -t 10.96.0.10:80 -s sh",
    "ipvsadm -D -t 10.96.0.10:80",
    "ipset del KUBE-CLUSTER-IP 10.96.0.10,tcp:80",
];

fn ipvsadm(arguments: &str) {
    let words: Vec<_> = arguments.split(' ').collect();
    assert_eq!(lines("ipvsadm", &words), BTreeSet::new());
}

/// Asserts that a sync succeeds except for the virtual server of another program
/// at the address of a Service.
#[track_caller]
fn rejects_a_virtual_server_that_exists(report: &Report) {
    const EEXIST: i32 = 17;
    assert!(report.is_success(), "{report}");
    let rejected = &report.families[0].rejected;
    let server = rejected
        .iter()
        .find(|it| it.object.contains("-A -t 10.96.0.10:80"));
    let server = server.unwrap_or_else(|| panic!("{rejected:?}"));
    assert_eq!(server.reason.errno, Some(EEXIST), "{server}");
}

#[test]
fn virtual_servers_of_others_stay_and_what_others_do_to_ours_is_mended() {
    Netns::new().unwrap().run(|| {
        // One is there before us where we want ours, one elsewhere, one excluded.
        for (server, scheduler) in [
            ("-t 10.96.0.10:80", "wlc"),
            ("-t 192.0.2.99:80", "lc"),
            ("-t 198.51.100.9:80", "lc"),
        ] {
            ipvsadm(&format!("-A {server} -s {scheduler}"));
        }
        ipvsadm("-a -t 192.0.2.99:80 -r 192.0.2.98:80 -g");
        let mut config = fixtures::config();
        config.ipvs.excluded = vec!["198.51.100.0/24".parse().unwrap()];
        let mut engine = open(&config);
        let mut now = Duration::default();
        apply(&mut engine, fixtures::web_with("10.96.0.10", 2).events());
        engine.apply(Event::Synced);
        // The first sync finds one in its place, the second takes it over.
        rejects_a_virtual_server_that_exists(&sync(&mut engine, &mut now));
        let report = sync(&mut engine, &mut now);
        assert!(report.is_success(), "{report}");
        assert_eq!(engine.rejected_count(Family::V4), 0);
        let servers = || lines("ipvsadm", &["-Sn"]);
        let wanted: BTreeSet<_> = [
            "-A -t 10.96.0.10:80 -s rr",
            "-A -t 192.0.2.99:80 -s lc",
            "-A -t 198.51.100.9:80 -s lc",
            "-a -t 10.96.0.10:80 -r 10.1.0.1:8080 -m -w 1",
            "-a -t 10.96.0.10:80 -r 10.1.0.2:8080 -m -w 1",
            "-a -t 192.0.2.99:80 -r 192.0.2.98:80 -g -w 1",
        ]
        .map(str::to_owned)
        .into();
        assert_eq!(servers(), wanted);
        let others = [
            "ip address delete 10.96.0.10/32 dev kube-ipvs0",
            "ip link delete kube-ipvs0",
            "iptables -w 5 -t nat -F KUBE-SERVICES",
        ];
        for damage in UNHEARD.into_iter().chain(others) {
            let words: Vec<_> = damage.split(' ').collect();
            lines(words[0], &words[1..]);
            engine.request_resync();
            let report = sync(&mut engine, &mut now);
            assert!(report.is_success(), "{damage}: {report}");
            let edits = report
                .families
                .iter()
                .map(|done| done.outcome.as_ref().unwrap().edits);
            assert!(
                (1..=3).contains(&edits.sum::<usize>()),
                "{damage}: {report}"
            );
            assert_eq!(engine.difference().unwrap().script, "", "{damage}");
        }
        assert_eq!(servers(), wanted);
        let name = fixtures::web("10.96.0.10").service().metadata.object_name();
        engine.apply(Event::ServiceDeleted(name));
        assert!(sync(&mut engine, &mut now).is_success());
        assert_eq!(servers().len(), 3, "{:?}", servers());
    });
}

#[test]
fn virtual_servers_within_excluded_networks_are_those_of_services_alone() {
    let services = [("one", "10.96.0.10"), ("other", "10.97.0.10")].map(|(name, address)| {
        let plan = Plan::new(name).at(address.parse().expect("an address"));
        let plan = plan.port(api::Protocol::Tcp, 80, 8080);
        fixtures::with_endpoints(plan, &["10.1.0.1"]).events()
    });
    Netns::new().unwrap().run(|| {
        let mut config = fixtures::config();
        let restart = |config: &Config, events: Vec<Event>| {
            let mut engine = open(config);
            apply(&mut engine, events);
            engine.apply(Event::Synced);
            let report = sync(&mut engine, &mut Duration::default());
            assert!(report.is_success(), "{report}");
            lines("ipvsadm", &["-Sn"])
        };
        let all = restart(&config, services.concat());
        assert_eq!(all.len(), 4, "{all:?}");
        config.ipvs.excluded = vec!["10.96.0.0/16".parse().unwrap()];
        let left = restart(&config, Vec::new());
        let within: BTreeSet<_> = all
            .into_iter()
            .filter(|line| line.contains("10.96.0.10"))
            .collect();
        assert_eq!(left, within);
        // A Service that has its address there is served, also when all is looked at.
        ipvsadm("-e -t 10.96.0.10:80 -r 10.1.0.1:8080 -m -w 0");
        let (mut engine, mut now) = (open(&config), Duration::default());
        apply(&mut engine, services[0].iter().cloned());
        engine.apply(Event::Synced);
        // It finds one in its place, and takes it over.
        rejects_a_virtual_server_that_exists(&sync(&mut engine, &mut now));
        for _ in 0..2 {
            let report = sync(&mut engine, &mut now);
            assert!(report.is_success(), "{report}");
            assert_eq!(lines("ipvsadm", &["-Sn"]), within);
            engine.request_resync();
        }
    });
}

#[test]
fn a_scheduler_that_the_kernel_lacks_is_replaced_and_keeps_nobody_waiting() {
    Netns::new().unwrap().run(|| {
        // Of these two the older kernel lacks one; both count as served.
        let mut engine = open(&fixtures::config());
        let mut now = Duration::default();
        for (address, scheduler) in [("10.96.0.10", "twos"), ("10.96.0.11", "mh")] {
            let mut service = fixtures::web(address).service();
            service.metadata.name = scheduler.into();
            let annotations = &mut service.metadata.annotations;
            let key = "service.kubernetes.io/ipvs-scheduler";
            annotations.insert(key.into(), scheduler.into());
            assert_eq!(engine.apply(service.into()), []);
        }
        engine.apply(Event::Synced);
        let report = sync(&mut engine, &mut now);
        assert!(report.is_success(), "{report}");
        let servers = lines("ipvsadm", &["-Sn"]);
        let has_twos = servers.contains("-A -t 10.96.0.10:80 -s twos");
        assert_eq!(report.missing_schedulers.is_empty(), has_twos);
        let mh = "-A -t 10.96.0.11:80 -s mh -b mh-port";
        assert!(servers.len() == 2 && servers.contains(mh), "{servers:?}");
        assert_eq!(engine.difference().unwrap().script, "");

        let mut config = fixtures::config();
        config.ipvs.scheduler = Scheduler::SourceHash;
        let (mut engine, _) = begin(&config);
        let sh = "-A -t 10.96.0.10:80 -s sh".to_owned();
        assert!(lines("ipvsadm", &["-Sn"]).contains(&sh));
        assert_tools_see(&mut engine);
    });
}

#[test]
fn an_address_that_somebody_removes_is_back_at_once() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = begin(&fixtures::config());
        engine.watch().unwrap();
        now += Duration::from_secs(10);
        assert!(engine.poll(now).is_none(), "nothing was done");
        lines(
            "ip",
            &["address", "delete", "10.96.0.10/32", "dev", "kube-ipvs0"],
        );
        now += Duration::from_secs(1);
        let report = engine.poll(now).expect("it is heard");
        assert_eq!(report.trigger, Trigger::Drift);
        assert!(report.is_success(), "{report}");
        assert_eq!(engine.difference().unwrap().script, "");
        assert!(
            engine.poll(now).is_none(),
            "what was mended is our own doing"
        );
    });
}

#[test]
fn a_change_that_contradicts_the_kernel_is_resolved_by_a_dump_at_once() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = begin(&fixtures::config());
        // Another program removes what is to be changed, and adds what is to be added.
        ipvsadm("-d -t 10.96.0.10:80 -r 10.1.0.2:8080");
        ipvsadm("-a -t 10.96.0.10:80 -r 10.1.0.3:8080 -m");
        let plan = fixtures::with_endpoints(fixtures::web("10.96.0.10"), &["10.1.0.1", "10.1.0.3"]);
        apply(&mut engine, plan.events());
        // Soon enough for the state to count as known.
        let report = (0..2).find_map(|_| {
            now += Duration::from_secs(10);
            engine.poll(now)
        });
        let report = report.expect("a change is due");
        assert!(report.is_success(), "{report}");
        let outcome = report.families[0].outcome.as_ref().unwrap();
        assert!(outcome.dumped && outcome.rejected == 0, "{report}");
        assert_eq!(engine.difference().unwrap().script, "");
    });
}

#[test]
fn an_endpoint_that_the_kernel_refuses_keeps_nothing_else_from_it() {
    Netns::new().unwrap().run(|| {
        for line in [
            "link add eth9 type dummy",
            "link set eth9 up",
            "address add 192.168.55.1/24 broadcast 192.168.55.255 dev eth9",
        ] {
            lines("ip", &line.split(' ').collect::<Vec<_>>());
        }
        let bad = "192.168.55.255";
        let web =
            |addresses: &[&str]| fixtures::with_endpoints(fixtures::web("10.96.0.10"), addresses);
        let mut engine = open(&fixtures::config());
        let mut now = Duration::ZERO;
        apply(&mut engine, web(&["10.1.0.1", bad]).events());
        engine.apply(Event::Synced);
        let report = engine.poll(now).expect("the first sync is due");
        assert!(report.is_success(), "{report}");
        let [rejected] = &*report.families[0].rejected else {
            panic!("one endpoint: {report:?}");
        };
        let owner = rejected.owner.as_ref().expect("a Service wants it");
        assert_eq!((&*owner.service, rejected.reason.errno), ("web", Some(22)));
        assert!(rejected.object.contains(bad), "{rejected}");
        // Addresses, sets and the other real server are there.
        let servers = lines("ipvsadm", &["-Sn"]);
        assert!(
            servers.iter().any(|line| line.contains("10.1.0.1:8080")),
            "{servers:?}"
        );
        let addresses = lines("ip", &["-o", "address", "show", "dev", "kube-ipvs0"]);
        assert!(
            addresses.iter().any(|line| line.contains("10.96.0.10/32")),
            "{addresses:?}"
        );
        let set = lines("ipset", &["save", "KUBE-CLUSTER-IP"]);
        assert!(
            set.iter().any(|line| line.contains("10.96.0.10,tcp:80")),
            "{set:?}"
        );
        assert_eq!(engine.difference().unwrap().edits, 1);

        // Other Services go on, and the endpoint is not sent again with them.
        for last in 1..4 {
            let other = Plan::new(format!("other-{last}"))
                .at([10, 96, 1, last].into())
                .port(api::Protocol::Tcp, 80, 8080)
                .endpoint([10, 1, 1, last].into(), ELSEWHERE);
            apply(&mut engine, other.events());
            let report = sync(&mut engine, &mut now);
            assert!(report.is_success() && report.families[0].rejected.is_empty());
            assert_eq!(engine.difference().unwrap().edits, 1);
        }
        // It serves as soon as its address does.
        lines(
            "ip",
            &["address", "delete", "192.168.55.1/24", "dev", "eth9"],
        );
        apply(&mut engine, web(&["10.1.0.1", "10.1.0.2", bad]).events());
        assert!(sync(&mut engine, &mut now).is_success());
        assert_eq!(
            (
                engine.rejected_count(Family::V4),
                engine.difference().unwrap().edits
            ),
            (0, 0)
        );
    });
}

#[test]
fn what_nobody_tells_of_is_found_by_a_look() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = begin(&fixtures::config());
        engine.watch().unwrap();
        let mut poll = |engine: &mut Engine, seconds| {
            now += Duration::from_secs(seconds);
            engine.poll(now)
        };
        assert!(poll(&mut engine, 10).is_none());
        // One endpoint goes, and what is left of it is not somebody's doing.
        apply(&mut engine, fixtures::web_with("10.96.0.10", 1).events());
        assert!(poll(&mut engine, 10).expect("a change is due").is_success());
        assert!(poll(&mut engine, 30).is_none());
        for damage in UNHEARD {
            let words: Vec<_> = damage.split(' ').collect();
            lines(words[0], &words[1..]);
            assert!(poll(&mut engine, 1).is_none(), "{damage}: nobody tells");
            let report = poll(&mut engine, 30).expect("it is found");
            assert_eq!(report.trigger, Trigger::Drift, "{damage}");
            assert!(report.is_success(), "{damage}: {report}");
            assert_eq!(engine.difference().unwrap().script, "", "{damage}");
            assert!(poll(&mut engine, 30).is_none(), "{damage}: it is mended");
        }
    });
}
