//! Session affinity in mode iptables: the xt_recent lists of the kernel.
//!
//! Each test has its own network namespace. The tests add the entries that packets
//! would add.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use proxy_core::Event;
use testkit::netns::Netns;
use vipline_service_model::api;

use crate::fixtures::{apply, config, web, with_endpoints};
use crate::rules::{Opened, Rules};

/// Directory of the xt_recent lists in the namespace of the calling thread.
const LISTS: &str = "/proc/thread-self/net/xt_recent";

crate::rules::tests_of_rules! {
    all {}
    iptables {
        entries_of_a_removed_endpoint_are_deleted_and_others_are_kept
        entries_of_a_deleted_service_are_deleted
        entries_are_deleted_when_affinity_is_disabled
        entries_are_kept_when_the_timeout_changes
        entries_are_kept_when_the_engine_restarts
    }
}

/// An engine in the network namespace of its thread.
struct Proxy {
    opened: Opened,
    now: Duration,
}

impl Proxy {
    fn start(rules: Rules, events: Vec<Event>) -> Self {
        let opened = rules.open(rules.configured(config()));
        let now = Duration::ZERO;
        let mut proxy = Self { opened, now };
        apply(&mut proxy.opened.engine, events);
        proxy.change(vec![Event::Synced]);
        proxy
    }

    /// Applies events and syncs after the minimum interval.
    fn change(&mut self, events: Vec<Event>) {
        let engine = &mut self.opened.engine;
        assert!(engine.poll(self.now).is_none());
        self.now += Duration::from_secs(5);
        apply(engine, events);
        let report = engine.poll(self.now).expect("a change is due");
        assert!(report.is_success(), "{report}");
    }

    /// Returns the paths of the lists of an endpoint, one for each family.
    fn lists(&mut self, endpoint: u8) -> [PathBuf; 2] {
        let plan = self.opened.engine.desired();
        [
            format!("10.1.0.{endpoint}:8080"),
            format!("[fd00:1::{endpoint}]:8080"),
        ]
        .map(|to| {
            let end = format!("--to-destination {to}");
            let rule = plan.lines().find(|line| line.ends_with(&end));
            let (_, name) = rule
                .and_then(|rule| rule.split_once(" --name "))
                .expect("a rule names the list");
            let (name, _) = name.split_once(' ').expect("more follows");
            PathBuf::from(LISTS).join(name)
        })
    }

    /// Adds an entry for an endpoint in both families.
    fn add_entry(&mut self, endpoint: u8) {
        let lists = self.lists(endpoint);
        for (list, client) in lists.iter().zip(["192.0.2.1", "2001:db8::1"]) {
            fs::write(list, format!("+{client}\n")).expect("the kernel has the list");
        }
        assert!(lists.iter().all(|list| entries(list) == 1));
    }
}

/// Returns the number of entries in a list.
fn entries(list: &PathBuf) -> usize {
    let text = fs::read_to_string(list).expect("the kernel has the list");
    text.lines().count()
}

/// Returns the number of lists.
fn count_lists() -> usize {
    fs::read_dir(LISTS).expect("the kernel has lists").count()
}

/// Returns the events of a dual-stack Service with an affinity timeout in seconds.
fn sticky_for(seconds: u32, endpoints: &[u8]) -> Vec<Event> {
    let mut service = web("10.96.0.10").cluster_ip("fd00:96::10".parse().expect("an address"));
    for last in endpoints {
        let endpoints = [format!("10.1.0.{last}"), format!("fd00:1::{last}")];
        service = with_endpoints(service, &endpoints.each_ref().map(String::as_str));
    }
    let mut object = service.service();
    object.spec.session_affinity = api::Affinity::ClientIp;
    object.spec.session_affinity_config = Some(api::SessionAffinityConfig {
        client_ip: Some(api::ClientIpConfig {
            timeout_seconds: Some(seconds),
        }),
    });
    let slices = service.slices().into_iter().map(Event::from);
    [Event::from(object)].into_iter().chain(slices).collect()
}

fn sticky(endpoints: &[u8]) -> Vec<Event> {
    sticky_for(600, endpoints)
}

fn entries_of_a_removed_endpoint_are_deleted_and_others_are_kept(rules: Rules) {
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(rules, sticky(&[1, 2]));
        proxy.add_entry(1);
        proxy.add_entry(2);
        let (first, second) = (proxy.lists(1), proxy.lists(2));
        proxy.change(sticky(&[1, 2, 3]));
        let both = first.iter().chain(&second);
        assert!(
            both.clone().all(|list| entries(list) == 1),
            "no endpoint was removed"
        );
        proxy.change(sticky(&[1, 3]));
        assert!(second.iter().all(|list| !list.exists()));
        proxy.change(sticky(&[1, 2, 3]));
        assert!(first.iter().all(|list| entries(list) == 1));
        assert!(second.iter().all(|list| entries(list) == 0));
    });
}

fn entries_of_a_deleted_service_are_deleted(rules: Rules) {
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(rules, sticky(&[1, 2]));
        assert_eq!(count_lists(), 4);
        let name = web("10.96.0.10").service().metadata.object_name();
        proxy.change(vec![Event::ServiceDeleted(name)]);
        assert_eq!(count_lists(), 0);
    });
}

fn entries_are_deleted_when_affinity_is_disabled(rules: Rules) {
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(rules, sticky(&[1, 2]));
        proxy.add_entry(1);
        let lists = proxy.lists(1);
        let mut events = sticky(&[1, 2]);
        let Some(Event::ServiceApplied(service)) = events.first_mut() else {
            panic!("the Service comes first")
        };
        service.spec.session_affinity = api::Affinity::None;
        proxy.change(events);
        assert_eq!(count_lists(), 0);
        proxy.change(sticky(&[1, 2]));
        assert!(lists.iter().all(|list| entries(list) == 0));
    });
}

fn entries_are_kept_when_the_timeout_changes(rules: Rules) {
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(rules, sticky_for(600, &[1, 2]));
        proxy.add_entry(1);
        let lists = proxy.lists(1);
        proxy.change(sticky_for(900, &[1, 2]));
        assert!(lists.iter().all(|list| entries(list) == 1));
    });
}

fn entries_are_kept_when_the_engine_restarts(rules: Rules) {
    Netns::new().expect("a network namespace").run(|| {
        let mut proxy = Proxy::start(rules, sticky(&[1, 2]));
        proxy.add_entry(1);
        proxy.add_entry(2);
        let (first, second) = (proxy.lists(1), proxy.lists(2));
        drop(proxy);
        Proxy::start(rules, sticky(&[1, 3]));
        assert!(first.iter().all(|list| entries(list) == 1));
        assert!(second.iter().all(|list| !list.exists()));
    });
}
