//! Clients, objects, and a watcher that mirrors the server's Services.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, utils::Backoff};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Time limit of all waits.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Backoff of clients, and interval of checking awaited conditions.
const INTERVAL: Duration = Duration::from_millis(20);

/// Ports of all Services by name.
pub(crate) type Ports = BTreeMap<String, i32>;

/// Creates a client from a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Returns a Service with one port.
pub(crate) fn service(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": { "port": port.to_string() },
        },
        "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": port }] },
    })
}

/// Returns the ports of the server's Services.
pub(crate) fn server_ports(server: &ApiServer) -> Ports {
    let services = server.objects("Service").into_iter();
    services
        .map(|service| serde_json::from_value(service).unwrap())
        .map(|service: Service| (service.name_any(), port(&service)))
        .collect()
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {what}");
        sleep(INTERVAL).await;
    }
}

fn port(service: &Service) -> i32 {
    service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port
}

/// State of a watcher of Services, which is stopped when dropped.
pub(crate) struct Mirror {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    ports: Ports,
    initial: Ports,
    versions: BTreeMap<String, u64>,
    lists: usize,
    errors: Vec<String>,
    /// Objects that were received in an older version than before.
    went_back: Vec<String>,
}

impl Mirror {
    /// Starts to watch all Services.
    pub(crate) async fn new(server: &ApiServer) -> Self {
        Self::with(server, watcher::Config::default()).await
    }

    /// Starts to watch the Services selected by `config`.
    pub(crate) async fn with(server: &ApiServer, config: watcher::Config) -> Self {
        let services = Api::<Service>::all(client(&server.kubeconfig()).await);
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let events = watcher(services, config).backoff(ConstantBackoff);
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                shared.lock().unwrap().apply(event);
            }
        });
        Self { state, task }
    }

    /// Waits until the watcher has the state of the server.
    pub(crate) async fn catch_up(&self, server: &ApiServer) {
        let ports = server_ports(server);
        self.wait_for(&ports).await;
    }

    /// Waits until the watcher has exactly these Services.
    pub(crate) async fn wait_for(&self, ports: &Ports) {
        eventually("the watcher is up to date", async || *ports == self.ports()).await;
    }

    pub(crate) fn ports(&self) -> Ports {
        self.state.lock().unwrap().ports.clone()
    }

    /// Returns the number of completed lists.
    pub(crate) fn lists(&self) -> usize {
        self.state.lock().unwrap().lists
    }

    /// Returns the objects that were received in an older version than before.
    pub(crate) fn went_back(&self) -> Vec<String> {
        self.state.lock().unwrap().went_back.clone()
    }

    /// Returns the errors so far.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.state.lock().unwrap().errors.clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn apply(&mut self, event: Result<Event<Service>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.initial.clear(),
            Ok(Event::InitApply(service)) => {
                self.check_version(&service);
                self.initial.insert(service.name_any(), port(&service));
            }
            Ok(Event::InitDone) => {
                self.ports = std::mem::take(&mut self.initial);
                self.lists += 1;
            }
            Ok(Event::Apply(service)) => {
                self.check_version(&service);
                self.ports.insert(service.name_any(), port(&service));
            }
            Ok(Event::Delete(service)) => {
                self.ports.remove(&service.name_any());
            }
            Err(error) => self.errors.push(format!("{error:?}")),
        }
    }

    fn check_version(&mut self, service: &Service) {
        let version = service.resource_version().unwrap().parse().unwrap();
        let before = self.versions.insert(service.name_any(), version);
        if before.is_some_and(|before| before > version) {
            self.went_back.push(service.name_any());
        }
    }
}

/// Retries after a constant interval, without limit.
struct ConstantBackoff;

impl Iterator for ConstantBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(INTERVAL)
    }
}

impl Backoff for ConstantBackoff {
    fn reset(&mut self) {}
}
