//! Mode ipvs with a kernel that has IPVS: the state that system tools show, and the
//! packet matrix.
#![cfg(feature = "ipvs")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests send packets through the programmed kernel"
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

use cells::{Row, cells, cells_of_request, check_cells, compare, compare_hairpin};
use fixtures::{NODE, OTHER_NODE, apply, sync};
use flows::{
    a_client_with_a_fixed_port_reaches_the_current_endpoint,
    attempts_to_connect_move_to_a_new_endpoint_and_connections_stay,
    every_request_is_answered_while_endpoints_change,
    flows_stay_with_an_endpoint_that_is_serving_and_terminating, flows_that_are_not_stale_are_kept,
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
/// External policy Local falls back to endpoints on other nodes, which see the address
/// of the client. Internal policy Local has no fallback.
#[rustfmt::skip]
const NO_USABLE_ENDPOINTS: [Row<4>; 13] = [
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
    a_client_with_a_fixed_port_reaches_the_current_endpoint
    flows_that_are_not_stale_are_kept
    flows_stay_with_an_endpoint_that_is_serving_and_terminating
    every_request_is_answered_while_endpoints_change
    attempts_to_connect_move_to_a_new_endpoint_and_connections_stay
}

fn open(config: &Config) -> Engine {
    let config = Config {
        mode: Mode::Ipvs,
        ..config.clone()
    };
    Engine::open(config).expect("the kernel has IPVS")
}

#[test]
fn system_tools_show_the_plan_and_a_restart_writes_nothing() {
    // A guest is slow. These fixtures have all features that the golden files do not
    // cover already.
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
    let mut stage = Stage::new(Rules::Ipvs, config(Rules::Ipvs));
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
            let ask = |way: Way| way.ask(addresses(of, number)[way.family], OTHER_PORT);
            all.extend(cells_of_request(&stage, stage.host(from), ask, expected));
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
        let ask = |way| stage.ask(External, LoadBalancer, number, way);
        all.extend(cells_of_request(&stage, &stage.lab.neighbor, ask, neighbor));
    }
    check_cells(&stage, all);
    assert!(other.iter().all(|server| server.asked() == 0));
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
    // UDP clients may lose the last answer of an endpoint that is removed without
    // terminating first.
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
    // The engine polls the draining real server several times. The real server still
    // has connections.
    for _ in 0..3 {
        stage.poll_idle();
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
    // A crash leaves weight 0. The next engine restores the planned weight.
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

/// Starts an engine with one Service, which has one virtual server with two real
/// servers.
fn start(config: &Config) -> (Engine, Duration) {
    let (mut engine, mut now) = (open(config), Duration::default());
    apply(&mut engine, fixtures::web_with("10.96.0.10", 2).events());
    engine.apply(Event::Synced);
    let report = sync(&mut engine, &mut now);
    assert!(report.is_success(), "{report}");
    (engine, now)
}

/// Changes for which the kernel sends no notifications.
const UNNOTIFIED_CHANGES: [&str; 5] = [
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

/// Asserts that a sync succeeds, except for the virtual server at the address of a
/// Service, which another program created.
#[track_caller]
fn assert_existing_virtual_server_rejected(report: &Report) {
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
fn foreign_virtual_servers_are_kept_and_damage_to_ours_is_repaired() {
    Netns::new().unwrap().run(|| {
        // The first virtual server has the address of the Service, the second another
        // address, and the third an excluded address.
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
        // The first sync finds the existing virtual server, the second sync takes it
        // over.
        assert_existing_virtual_server_rejected(&sync(&mut engine, &mut now));
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
        for damage in UNNOTIFIED_CHANGES.into_iter().chain(others) {
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
fn virtual_servers_in_excluded_networks_are_managed_only_for_services() {
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
        // A Service with an excluded address is served, even when all virtual servers
        // are dumped.
        ipvsadm("-e -t 10.96.0.10:80 -r 10.1.0.1:8080 -m -w 0");
        let (mut engine, mut now) = (open(&config), Duration::default());
        apply(&mut engine, services[0].iter().cloned());
        engine.apply(Event::Synced);
        // The first sync finds an existing virtual server, and a later sync takes it
        // over.
        assert_existing_virtual_server_rejected(&sync(&mut engine, &mut now));
        for _ in 0..2 {
            let report = sync(&mut engine, &mut now);
            assert!(report.is_success(), "{report}");
            assert_eq!(lines("ipvsadm", &["-Sn"]), within);
            engine.request_resync();
        }
    });
}

#[test]
fn an_unavailable_scheduler_is_replaced_and_does_not_block_other_services() {
    Netns::new().unwrap().run(|| {
        // Older kernels lack one of the two schedulers. A Service with a replaced
        // scheduler counts as served.
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
        let (mut engine, _) = start(&config);
        let sh = "-A -t 10.96.0.10:80 -s sh".to_owned();
        assert!(lines("ipvsadm", &["-Sn"]).contains(&sh));
        assert_tools_see(&mut engine);
    });
}

#[test]
fn an_address_removed_by_another_process_is_restored_at_once() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = start(&fixtures::config());
        engine.watch().unwrap();
        now += Duration::from_secs(10);
        assert!(engine.poll(now).is_none(), "no change happened");
        lines(
            "ip",
            &["address", "delete", "10.96.0.10/32", "dev", "kube-ipvs0"],
        );
        now += Duration::from_secs(1);
        let report = engine.poll(now).expect("the removal is detected");
        assert_eq!(report.trigger, Trigger::Drift);
        assert!(report.is_success(), "{report}");
        assert_eq!(engine.difference().unwrap().script, "");
        assert!(engine.poll(now).is_none(), "the repair is not drift");
    });
}

#[test]
fn a_change_that_conflicts_with_the_kernel_is_resolved_by_a_dump_at_once() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = start(&fixtures::config());
        // Another program removes an object that the change edits, and adds one that
        // the change adds.
        ipvsadm("-d -t 10.96.0.10:80 -r 10.1.0.2:8080");
        ipvsadm("-a -t 10.96.0.10:80 -r 10.1.0.3:8080 -m");
        let plan = fixtures::with_endpoints(fixtures::web("10.96.0.10"), &["10.1.0.1", "10.1.0.3"]);
        apply(&mut engine, plan.events());
        // The change follows early enough for the state to count as known.
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
fn an_endpoint_that_the_kernel_rejects_does_not_affect_other_objects() {
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
        let owner = rejected.owner.as_ref().expect("the object has an owner");
        assert_eq!((&*owner.service, rejected.reason.errno), ("web", Some(22)));
        assert!(rejected.object.contains(bad), "{rejected}");
        // Addresses, sets and the other real server are programmed.
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

        // Other Services change, and the endpoint is not resent with them.
        for last in 1..4 {
            let other = Plan::new(format!("other-{last}"))
                .at([10, 96, 1, last].into())
                .port(api::Protocol::Tcp, 80, 8080)
                .endpoint([10, 1, 1, last].into(), OTHER_NODE);
            apply(&mut engine, other.events());
            let report = sync(&mut engine, &mut now);
            assert!(report.is_success() && report.families[0].rejected.is_empty());
            assert_eq!(engine.difference().unwrap().edits, 1);
        }
        // The endpoint is programmed when its address is no longer a broadcast address.
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
fn changes_without_notifications_are_found_by_polling() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = start(&fixtures::config());
        engine.watch().unwrap();
        let mut poll = |engine: &mut Engine, seconds| {
            now += Duration::from_secs(seconds);
            engine.poll(now)
        };
        assert!(poll(&mut engine, 10).is_none());
        // One endpoint is removed, and its draining real server is not drift.
        apply(&mut engine, fixtures::web_with("10.96.0.10", 1).events());
        assert!(poll(&mut engine, 10).expect("a change is due").is_success());
        assert!(poll(&mut engine, 30).is_none());
        for damage in UNNOTIFIED_CHANGES {
            let words: Vec<_> = damage.split(' ').collect();
            lines(words[0], &words[1..]);
            assert!(poll(&mut engine, 1).is_none(), "{damage}: no notification");
            let report = poll(&mut engine, 30).expect("the change is found");
            assert_eq!(report.trigger, Trigger::Drift, "{damage}");
            assert!(report.is_success(), "{damage}: {report}");
            assert_eq!(engine.difference().unwrap().script, "", "{damage}");
            assert!(
                poll(&mut engine, 30).is_none(),
                "{damage}: the repair is not drift"
            );
        }
    });
}
