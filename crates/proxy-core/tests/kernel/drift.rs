//! Changes by other processes to the proxy's tables, and the time until they are
//! repaired.
//!
//! Each test has its own network namespace. nft plays the other process.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "these tests measure time"
)]

use std::thread;
use std::time::{Duration, Instant};

use proxy_core::{Engine, Event, Family, FamilyReport, Intervals, Report, Trigger};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use testkit::generate::ServiceBuilder;
use testkit::netns::Netns;
use testkit::nft;
use vipline_service_model::api;

use crate::fixtures::{OTHER_NODE, apply, config, web, with_endpoints};

/// Maximum repair time on an idle machine.
const MAX_REPAIR_TIME: Duration = Duration::from_millis(100);

/// Time without a sync after which the engine counts as quiet.
const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// Timeout of all operations on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Enough elements to overflow any receive buffer with notifications.
const MANY: u32 = 20_000;

fn small_cluster() -> Vec<Event> {
    with_endpoints(web("10.96.0.1"), &["10.1.0.1", "10.1.0.2", "10.1.0.3"]).events()
}

/// An engine that has synced once, with a clock.
struct Proxy {
    engine: Engine,
    start: Instant,
}

impl Proxy {
    /// Starts a watching engine in the namespace of the calling thread. Its minimum
    /// sync interval is longer than any test.
    fn start(events: impl IntoIterator<Item = Event>) -> Self {
        let mut proxy = Self::start_without_watch(events, Duration::from_secs(3600));
        proxy
            .engine
            .watch()
            .expect("the kernel sends notifications");
        assert!(proxy.engine.is_watching());
        proxy
    }

    /// Starts an engine without a watch.
    fn start_without_watch(events: impl IntoIterator<Item = Event>, pause: Duration) -> Self {
        let config = config().with_intervals(Intervals {
            min: pause,
            ..Intervals::default()
        });
        let mut engine = config.open().expect("the kernel has nf_tables");
        apply(&mut engine, events);
        engine.apply(Event::Synced);
        let mut proxy = Self {
            engine,
            start: Instant::now(),
        };
        let report = proxy.next(TIMEOUT).expect("the first sync is due");
        assert!(report.is_success(), "{report}");
        proxy
    }

    /// Polls as kube-proxy does until a sync is done or `limit` expires.
    fn next(&mut self, limit: Duration) -> Option<Report> {
        let end = Instant::now() + limit;
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

    /// Runs an nft script. Returns the report of the sync that repairs the changes, and
    /// the time since nft was started.
    fn damage_and_repair(&mut self, netns: &Netns, script: &str) -> (Report, Duration) {
        thread::scope(|scope| {
            let begin = Instant::now();
            let other = scope.spawn(|| netns.run(|| run_nft(script)));
            let report = self.next(TIMEOUT).expect("the change is detected");
            let took = begin.elapsed();
            other.join().expect("nft succeeds");
            (report, took)
        })
    }

    #[track_caller]
    fn assert_quiet(&mut self) {
        let report = self.next(QUIET_PERIOD);
        assert!(report.is_none(), "{}", report.expect("a report"));
    }
}

/// Runs an nft script, which must succeed.
#[track_caller]
fn run_nft(script: &str) {
    let output = nft::run(&["-f", "-"], script);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}\n{script}");
}

/// Returns the proxy's tables as nft lists them, IPv4 first.
fn tables() -> String {
    let list = |family| nft::run(&["list", "table", family, "kube-proxy"], "").stdout;
    String::from_utf8(["ip", "ip6"].map(list).concat()).expect("the output of nft is UTF-8")
}

fn done(report: &Report, family: Family) -> &FamilyReport {
    let mut families = report.families.iter();
    families
        .find(|done| done.family == family)
        .expect("both families are synced")
}

/// Returns the number of edits of a sync, and whether the sync dumped the kernel state.
fn outcome(done: &FamilyReport) -> (usize, bool) {
    let outcome = done.outcome.as_ref().expect("the sync succeeds");
    (outcome.edits, outcome.dumped)
}

