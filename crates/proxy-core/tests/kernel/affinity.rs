//! Session affinity in mode nftables: recorded clients, and the chains that record them.
//!
//! Each test has its own network namespace. nft adds the clients that packets would add.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proxy_core::backend::nftables::{self, Planner};
use proxy_core::{Engine, Event, Family, Report};
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use testkit::nft;
use vipline_nftables::{Error, Object};
use vipline_reconcile::{Edit, Rejection, Target};
use vipline_service_model::api;

use crate::fixtures::{apply, config, web, with_endpoints};

/// An engine in the network namespace of its thread.
struct Proxy {
    engine: Engine,
    now: Duration,
}

impl Proxy {
    fn start(events: Vec<Event>) -> Self {
        let engine = config().open().expect("the kernel has nf_tables");
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

/// Returns the names of the maps of clients of a family.
fn maps_of_clients(family: &str) -> Vec<String> {
    let list = nft::succeeds(&["list", "maps", family], "");
    let names = list.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("map ")?.strip_suffix(" {")?;
        name.starts_with("clients-").then(|| name.to_owned())
    });
    names.collect()
}

/// Adds `count` clients to each map of clients, as packets would.
fn add_clients(count: u16) {
    if count == 0 {
        return;
    }
    for (family, prefix) in [("ip", "198.18."), ("ip6", "2001:db8::")] {
        let separator = if family == "ip" { "." } else { ":" };
        for map in maps_of_clients(family) {
            let client = |number: u16| {
                let [high, low] = number.to_be_bytes();
                format!("1:{number:x} . {prefix}{high}{separator}{low} timeout 1h : 2:{number:x}")
            };
            let clients: Vec<_> = (1..=count).map(client).collect();
            let elements = clients.join(", ");
            let command = format!("add element {family} kube-proxy {map} {{ {elements} }}\n");
            nft::succeeds(&["-f", "-"], &command);
        }
    }
}

/// Returns the number of recorded clients.
fn client_count() -> usize {
    let count = |family| {
        let maps = maps_of_clients(family).into_iter();
        let list = |map: String| nft::succeeds(&["list", "map", family, "kube-proxy", &map], "");
        maps.map(|map| list(map).matches(" expires ").count())
            .sum::<usize>()
    };
    count("ip") + count("ip6")
}

#[test]
fn clients_are_neither_drift_nor_a_difference_and_survive_a_restart() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        add_clients(3);
        assert_eq!(client_count(), 6);
        proxy.engine.watch().unwrap();
        let report = proxy.change(sticky(&[1]));
        assert!(report.families.iter().all(|done| done.drift.is_none()));
        assert_eq!(proxy.engine.difference().unwrap().script, "");
        for _ in 0..3 {
            assert!(proxy.engine.poll(proxy.now).is_none());
            proxy.now += Duration::from_secs(5);
        }
        drop(proxy);
        Proxy::start(sticky(&[1, 2]));
        assert_eq!(client_count(), 6);
    });
}

#[test]
fn the_map_of_clients_is_removed_with_its_last_service() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        add_clients(1);
        let name = web("10.96.0.10").service().metadata.object_name();
        proxy.change(vec![Event::ServiceDeleted(name)]);
        assert_eq!(
            client_count(),
            2,
            "a Service that returns finds its clients"
        );
        for _ in 0..60 {
            proxy.now += Duration::from_secs(1);
            proxy.engine.poll(proxy.now);
        }
        assert_eq!(
            (maps_of_clients("ip"), maps_of_clients("ip6")),
            (vec![], vec![])
        );
    });
}

#[test]
fn the_cost_of_a_removed_endpoint_does_not_depend_on_the_number_of_clients() {
    let costs = [0, 1_000].map(|clients| {
        Netns::new().unwrap().run(|| {
            let kernels = Family::ALL.map(|family| {
                let kernel = nftables::Kernel::open(family).expect("the kernel has nf_tables");
                Counted(Arc::new(Mutex::new(kernel)))
            });
            let mut engine =
                Engine::with_kernels(config().engine, Planner, |family| match family {
                    Family::V4 => kernels[0].clone(),
                    Family::V6 => kernels[1].clone(),
                });
            apply(&mut engine, sticky(&[1, 2]));
            engine.apply(Event::Synced);
            let mut proxy = Proxy {
                engine,
                now: Duration::ZERO,
            };
            assert!(proxy.engine.poll(proxy.now).expect("a start").is_success());
            add_clients(clients);
            let counters = || kernels.each_ref().map(|kernel| kernel.get().counters());
            let before = counters();
            proxy.change(sticky(&[1]));
            let after = counters();
            [0, 1].map(|family| {
                let (before, after) = (before[family], after[family]);
                [
                    after.sends - before.sends,
                    after.bytes_sent - before.bytes_sent,
                    after.receives - before.receives,
                ]
            })
        })
    });
    assert_eq!(costs[0], costs[1]);
    let [sends, ..] = costs[0][0];
    assert_eq!(sends, 1, "one message");
}

/// A kernel with counters. Clones share the kernel.
#[derive(Clone)]
struct Counted(Arc<Mutex<nftables::Kernel>>);

impl Counted {
    fn get(&self) -> MutexGuard<'_, nftables::Kernel> {
        self.0.lock().expect("no test continues after a panic")
    }
}

impl Target for Counted {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        self.get().dump()
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        self.get().commit(edits)
    }
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
    let mut engine = config().open().expect("the kernel has nf_tables");
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
        // Services with one timeout share a chain per map of clients.
        let shards = chains("recall-");
        assert!(shards <= 64, "{shards}");
        assert_eq!(chains("learn-"), shards + 64);
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
        assert_eq!(chains("learn-"), shards);
        assert!(proxy.engine.poll(deadline).is_none());
        let report = proxy.engine.poll(deadline + Duration::from_secs(30));
        assert!(report.is_none(), "removals by the engine are not drift");
        assert_eq!(difference(same()), (0, String::new()));
    });
}
