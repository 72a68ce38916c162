//! Mode ipvs with a kernel that has IPVS: the state that system tools show, and the
//! packet matrix.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests send packets through the programmed kernel"
)]

#[path = "../shared/cells.rs"]
mod cells;

#[path = "../shared/fixtures/mod.rs"]
mod fixtures;

#[path = "../shared/flows.rs"]
mod flows;

#[path = "../shared/rules.rs"]
mod rules;

#[path = "../shared/sample.rs"]
mod sample;

#[path = "../shared/stage.rs"]
mod stage;

#[path = "../shared/upstream_sets.rs"]
mod upstream_sets;

#[path = "../shared/upstream_tools.rs"]
mod upstream_tools;

mod changes;
mod packets;
mod sampled;
mod takeover;
mod tools;
mod upstream_ipvs;

use std::collections::BTreeSet;
use std::time::Duration;

use fixtures::{OTHER_NODE, apply, sync};
use flows::{
    a_client_with_a_fixed_port_reaches_the_current_endpoint,
    attempts_to_connect_move_to_a_new_endpoint_and_connections_stay,
    every_request_is_answered_while_endpoints_change,
    flows_stay_with_an_endpoint_that_is_serving_and_terminating, flows_that_are_not_stale_are_kept,
};
use proxy_core::{Config, Engine, Event, Family, IptablesBackend, MissingFeature, Mode};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use tools::{assert_tools_see, lines, saved_rules};
use vipline_service_model::{Scheduler, api};

rules::tests_of_rules! {
    stale_flows: crate::rules::Rules::Ipvs;
    a_client_with_a_fixed_port_reaches_the_current_endpoint
    flows_that_are_not_stale_are_kept
    flows_stay_with_an_endpoint_that_is_serving_and_terminating
    every_request_is_answered_while_endpoints_change
    attempts_to_connect_move_to_a_new_endpoint_and_connections_stay
}

/// Both backends for the rules. The programs in the guest are those of the nft variant.
const BACKENDS: [IptablesBackend; 2] = [IptablesBackend::Programs, IptablesBackend::Netlink];

fn open(config: &Config) -> Engine {
    let config = config.clone().with_mode(Mode::Ipvs);
    config.open().expect("the kernel has IPVS")
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
        let saved = BACKENDS.map(|backend| {
            let mut config = fixture.config.clone();
            config.iptables.backend = backend;
            Netns::new().unwrap().run(|| {
                for edits in [None, Some(0)] {
                    let mut engine = open(&config);
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
                saved_rules()
            })
        });
        assert_eq!(saved[0], saved[1], "{}", fixture.name);
    }
}

#[test]
fn rules_over_netlink_are_restored_by_iptables_nft_and_found_by_the_other_backend() {
    let fixtures = fixtures::all();
    let overall = fixtures.iter().find(|it| it.name == "overall");
    let overall = overall.expect("the fixture exists");
    let start = |backend| {
        let mut config = overall.config.clone();
        config.iptables.backend = backend;
        let mut engine = open(&config);
        apply(&mut engine, overall.events.iter().cloned());
        engine.apply(Event::Synced);
        engine
    };
    Netns::new().unwrap().run(|| {
        let mut engine = start(IptablesBackend::Netlink);
        let report = sync(&mut engine, &mut Duration::default());
        assert!(report.is_success(), "{report}");
        let saved = saved_rules();
        for program in ["iptables", "ip6tables"] {
            let command = format!("{program}-nft-save | {program}-nft-restore");
            assert_eq!(lines("sh", &["-c", &command]), BTreeSet::new());
        }
        assert_eq!(saved_rules(), saved);
        for backend in BACKENDS {
            let difference = start(backend).difference().unwrap();
            assert_eq!(difference.script, "", "{backend:?}");
        }
    });
}

/// Returns an engine that has programmed one Service with two endpoints, and the time.
fn start(config: &Config) -> (Engine, Duration) {
    let (mut engine, mut now) = (open(config), Duration::default());
    apply(&mut engine, fixtures::web_with("10.96.0.10", 2).events());
    engine.apply(Event::Synced);
    let report = sync(&mut engine, &mut now);
    assert!(report.is_success(), "{report}");
    (engine, now)
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
        let missing = [MissingFeature::Scheduler("twos".into())];
        assert_eq!(report.missing_features, missing[usize::from(has_twos)..]);
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
            let other = ServiceBuilder::new(format!("other-{last}"))
                .cluster_ip([10, 96, 1, last].into())
                .port(api::TransportProtocol::Tcp, 80, 8080)
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
