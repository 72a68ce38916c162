//! Session affinity in mode nftables: which affinity records the engine deletes.
//!
//! Each test has its own network namespace. nft adds the records that packets would
//! add.

use std::time::Duration;

use proxy_core::{Engine, Event, Report};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use testkit::nft;
use vipline_service_model::api;

use crate::fixtures::{apply, config, web, with_endpoints};

/// An engine in the network namespace of its thread.
struct Proxy {
    engine: Engine,
    now: Duration,
}

impl Proxy {
    fn start(events: Vec<Event>) -> Self {
        let engine = Engine::open(config()).expect("the kernel has nf_tables");
        let now = Duration::ZERO;
        let mut proxy = Self { engine, now };
        apply(&mut proxy.engine, events);
        proxy.change(vec![Event::Synced]);
        proxy
    }

    /// Applies events and syncs after the minimum interval.
    fn change(&mut self, events: Vec<Event>) -> Report {
        assert!(self.engine.poll(self.now).is_none());
        self.now += Duration::from_secs(5);
        apply(&mut self.engine, events);
        let report = self.engine.poll(self.now).expect("a change is due");
        assert!(report.is_success(), "{report}");
        report
    }
}

/// Returns the events of a dual-stack NodePort Service with session affinity.
fn sticky(endpoints: &[u8]) -> Vec<Event> {
    let mut service = web("10.96.0.10").cluster_ip("fd00:96::10".parse().expect("an address"));
    for last in endpoints {
        let endpoints = [format!("10.1.0.{last}"), format!("fd00:1::{last}")];
        service = with_endpoints(service, &endpoints.each_ref().map(String::as_str));
    }
    let mut object = service.service();
    object.spec.session_affinity = api::Affinity::ClientIp;
    object.spec.kind = api::ServiceType::NodePort;
    object.spec.ports[0].node_port = 30_080;
    let slices = service.slices().into_iter().map(Event::from);
    [Event::from(object)].into_iter().chain(slices).collect()
}

/// Returns the names of the affinity maps of a family.
fn affinity_maps(family: &str) -> Vec<String> {
    let list = nft::run(&["list", "maps", family], "").stdout;
    let list = String::from_utf8(list).expect("the output of nft is UTF-8");
    let names = list.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("map ")?.strip_suffix(" {")?;
        name.starts_with("clients-").then(|| name.to_owned())
    });
    names.collect()
}

/// Adds one affinity record for endpoint 1 and one for endpoint 2 in each family.
fn add_records() {
    for (family, client, endpoint) in [
        ("ip", "192.0.2.", "10.1.0."),
        ("ip6", "2001:db8::", "fd00:1::"),
    ] {
        let maps = affinity_maps(family);
        let [map] = &*maps else {
            panic!("one service port has one map: {maps:?}");
        };
        for last in [1, 2] {
            let element = format!("{{ {client}{last} timeout 1h : {endpoint}{last} . 8080 }}");
            nft::succeeds(&["add", "element", family, "kube-proxy", map, &element], "");
        }
    }
}

/// Returns the number of affinity records: in total, and of endpoint 1.
fn record_counts() -> (usize, usize) {
    let list =
        |family, map: &String| nft::run(&["list", "map", family, "kube-proxy", map], "").stdout;
    let lists = ["ip", "ip6"].map(|family| {
        let maps = affinity_maps(family);
        let lists: Vec<_> = maps.iter().map(|map| list(family, map)).collect();
        lists.concat()
    });
    let text = String::from_utf8(lists.concat()).expect("the output of nft is UTF-8");
    let count = |pattern| text.matches(pattern).count();
    let first = count(": 10.1.0.1 . 8080") + count(": fd00:1::1 . 8080");
    (count(" expires "), first)
}

#[test]
fn affinity_records_of_a_removed_endpoint_are_deleted() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        add_records();
        assert_eq!(record_counts(), (4, 2));
        proxy.change(sticky(&[1, 2, 3]));
        assert_eq!(record_counts(), (4, 2), "no endpoint was removed");
        proxy.change(sticky(&[1, 3]));
        assert_eq!(record_counts(), (2, 2));
        let nothing = proxy.engine.difference().unwrap();
        assert_eq!(
            nothing.script, "",
            "affinity records are not part of the difference"
        );
    });
}

#[test]
fn affinity_records_of_a_deleted_service_are_deleted() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        add_records();
        let name = web("10.96.0.10").service().metadata.object_name();
        proxy.change(vec![Event::ServiceDeleted(name)]);
        assert_eq!(record_counts(), (0, 0));
    });
}

#[test]
fn affinity_records_are_deleted_when_affinity_is_disabled() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        add_records();
        let mut events = sticky(&[1, 2]);
        let Some(Event::ServiceApplied(service)) = events.first_mut() else {
            panic!("the Service comes first")
        };
        service.spec.session_affinity = api::Affinity::None;
        proxy.change(events);
        assert_eq!(record_counts(), (0, 0));
    });
}

