//! Changes by other programs.

use std::collections::BTreeSet;
use std::time::Duration;

use proxy_core::{Config, Engine, Event, Family, Report, Trigger};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use vipline_service_model::api;

use super::fixtures::{self, apply, sync};
use super::tools::lines;
use super::{BACKENDS, open, start};

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
        let builder = ServiceBuilder::new(name).cluster_ip(address.parse().expect("an address"));
        let builder = builder.port(api::TransportProtocol::Tcp, 80, 8080);
        fixtures::with_endpoints(builder, &["10.1.0.1"]).events()
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
fn an_address_or_rule_removed_by_another_process_is_restored_at_once() {
    for backend in BACKENDS {
        let mut config = fixtures::config();
        config.iptables.backend = backend;
        Netns::new().unwrap().run(|| {
            let (mut engine, mut now) = start(&config);
            engine.watch().unwrap();
            now += Duration::from_secs(10);
            assert!(engine.poll(now).is_none(), "no change happened");
            for damage in [
                "ip address delete 10.96.0.10/32 dev kube-ipvs0",
                "iptables -w 5 -t nat -F KUBE-SERVICES",
                "iptables -w 5 -t filter -D INPUT 1",
            ] {
                let words: Vec<_> = damage.split(' ').collect();
                lines(words[0], &words[1..]);
                now += Duration::from_secs(1);
                let report = engine.poll(now).expect("the removal is detected");
                assert_eq!(report.trigger, Trigger::Drift, "{backend:?} {damage}");
                assert!(report.is_success(), "{report}");
                assert_eq!(engine.difference().unwrap().script, "", "{damage}");
                assert!(engine.poll(now).is_none(), "the repair is not drift");
            }
        });
    }
}

#[test]
fn a_change_that_conflicts_with_the_kernel_is_resolved_by_a_dump_at_once() {
    Netns::new().unwrap().run(|| {
        let (mut engine, mut now) = start(&fixtures::config());
        // Another program removes an object that the change edits, and adds one that
        // the change adds.
        ipvsadm("-d -t 10.96.0.10:80 -r 10.1.0.2:8080");
        ipvsadm("-a -t 10.96.0.10:80 -r 10.1.0.3:8080 -m");
        let builder =
            fixtures::with_endpoints(fixtures::web("10.96.0.10"), &["10.1.0.1", "10.1.0.3"]);
        apply(&mut engine, builder.events());
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

#[test]
fn draining_real_servers_are_removed_in_groups_between_syncs() {
    /// Number of virtual servers, one for each port: more than a group has, and fewer than
    /// two have.
    const SERVERS: usize = 101;
    Netns::new().unwrap().run(|| {
        let service = |endpoints| {
            let ports = 1000..1100;
            ports.fold(fixtures::web_with("10.96.0.10", endpoints), |web, port| {
                web.port(api::TransportProtocol::Tcp, port, 8080)
            })
        };
        let (mut engine, mut now) = (open(&fixtures::config()), Duration::default());
        engine.watch().unwrap();
        apply(&mut engine, service(2).events());
        engine.apply(Event::Synced);
        assert!(sync(&mut engine, &mut now).is_success());
        let left = || {
            let lines = lines("ipvsadm", &["-Sn"]);
            lines.iter().filter(|it| it.contains("10.1.0.2:")).count()
        };
        assert_eq!(left(), SERVERS);
        apply(&mut engine, service(1).events());
        assert!(sync(&mut engine, &mut now).is_success());
        assert_eq!(left(), SERVERS, "they drain");
        assert!(engine.poll(now).is_none());
        assert_eq!(left(), SERVERS - 64);
        assert!(engine.next_deadline().is_some_and(|at| at <= now));
        assert!(engine.poll(now).is_none());
        assert_eq!(left(), 0);
        assert_eq!(engine.difference().unwrap().script, "");
    });
}
