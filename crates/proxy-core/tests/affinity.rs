//! Clients that stay with their endpoints, and endpoints that leave.
//!
//! Each test has a namespace of its own; nft remembers clients as packets do.
#![cfg(feature = "nftables")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "nft stands for packets"
)]

mod fixtures;

use std::time::Duration;

use fixtures::{apply, config, web, with_endpoints};
use proxy_core::{Engine, Event, Report};
use testkit::netns::Netns;
use testkit::nft;
use vipline_service_model::api;

/// An engine in the namespace of its thread.
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

    /// Takes in events and syncs, once the pause after the last sync is over.
    fn change(&mut self, events: Vec<Event>) -> Report {
        assert!(self.engine.poll(self.now).is_none());
        self.now += Duration::from_secs(5);
        apply(&mut self.engine, events);
        let report = self.engine.poll(self.now).expect("a change is due");
        assert!(report.is_success(), "{report}");
        report
    }
}

/// A dual-stack Service with a node port whose clients stay with endpoints.
fn sticky(endpoints: &[u8]) -> Vec<Event> {
    let mut service = web("10.96.0.10").at("fd00:96::10".parse().expect("an address"));
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

/// Remembers clients for endpoints 1 and 2, by address and by node port.
fn remember() {
    let mut script = String::new();
    for (family, client, vip, endpoint) in [
        ("ip", "192.0.2.", "10.96.0.10", "10.1.0."),
        ("ip6", "2001:db8::", "fd00:96::10", "fd00:1::"),
    ] {
        for last in [1, 2] {
            let to = format!("timeout 1h : {endpoint}{last} . 8080");
            script += &format!(
                "add element {family} kube-proxy affinity \
                 {{ {client}{last} . {vip} . tcp . 80 {to} }}\n\
                 add element {family} kube-proxy affinity-nodeports \
                 {{ {client}{last} . tcp . 30080 {to} }}\n"
            );
        }
    }
    let output = nft::run(&["-f", "-"], &script);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}\n{script}");
}

/// Returns how many clients are remembered: all, and those of endpoint 1.
fn remembered() -> (usize, usize) {
    let list = |family, map| nft::run(&["list", "map", family, "kube-proxy", map], "").stdout;
    let lists = ["ip", "ip6"].map(|family| {
        let maps = ["affinity", "affinity-nodeports"];
        maps.map(|map| list(family, map)).concat()
    });
    let text = String::from_utf8(lists.concat()).expect("nft writes text");
    let count = |what| text.matches(what).count();
    let first = count(": 10.1.0.1 . 8080") + count(": fd00:1::1 . 8080");
    (count(" expires "), first)
}

#[test]
fn clients_of_an_endpoint_that_leaves_are_forgotten() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        remember();
        assert_eq!(remembered(), (8, 4));
        proxy.change(sticky(&[1, 2, 3]));
        assert_eq!(remembered(), (8, 4), "nobody left");
        proxy.change(sticky(&[1, 3]));
        assert_eq!(remembered(), (4, 4));
        let nothing = proxy.engine.difference().unwrap();
        assert_eq!(nothing.script, "", "clients are no difference");
    });
}

#[test]
fn clients_of_a_service_that_leaves_are_forgotten() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        remember();
        let name = web("10.96.0.10").service().metadata.object_name();
        proxy.change(vec![Event::ServiceDeleted(name)]);
        assert_eq!(remembered(), (0, 0));
    });
}

#[test]
fn clients_are_forgotten_when_affinity_is_switched_off() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        remember();
        let mut events = sticky(&[1, 2]);
        let Some(Event::ServiceApplied(service)) = events.first_mut() else {
            panic!("the Service comes first")
        };
        service.spec.session_affinity = api::Affinity::None;
        proxy.change(events);
        assert_eq!(remembered(), (0, 0));
    });
}

#[test]
fn clients_of_an_endpoint_that_left_while_nobody_ran_are_forgotten() {
    Netns::new().unwrap().run(|| {
        drop(Proxy::start(sticky(&[1, 2])));
        remember();
        Proxy::start(sticky(&[1]));
        assert_eq!(remembered(), (4, 4));
    });
}

#[test]
fn clients_that_a_crash_left_behind_are_forgotten_by_the_first_change() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1]));
        remember();
        proxy.change(sticky(&[1, 3]));
        assert_eq!(remembered(), (8, 4), "nobody left, so nobody looked");
        drop(proxy);
        Proxy::start(sticky(&[1, 3, 4]));
        assert_eq!(remembered(), (4, 4));
    });
}

#[test]
fn forgetting_clients_is_no_drift() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(sticky(&[1, 2]));
        remember();
        proxy.engine.watch().unwrap();
        let report = proxy.change(sticky(&[1]));
        assert!(report.families.iter().all(|done| done.drift.is_none()));
        assert_eq!(remembered(), (4, 4));
        for _ in 0..3 {
            assert!(proxy.engine.poll(proxy.now).is_none());
            proxy.now += Duration::from_secs(5);
        }
    });
}
