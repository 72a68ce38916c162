//! Tests of watchers against a fake API server.

use std::fs;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::netns::Netns;
use testkit::scoped::Directory;
use testkit::silence::silence_connections;
use tokio::runtime::Runtime;
use vipline_service_model::Event;

use super::*;
use crate::api::access::Access;
use crate::api::exec_plugin::RunningPlugin;
use crate::api::feed::tests::wait;
use crate::api::feed::{Receiver, feed};
use crate::api::objects::Service;
use crate::api::observer::tests::Recorded;

/// Timeout of expected events.
const SOON: Duration = Duration::from_secs(20);

/// A running watcher of Services.
struct Stage {
    server: ApiServer,
    receiver: Receiver,
    recorded: Arc<Recorded>,
    _runtime: Runtime,
    _folder: Directory,
}

impl Stage {
    fn new(silence: Duration) -> Self {
        Self::after(0, silence)
    }

    /// Starts a watcher with the backoff of `failures` failures.
    fn after(failures: usize, silence: Duration) -> Self {
        Self::selecting(Selectors::of_proxy::<Service>(), failures, silence)
    }

    /// Starts a watcher of selected Services.
    fn selecting(selectors: Selectors, failures: usize, silence: Duration) -> Self {
        let server = ApiServer::start();
        server.apply(service("first"));
        let folder = Directory::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let access = Access {
            kubeconfig: Some(kubeconfig),
            qps: 100.0,
            burst: 100,
            ..Access::default()
        };
        let runtime = Runtime::new().unwrap();
        let recorded = Arc::new(Recorded::default());
        let guard = runtime.enter();
        let observer: Arc<dyn Observer> = recorded.clone();
        let connection = Connection::open(&access, observer, RunningPlugin::default());
        let connection = Arc::new(connection.unwrap());
        drop(guard);
        let (sender, receiver) = feed().unwrap();
        let mut watcher =
            Watcher::<Service>::new(connection, selectors, WatchMode::ListAndWatch, sender);
        watcher.silence = silence;
        for _ in 0..failures {
            watcher.backoff.wait(false);
        }
        runtime.spawn(watcher.run());
        Self {
            server,
            receiver,
            recorded,
            _runtime: runtime,
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
        while !self.receiver.take().unwrap().iter().any(is_expected) {
            assert!(start.elapsed() < SOON, "{name} is missing");
            wait(&self.receiver, SOON);
        }
    }

    /// Returns the names of all Services until `last`.
    fn names_until(&mut self, last: &str) -> Vec<String> {
        let mut names = Vec::new();
        let start = Instant::now();
        while names.last().is_none_or(|name| name != last) {
            assert!(start.elapsed() < SOON, "{last} is missing");
            for item in self.receiver.take().unwrap() {
                if let Item::Event(Event::ServiceApplied(service)) = item {
                    names.push(service.metadata.name);
                }
            }
            wait(&self.receiver, Duration::from_millis(50));
        }
        names
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
        let contact = self.recorded.reports().contacts[&Kind::Service];
        contact != Contact::InSync
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
fn headless_services_and_those_of_other_proxies_come_without_selectors() {
    let headless = || {
        let mut service = service("headless");
        service["spec"]["clusterIP"] = json!("None");
        service
    };
    let mut other = service("other");
    other["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
    let mut all = Stage::selecting(Selectors::default(), 0, SOON);
    let mut selected = Stage::new(SOON);
    for stage in [&mut all, &mut selected] {
        stage.server.apply(headless());
        stage.server.apply(other.clone());
        stage.server.apply(service("web"));
    }
    let names = all.names_until("web");
    assert_eq!(names, ["first", "headless", "other", "web"]);
    let names = selected.names_until("web");
    assert_eq!(names, ["first", "web"]);
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

/// A watch finds a dead connection by probes, which the tests of the programs see. While a
/// request is not acknowledged, there are none.
#[test]
fn a_request_on_a_dead_connection_fails_within_half_a_minute() {
    let netns = Netns::new().unwrap();
    netns.run(|| {
        let server = ApiServer::start();
        let folder = Directory::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let access = Access {
            kubeconfig: Some(kubeconfig),
            ..Access::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let observer = Arc::new(Recorded::default());
            let connection = Connection::open(&access, observer, RunningPlugin::default());
            let client = connection.unwrap().client(&Method::GET).await.unwrap();
            let selectors = Selectors::default();
            let list = || request::page::<Service>(&client, &selectors, Freshness::Newest, None);
            list().await.unwrap();
            assert_eq!(silence_connections(server.address().port()), 1);
            let start = Instant::now();
            let error = list().await.unwrap_err();
            let took = start.elapsed();
            assert!(took < Duration::from_secs(30), "{took:?}: {error}");
            assert!(error.to_string().contains("timed out"), "{error}");
            list().await.unwrap();
        });
    });
}
