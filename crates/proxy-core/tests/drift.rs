//! What somebody else does to our tables, and how soon it is mended.
//!
//! Each test has a namespace of its own, and nft is the somebody.
#![cfg(feature = "nftables")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "these tests are about time"
)]

mod fixtures;

use std::thread;
use std::time::{Duration, Instant};

use fixtures::{ELSEWHERE, apply, config, web, with_endpoints};
use proxy_core::{Config, Engine, Event, Family, FamilyReport, Intervals, Report, Trigger};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use testkit::generate::Plan;
use testkit::netns::Netns;
use testkit::nft;
use vipline_service_model::api;

/// What was done is mended within this, on a machine that has time.
const SOON: Duration = Duration::from_millis(100);

/// How long nothing has to happen to be called nothing.
const QUIET: Duration = Duration::from_millis(250);

/// How long anything may take on a machine that has none.
const PATIENCE: Duration = Duration::from_secs(20);

/// Elements enough to fill any buffer with messages about them.
const MANY: u32 = 20_000;

fn small_cluster() -> Vec<Event> {
    with_endpoints(web("10.96.0.1"), &["10.1.0.1", "10.1.0.2", "10.1.0.3"]).events()
}

/// An engine that has synced once, and listens.
struct Proxy {
    engine: Engine,
    start: Instant,
}

impl Proxy {
    /// Starts in the namespace of the calling thread, with a pause between
    /// syncs that is longer than any test.
    fn start(events: impl IntoIterator<Item = Event>) -> Self {
        let mut proxy = Self::deaf(events, Duration::from_secs(3600));
        proxy.engine.watch().expect("the kernel tells of changes");
        assert!(proxy.engine.is_watching());
        proxy
    }

    /// Starts, and does not listen yet.
    fn deaf(events: impl IntoIterator<Item = Event>, pause: Duration) -> Self {
        let config = Config {
            intervals: Intervals {
                min: pause,
                ..Intervals::default()
            },
            ..config()
        };
        let mut engine = Engine::open(config).expect("the kernel has nf_tables");
        apply(&mut engine, events);
        engine.apply(Event::Synced);
        let mut proxy = Self {
            engine,
            start: Instant::now(),
        };
        let report = proxy.next(PATIENCE).expect("the first sync is due");
        assert!(report.is_success(), "{report}");
        proxy
    }

    /// Runs as a program would, until a sync was done or for so long.
    fn next(&mut self, patience: Duration) -> Option<Report> {
        let end = Instant::now() + patience;
        loop {
            if let Some(report) = self.engine.poll(self.start.elapsed()) {
                assert!(report.is_success(), "{report}");
                return Some(report);
            }
            let now = Instant::now();
            if now >= end {
                return None;
            }
            let due = self.engine.next_deadline().map(|due| self.start + due);
            let until = due.map_or(end, |due| due.min(end));
            let timeout = Timespec::try_from(until.saturating_duration_since(now)).unwrap();
            let fds = self.engine.fds();
            let mut waited: Vec<_> = fds
                .iter()
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
                .collect();
            poll(&mut waited, Some(&timeout)).unwrap();
        }
    }

    /// Lets somebody else do something; returns the sync that mends it, and how
    /// long it took since nft was started.
    fn mend(&mut self, netns: &Netns, script: &str) -> (Report, Duration) {
        thread::scope(|scope| {
            let begin = Instant::now();
            let other = scope.spawn(|| netns.run(|| foreign(script)));
            let report = self.next(PATIENCE).expect("it is noticed");
            let took = begin.elapsed();
            other.join().expect("nft succeeds");
            (report, took)
        })
    }

    #[track_caller]
    fn assert_quiet(&mut self) {
        let report = self.next(QUIET);
        assert!(report.is_none(), "{}", report.expect("some"));
    }
}

/// Runs a script of nft, which has to succeed.
#[track_caller]
fn foreign(script: &str) {
    let output = nft::run(&["-f", "-"], script);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}\n{script}");
}

