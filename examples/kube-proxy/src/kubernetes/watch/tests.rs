//! Tests of watchers against a fake API server.

use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use proxy_core::{Event, Family, Mode};
use serde_json::{Value, json};
use testkit::leftovers::Directory;

use super::*;
use crate::kubernetes::objects::Service;
use crate::settings::Access;
use crate::tasks::Tasks;
use crate::wait;

/// Timeout of expected events.
const SOON: Duration = Duration::from_secs(20);

/// A running watcher of Services.
struct Stage {
    server: ApiServer,
    tasks: Tasks,
    telemetry: Telemetry,
    _folder: Directory,
}

impl Stage {
    fn new(silence: Duration) -> Self {
        Self::after(0, silence)
    }

    /// Starts a watcher with the backoff of `failures` failures.
    fn after(failures: usize, silence: Duration) -> Self {
        let server = ApiServer::start();
        server.apply(service("first"));
        let folder = Directory::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let access = Access {
            kubeconfig: Some(kubeconfig),
            master: None,
            qps: 100.0,
            burst: 100,
            content_type: String::new(),
            accept_content_types: String::new(),
        };
        let tasks = Tasks::start().unwrap();
        let telemetry = Telemetry::new(Mode::Nftables, &[Family::V4], SOON);
        let guard = tasks.handle().enter();
        let connection = Arc::new(Connection::open(&access, &telemetry).unwrap());
        drop(guard);
        let (feed, metrics) = (tasks.sender().clone(), telemetry.clone());
        let mut watcher =
            Watcher::<Service>::new(connection, None, Reading::Watched, feed, metrics);
        watcher.silence = silence;
        for _ in 0..failures {
            watcher.backoff.wait(false);
        }
        tasks.handle().spawn(watcher.run());
        Self {
            server,
            tasks,
            telemetry,
            _folder: folder,
        }
    }

    /// Waits for the event of the Service `name`.
    fn wait_for(&mut self, name: &str) {
        let is_expected = |item: &Item| match item {
            Item::Event(Event::ServiceApplied(service)) => service.metadata.name == name,
            _ => false,
        };
        let start = Instant::now();
        while !self.tasks.take().unwrap().iter().any(is_expected) {
            assert!(start.elapsed() < SOON, "{name} is missing");
            wait::readable(self.tasks.as_fd(), &[], Some(SOON)).unwrap();
        }
    }

    /// Waits until the server received `number` watches.
    fn watches(&self, number: usize) {
        let start = Instant::now();
        while self.server.count("watch", "services") < number {
            assert!(start.elapsed() < SOON, "there are not {number} watches");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_stale(&self) -> bool {
        let page = self.telemetry.metrics(&crate::config::Gates::default());
        let name = "vipline_source_staleness_seconds{kind=\"Service\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{page}")) != "0"
    }
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
    })
}

#[test]
fn a_silent_watch_is_restarted() {
    let mut stage = Stage::new(Duration::from_millis(200));
    stage.wait_for("first");
    stage.server.faults(|faults| faults.silent_watches = true);
    stage.watches(3);
    stage.server.apply(service("second"));
    stage.server.clear_faults();
    stage.wait_for("second");
}

#[test]
fn a_past_outage_delays_nothing() {
    let mut stage = Stage::after(10, SOON);
    stage.wait_for("first");
    assert!(stage.server.wait_for_watchers(1, SOON));
    stage.server.compact();
    stage.server.cut_connections(apiserver::Disconnect::Reset);
    stage.server.apply(service("second"));
    stage.server.compact();
    stage.wait_for("second");
}

#[test]
fn an_unreadable_object_does_not_block_others() {
    let mut stage = Stage::new(SOON);
    stage.wait_for("first");
    assert!(stage.server.wait_for_watchers(1, SOON));
    let mut odd = service("odd");
    odd["spec"]["ports"] = json!([{"port": "eighty"}]);
    stage.server.apply(odd);
    stage.server.apply(service("second"));
    stage.wait_for("second");
    stage.server.expire_watches();
    stage.wait_for("second");
}

#[test]
fn staleness_begins_when_the_server_goes_and_ends_when_it_is_back() {
    let mut stage = Stage::new(SOON);
    stage.wait_for("first");
    assert!(stage.server.wait_for_watchers(1, SOON));
    let until = |stage: &Stage, stale| {
        let start = Instant::now();
        while stage.is_stale() != stale {
            assert!(start.elapsed() < SOON, "stale is not {stale}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(&stage, false);
    stage.server.refuse_connections();
    stage.server.cut_connections(apiserver::Disconnect::Close);
    until(&stage, true);
    stage.server.accept_connections();
    until(&stage, false);
}
