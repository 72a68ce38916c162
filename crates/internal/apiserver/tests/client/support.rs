//! Clients, objects for them, and what they know of them.

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

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client waits before it tries again, and a test before it looks.
const AGAIN: Duration = Duration::from_millis(20);

/// The ports of all Services, by name.
pub(crate) type Ports = BTreeMap<String, i32>;

/// Makes a client of a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// A Service with one port.
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

/// Returns the ports that the server knows.
pub(crate) fn truth(server: &ApiServer) -> Ports {
    let services = server.objects("Service").into_iter();
    services
        .map(|service| serde_json::from_value(service).unwrap())
        .map(|service: Service| (service.name_any(), port(&service)))
        .collect()
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "it never came to be: {what}");
        sleep(AGAIN).await;
    }
}

fn port(service: &Service) -> i32 {
    service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port
}

/// What a watcher of Services knows, as long as it lives.
pub(crate) struct Mirror {
    known: Arc<Mutex<Known>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Known {
    ports: Ports,
    initial: Ports,
    versions: BTreeMap<String, u64>,
    lists: usize,
    errors: Vec<String>,
    /// The objects that were told in an older version than before.
    went_back: Vec<String>,
}

impl Mirror {
    /// Begins to watch all Services.
    pub(crate) async fn new(server: &ApiServer) -> Self {
        Self::with(server, watcher::Config::default()).await
    }

    /// Begins to watch the Services that the watcher is told to.
    pub(crate) async fn with(server: &ApiServer, config: watcher::Config) -> Self {
        let services = Api::<Service>::all(client(&server.kubeconfig()).await);
        let known = Arc::new(Mutex::new(Known::default()));
        let learned = Arc::clone(&known);
        let task = tokio::spawn(async move {
            let events = watcher(services, config).backoff(Soon);
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                learned.lock().unwrap().learn(event);
            }
        });
        Self { known, task }
    }

    /// Waits until it knows what the server knows.
    pub(crate) async fn catch_up(&self, server: &ApiServer) {
        let truth = truth(server);
        self.know(&truth).await;
    }

    /// Waits until it knows just this.
    pub(crate) async fn know(&self, ports: &Ports) {
        eventually("all is known", async || *ports == self.ports()).await;
    }

    pub(crate) fn ports(&self) -> Ports {
        self.known.lock().unwrap().ports.clone()
    }

    /// Returns how many lists were completed.
    pub(crate) fn lists(&self) -> usize {
        self.known.lock().unwrap().lists
    }

    /// Returns the objects that became older, which none should.
    pub(crate) fn went_back(&self) -> Vec<String> {
        self.known.lock().unwrap().went_back.clone()
    }

    /// Returns the errors so far.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.known.lock().unwrap().errors.clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Known {
    fn learn(&mut self, event: Result<Event<Service>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.initial.clear(),
            Ok(Event::InitApply(service)) => {
                self.look(&service);
                self.initial.insert(service.name_any(), port(&service));
            }
            Ok(Event::InitDone) => {
                self.ports = std::mem::take(&mut self.initial);
                self.lists += 1;
            }
            Ok(Event::Apply(service)) => {
                self.look(&service);
                self.ports.insert(service.name_any(), port(&service));
            }
            Ok(Event::Delete(service)) => {
                self.ports.remove(&service.name_any());
            }
            Err(error) => self.errors.push(format!("{error:?}")),
        }
    }

    fn look(&mut self, service: &Service) {
        let version = service.resource_version().unwrap().parse().unwrap();
        let before = self.versions.insert(service.name_any(), version);
        if before.is_some_and(|before| before > version) {
            self.went_back.push(service.name_any());
        }
    }
}

/// Tries again soon, always.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(AGAIN)
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}