/// Returns our tables as nft lists them, in this order.
fn tables() -> String {
    let list = |family| nft::run(&["list", "table", family, "kube-proxy"], "").stdout;
    String::from_utf8(["ip", "ip6"].map(list).concat()).expect("nft writes text")
}

fn done(report: &Report, family: Family) -> &FamilyReport {
    let mut families = report.families.iter();
    families
        .find(|done| done.family == family)
        .expect("both families are synced")
}

/// Tells how many edits a sync made, and whether it dumped.
fn outcome(done: &FamilyReport) -> (usize, bool) {
    let outcome = done.outcome.as_ref().expect("it succeeds");
    (outcome.edits, outcome.dumped)
}

/// Lets somebody do `script` and checks that it is mended, and how soon at best.
#[track_caller]
fn assert_mended(script: &str, families: &[Family]) {
    let netns = Netns::new().unwrap();
    let mut best = Duration::MAX;
    netns.run(|| {
        let mut proxy = Proxy::start(small_cluster());
        let rules = tables();
        for _ in 0..3 {
            let (report, took) = proxy.mend(&netns, script);
            assert_eq!(report.trigger, Trigger::Drift);
            for family in Family::ALL {
                let done = done(&report, family);
                if !families.contains(&family) {
                    assert_eq!((outcome(done), &done.drift), ((0, false), &None));
                    continue;
                }
                let (edits, dumped) = outcome(done);
                assert!(edits > 0 && dumped, "{report}");
                let drift = done.drift.as_ref().expect("somebody was heard");
                assert!(drift.changes > 0 && !drift.is_incomplete, "{report}");
                assert!(
                    drift.processes.iter().any(|by| by.starts_with("nft (")),
                    "{report}"
                );
            }
            assert!(tables() == rules, "{script}");
            proxy.assert_quiet();
            best = best.min(took);
        }
    });
    println!("mended {best:?} after nft was started: {script}");
    assert!(best < SOON, "{script}: {best:?}");
}

#[test]
fn a_deleted_table_is_back_within_100_milliseconds() {
    assert_mended("delete table ip kube-proxy", &[Family::V4]);
    assert_mended("delete table ip6 kube-proxy", &[Family::V6]);
}

#[test]
fn a_flushed_chain_has_its_rules_back_within_100_milliseconds() {
    assert_mended("flush chain ip kube-proxy services", &[Family::V4]);
}

#[test]
fn a_removed_element_is_back_within_100_milliseconds() {
    let script = "delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }";
    assert_mended(script, &[Family::V4]);
}

#[test]
fn an_added_element_is_gone_within_100_milliseconds() {
    let script = "add element ip kube-proxy active-cluster-ips { 10.96.77.77 }";
    assert_mended(script, &[Family::V4]);
}

#[test]
fn all_rules_are_back_within_100_milliseconds() {
    assert_mended("flush ruleset", &[Family::V4, Family::V6]);
}

#[test]
fn what_was_changed_is_counted() {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let mut proxy = Proxy::start(small_cluster());
        let script = "delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }\n\
                      add element ip kube-proxy active-cluster-ips { 10.96.77.1, 10.96.77.2 }";
        let (report, _) = proxy.mend(&netns, script);
        let done = done(&report, Family::V4);
        assert_eq!(outcome(done), (3, true));
        assert_eq!(done.drift.as_ref().map(|drift| drift.changes), Some(3));
        assert!(
            report.to_string().contains("; drift: 3 changes by nft ("),
            "{report}"
        );
    });
}

#[test]
fn what_others_do_elsewhere_is_nobodys_business() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(small_cluster());
        foreign(
            "add table ip other\nadd table inet kube-proxy\n\
             add chain ip other services\nadd rule ip other services accept",
        );
        foreign("delete table ip other\ndelete table inet kube-proxy");
        proxy.assert_quiet();
    });
}