/// Runs an nft script three times. Asserts that each run is repaired, and that the
/// fastest repair takes less than [`MAX_REPAIR_TIME`].
#[track_caller]
fn assert_repaired(script: &str, families: &[Family]) {
    let netns = Netns::new().unwrap();
    let mut best = Duration::MAX;
    netns.run(|| {
        let mut proxy = Proxy::start(small_cluster());
        let rules = tables();
        for _ in 0..3 {
            let (report, took) = proxy.damage_and_repair(&netns, script);
            assert_eq!(report.trigger, Trigger::Drift);
            for family in Family::ALL {
                let done = done(&report, family);
                if !families.contains(&family) {
                    assert_eq!((outcome(done), &done.drift), ((0, false), &None));
                    continue;
                }
                let (edits, dumped) = outcome(done);
                assert!(edits > 0 && dumped, "{report}");
                let drift = done
                    .drift
                    .as_ref()
                    .expect("the change is reported as drift");
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
    testkit::figures!("repaired {best:?} after nft was started: {script}");
    assert!(best < MAX_REPAIR_TIME, "{script}: {best:?}");
}

#[test]
fn a_deleted_table_is_restored_within_100_milliseconds() {
    assert_repaired("delete table ip kube-proxy", &[Family::V4]);
    assert_repaired("delete table ip6 kube-proxy", &[Family::V6]);
}

#[test]
fn a_flushed_chain_is_restored_within_100_milliseconds() {
    assert_repaired("flush chain ip kube-proxy services", &[Family::V4]);
}

#[test]
fn a_removed_element_is_restored_within_100_milliseconds() {
    let script = "delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }";
    assert_repaired(script, &[Family::V4]);
}

#[test]
fn an_added_element_is_removed_within_100_milliseconds() {
    let script = "add element ip kube-proxy active-cluster-ips { 10.96.77.77 }";
    assert_repaired(script, &[Family::V4]);
}

#[test]
fn a_flushed_ruleset_is_restored_within_100_milliseconds() {
    assert_repaired("flush ruleset", &[Family::V4, Family::V6]);
}

#[test]
fn changes_by_other_processes_are_counted_in_the_report() {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let mut proxy = Proxy::start(small_cluster());
        let script = "delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }\n\
                      add element ip kube-proxy active-cluster-ips { 10.96.77.1, 10.96.77.2 }";
        let (report, _) = proxy.damage_and_repair(&netns, script);
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
fn changes_to_other_tables_are_not_drift() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(small_cluster());
        run_nft(
            "add table ip other\nadd table inet kube-proxy\n\
             add chain ip other services\nadd rule ip other services accept",
        );
        run_nft("delete table ip other\ndelete table inet kube-proxy");
        proxy.assert_quiet();
    });
}

/// Returns the events of `MANY / 4` Services with one port and four endpoints each, in
/// a subnet.
fn large_cluster(subnet: u8) -> Vec<Event> {
    let service = |number: u32| {
        let [_, _, high, low] = number.to_be_bytes();
        let builder = ServiceBuilder::new(format!("web-{number}"))
            .cluster_ip([10, 96, high, low].into())
            .port(api::TransportProtocol::Tcp, 80, 8080);
        let endpoints = (0..4).map(|last| [10, subnet, high, low / 4 * 4 + last].into());
        let with_endpoint =
            |builder: ServiceBuilder, address| builder.endpoint(address, OTHER_NODE);
        endpoints.fold(builder, with_endpoint).events()
    };
    (1..=MANY / 4).flat_map(service).collect()
}

#[test]
fn large_changes_by_the_engine_are_not_drift() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start_without_watch(large_cluster(1), Duration::ZERO);
        proxy.engine.watch().unwrap();
        let [fd] = proxy.engine.fds()[..] else {
            panic!("one watched socket")
        };
        sockopt::set_socket_recv_buffer_size(fd, 4096).unwrap();
        proxy.assert_quiet();
        for subnet in 2..5 {
            apply(&mut proxy.engine, large_cluster(subnet));
            let mut total = 0;
            // Large changes are spread over several syncs.
            for _ in 0..100 {
                let report = proxy.next(TIMEOUT).expect("a sync is due");
                let (edits, dumped) = outcome(done(&report, Family::V4));
                assert!(!dumped, "{report}");
                assert_eq!(report.trigger, Trigger::Change);
                total += edits;
                if report.is_complete {
                    break;
                }
            }
            assert!(total >= MANY as usize, "{total} edits");
        }
        proxy.assert_quiet();
    });
}

#[test]
fn lost_notifications_trigger_a_dump() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start(small_cluster());
        let [fd] = proxy.engine.fds()[..] else {
            panic!("one watched socket")
        };
        sockopt::set_socket_recv_buffer_size(fd, 4096).unwrap();
        let rules = tables();
        let numbers: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
        let noise = format!(
            "add table ip other\nadd set ip other numbers {{ type mark; }}\n\
             add element ip other numbers {{ {} }}\n",
            numbers.join(", ")
        );
        run_nft(&noise);
        run_nft(
            "delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }\ndelete table ip other",
        );
        let report = proxy.next(TIMEOUT).expect("notifications were lost");
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
fn a_watching_engine_does_not_dump_on_the_timer() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start_without_watch(small_cluster(), Duration::ZERO);
        for (is_watching, dumps) in [(false, true), (true, false)] {
            if is_watching {
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
fn a_change_between_the_first_sync_and_the_watch_is_repaired() {
    Netns::new().unwrap().run(|| {
        let mut proxy = Proxy::start_without_watch(small_cluster(), Duration::from_secs(3600));
        let rules = tables();
        run_nft("delete element ip kube-proxy active-cluster-ips { 10.96.0.1 }");
        proxy.assert_quiet();
        proxy.engine.watch().unwrap();
        let report = proxy.next(TIMEOUT).expect("a generation is missing");
        assert_eq!(outcome(done(&report, Family::V4)), (1, true));
        assert!(tables() == rules);
        proxy.assert_quiet();
    });
}

#[test]
fn a_start_without_edits_is_not_followed_by_another_dump() {
    Netns::new().unwrap().run(|| {
        drop(Proxy::start(small_cluster()));
        run_nft("add table ip other");
        let mut proxy = Proxy::start(small_cluster());
        proxy.assert_quiet();
    });
}