#[test]
fn affinity_records_of_an_endpoint_removed_between_two_runs_are_deleted() {
    Netns::new().unwrap().run(|| {
        drop(Proxy::start(sticky(&[1, 2])));
        add_records();
        Proxy::start(sticky(&[1]));
        assert_eq!(record_counts(), (2, 2));
    });
}

#[test]
fn affinity_records_left_by_a_crash_are_deleted_by_the_first_change_after_a_restart() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1]));
        add_records();
        proxy.change(sticky(&[1, 3]));
        assert_eq!(
            record_counts(),
            (4, 2),
            "without a removed endpoint no record is checked"
        );
        drop(proxy);
        Proxy::start(sticky(&[1, 3, 4]));
        assert_eq!(record_counts(), (2, 2));
    });
}

#[test]
fn deleting_affinity_records_is_not_drift() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        add_records();
        proxy.engine.watch().unwrap();
        let report = proxy.change(sticky(&[1]));
        assert!(report.families.iter().all(|done| done.drift.is_none()));
        assert_eq!(record_counts(), (2, 2));
        for _ in 0..3 {
            assert!(proxy.engine.poll(proxy.now).is_none());
            proxy.now += Duration::from_secs(5);
        }
    });
}

/// Returns the events of 300 Services; `timeout` maps the number of a Service to its
/// affinity timeout in seconds.
fn with_timeouts(timeout: impl Fn(u32) -> u32) -> Vec<Event> {
    let service = |number: u32| {
        let address = format!("10.96.{}.{}", 1 + number / 200, 1 + number % 200);
        let builder = ServiceBuilder::new(format!("sticky-{number}"))
            .cluster_ip(address.parse().expect("an address"));
        let builder = builder.port(api::TransportProtocol::Tcp, 80, 8080);
        let builder = with_endpoints(builder, &["10.1.0.1", "10.1.0.2"]);
        let mut object = builder.service();
        object.spec.session_affinity = api::Affinity::ClientIp;
        object.spec.session_affinity_config = Some(api::SessionAffinityConfig {
            client_ip: Some(api::ClientIpConfig {
                timeout_seconds: Some(timeout(number)),
            }),
        });
        let slices = builder.slices().into_iter().map(Event::from);
        [Event::from(object)].into_iter().chain(slices)
    };
    (0..300).flat_map(service).collect()
}

/// Returns the number of chains in both families whose names start with `prefix`.
fn chains(prefix: &str) -> usize {
    let lists = ["ip", "ip6"].map(|family| nft::succeeds(&["list", "chains", family], ""));
    lists.concat().matches(&format!("chain {prefix}")).count()
}

/// Returns the number of edits and the script that a new process finds, as `kube-proxy
/// diff` does.
fn difference(events: Vec<Event>) -> (usize, String) {
    let mut engine = Engine::open(config()).expect("the kernel has nf_tables");
    apply(&mut engine, events);
    engine.apply(Event::Synced);
    let difference = engine.difference().expect("a dump");
    (difference.edits, difference.script)
}

#[test]
fn unused_chains_are_bounded_excluded_from_the_difference_and_removed_within_a_minute() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(with_timeouts(|number| 1_000 + number));
        proxy.engine.watch().unwrap();
        assert_eq!(chains("learn-"), 300);
        let same = || with_timeouts(|_| 10_800);
        proxy.change(same());
        assert_eq!(chains("learn-"), 300 + 64);
        assert_eq!(difference(same()), (0, String::new()));
        nft::succeeds(&["add chain ip kube-proxy lb-77 { drop; }"], "");
        assert_eq!(difference(same()).0, 1, "the added chain is foreign");
        nft::succeeds(&["delete chain ip kube-proxy lb-77"], "");
        assert!(proxy.engine.poll(proxy.now).is_none(), "the pause begins");
        proxy.now += Duration::from_secs(5);
        let report = proxy.engine.poll(proxy.now).expect("the chain was drift");
        assert_eq!(report.families[0].outcome.as_ref().unwrap().edits, 0);
        assert!(proxy.engine.poll(proxy.now).is_none());
        let deadline = proxy.engine.next_deadline().expect("unused chains");
        assert!(deadline <= proxy.now + Duration::from_secs(55));
        proxy.now = deadline;
        let report = proxy.engine.poll(proxy.now).expect("a sync is due");
        assert!(report.is_success(), "{report}");
        assert_eq!(report.families[0].outcome.as_ref().unwrap().edits, 64);
        assert_eq!(chains("learn-"), 300);
        assert!(proxy.engine.poll(deadline).is_none());
        let report = proxy.engine.poll(deadline + Duration::from_secs(30));
        assert!(report.is_none(), "removals by the engine are not drift");
        assert_eq!(difference(same()), (0, String::new()));
    });
}