/// Many Services of one port each, with four endpoints in a subnet.
fn large_cluster(subnet: u8) -> Vec<Event> {
    let service = |number: u32| {
        let [_, _, high, low] = number.to_be_bytes();
        let plan = Plan::new(format!("web-{number}"))
            .at([10, 96, high, low].into())
            .port(api::Protocol::Tcp, 80, 8080);
        let endpoints = (0..4).map(|last| [10, subnet, high, low / 4 * 4 + last].into());
        let with_endpoint = |plan: Plan, address| plan.endpoint(address, ELSEWHERE);
        endpoints.fold(plan, with_endpoint).events()
    };
    (1..=MANY / 4).flat_map(service).collect()
}

#[test]
fn what_we_do_is_no_drift_however_much_it_is() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::deaf(large_cluster(1), Duration::ZERO);
        proxy.engine.watch().unwrap();
        let [fd] = proxy.engine.fds()[..] else {
            panic!("there is one listener")
        };
        sockopt::set_socket_recv_buffer_size(fd, 4096).unwrap();
        proxy.assert_quiet();
        for subnet in 2..5 {
            apply(&mut proxy.engine, large_cluster(subnet));
            let report = proxy.next(PATIENCE).expect("there are changes");
            let (edits, dumped) = outcome(done(&report, Family::V4));
            assert!(edits >= MANY as usize && !dumped, "{report}");
            assert_eq!(report.trigger, Trigger::Change);
        }
        proxy.assert_quiet();
    });
}

#[test]
fn what_is_too_much_to_hear_is_found_by_a_dump() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(small_cluster());
        let [fd] = proxy.engine.fds()[..] else {
            panic!("there is one listener")
        };
        sockopt::set_socket_recv_buffer_size(fd, 4096).unwrap();
        let rules = tables();
        let numbers: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
        let noise = format!(
            "add table ip other\nadd set ip other numbers {{ type mark; }}\n\
             add element ip other numbers {{ {} }}\n",
            numbers.join(", ")
        );
        foreign(&noise);
        foreign(
            "delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }\ndelete table ip other",
        );
        let report = proxy.next(PATIENCE).expect("something was lost");
        for (family, edits) in [(Family::V4, 1), (Family::V6, 0)] {
            let done = done(&report, family);
            assert_eq!(outcome(done), (edits, true), "{report}");
            assert!(done.drift.as_ref().is_some_and(|drift| drift.is_incomplete));
        }
        assert!(tables() == rules);
        proxy.assert_quiet();
    });
}

#[test]
fn while_somebody_listens_nothing_is_dumped_on_a_timer() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::deaf(small_cluster(), Duration::ZERO);
        for (is_listening, dumps) in [(false, true), (true, false)] {
            if is_listening {
                proxy.engine.watch().unwrap();
            }
            proxy.assert_quiet();
            let later = proxy.start.elapsed() + 2 * Intervals::default().max;
            let report = proxy.engine.poll(later).expect("the timer is due");
            assert_eq!(report.trigger, Trigger::Timer);
            assert_eq!(outcome(done(&report, Family::V4)), (0, dumps));
            proxy.start -= 2 * Intervals::default().max;
        }
    });
}

#[test]
fn what_happened_between_the_first_sync_and_the_listener_is_mended() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::deaf(small_cluster(), Duration::from_secs(3600));
        let rules = tables();
        foreign("delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }");
        proxy.assert_quiet();
        proxy.engine.watch().unwrap();
        let report = proxy.next(PATIENCE).expect("a generation is missing");
        assert_eq!(outcome(done(&report, Family::V4)), (1, true));
        assert!(tables() == rules);
        proxy.assert_quiet();
    });
}

#[test]
fn a_start_with_nothing_to_write_is_not_dumped_again() {
    Netns::new().unwrap().run(|| {
        drop(Proxy::start(small_cluster()));
        foreign("add table ip other");
        let mut proxy = Proxy::start(small_cluster());
        proxy.assert_quiet();
    });
}
