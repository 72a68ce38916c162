//! What the engine does, for those who watch it: health and metrics.
//!
//! [`Telemetry`] is a handle that the engine's thread reports to, and that HTTP
//! answers are made from.
//! Whoever reports waits for nobody but the answer that is being written.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proxy_core::health::{Answer, Health, LocalEndpoints};
use proxy_core::{Due, Engine, Family, Mode, RejectedObject, Report};
use tokio::sync::watch;
use vipline_service_model::{Kind, NodeView, ObjectName, Timestamp};

use crate::config::Gates;
use exposition::Page;
use metrics::{Metrics, Sync};

pub use exposition::CONTENT_TYPE;
pub use metrics::requests::RequestEvent;

mod exposition;

mod histogram;

mod metrics;

mod process;

mod counters;

/// How many sync periods something may wait for a sync.
const PATIENCE: u32 = 2;

/// What is known of the engine; cheap to clone.
#[derive(Clone, Debug)]
pub struct Telemetry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// Counts syncs.
    syncs: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    health: Health,
    metrics: Metrics,
    contacts: BTreeMap<Kind, Contact>,
    node: Arc<NodeView>,
    rejected: Vec<(Family, Arc<RejectedObject>)>,
}

/// Whether all changes of a kind of object are heard of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Contact {
    /// They are.
    InStep,
    /// They have not been since a time.
    LostSince(Instant),
}

/// Which health is asked for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Probe {
    /// `/healthz`, for load balancers.
    Healthz,
    /// `/livez`, for those who would restart the proxy.
    Livez,
}

/// Whether the proxy's own health counts when endpoints are asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judged {
    /// It does.
    Really,
    /// Nobody asks for it: it is taken to be good.
    Healthy,
}

impl Telemetry {
    /// Returns the telemetry of a proxy that begins now.
    pub fn new(mode: Mode, families: &[Family], sync_period: Duration) -> Self {
        let clock = clock();
        let mut health = Health::new(sync_period.saturating_mul(PATIENCE));
        for &family in families {
            health.updated(family, clock);
        }
        let state = State {
            health,
            metrics: Metrics::new(mode, families, clock),
            contacts: BTreeMap::new(),
            node: Arc::default(),
            rejected: Vec::new(),
        };
        Self(Arc::new(Shared {
            start: Instant::now(),
            syncs: watch::Sender::new(0),
            state: Mutex::new(state),
        }))
    }

    /// Takes note that the engine was told something at `now`; to be called
    /// after every [`Engine::apply`], or once after several.
    pub fn applied(&self, engine: &Engine, now: Instant) {
        {
            let mut state = self.state();
            state.see_node(engine);
            state.metrics.counts = engine.store().counts();
        }
        if engine.is_queued() {
            self.queued(now);
        }
    }

    /// Takes note that a sync is due since `now`, unless one was due before.
    pub fn queued(&self, now: Instant) {
        let now = self.since_start(now);
        let clock = clock();
        let State {
            health, metrics, ..
        } = &mut *self.state();
        for (&family, metrics) in &mut metrics.families {
            health.queued(family, now);
            metrics.last_queued = clock;
        }
    }

    /// Takes note of a sync; to be called after every [`Engine::poll`] that
    /// returned a report, failed ones too.
    pub fn synced(&self, engine: &Engine, report: &Report, began: Instant, ended: Instant) {
        let (began, ended) = (self.since_start(began), self.since_start(ended));
        let clock = clock();
        let rejected = engine.rejected_objects();
        let mut state = self.state();
        state.see_node(engine);
        state.rejected = rejected;
        let State {
            health, metrics, ..
        } = &mut *state;
        // The removal of unused objects commits no change that waits.
        let still_waits = report.due == Due::Unused && engine.is_queued();
        for done in &report.families {
            let family = done.family;
            let waited = health.waits_since(family).filter(|_| !still_waits);
            let sync = Sync {
                took: ended.saturating_sub(began),
                waited: waited.map(|since| ended.saturating_sub(since)),
                ended: clock,
            };
            metrics.synced(engine.store(), done, sync);
            if done.outcome.is_ok() && still_waits {
                continue;
            }
            if done.outcome.is_ok() {
                health.updated(family, clock);
                health.set_services(family, services(engine, family));
            } else {
                // What it was about waits, though nobody may have asked for it.
                health.queued(family, began);
            }
        }
        metrics.counts = engine.store().counts();
        metrics.contested = engine.contested();
        self.0.syncs.send_modify(|syncs| *syncs += 1);
    }

    /// Takes note of whether changes of a kind of object are heard of.
    pub fn source_contact(&self, kind: Kind, contact: Contact) {
        self.state().contacts.insert(kind, contact);
    }

    /// Counts parts of objects of a kind that were left out.
    pub fn object_problems(&self, kind: Kind, count: usize) {
        let mut state = self.state();
        let problems = state.metrics.object_problems.entry(kind).or_default();
        *problems = problems.saturating_add(count);
    }

    /// Takes note of what happened to a request with this method to the API
    /// server at `host`.
    pub fn record_request(&self, host: &str, method: &str, what: RequestEvent) {
        self.state().metrics.requests.note(host, method, what);
    }

    /// Returns the answer to a question about health, and counts it.
    pub fn probe(&self, probe: Probe) -> Answer {
        let now = self.since_start(Instant::now());
        let clock = clock();
        let State {
            health, metrics, ..
        } = &mut *self.state();
        let answer = match probe {
            Probe::Healthz => health.healthz(now, clock),
            Probe::Livez => health.livez(now, clock),
        };
        metrics.probed(probe, answer.code);
        answer
    }

    /// Returns the answer to a question about a Service's endpoints here.
    pub fn service(&self, family: Family, name: &ObjectName, judged: Judged) -> Answer {
        let now = self.since_start(Instant::now());
        let health = &self.state().health;
        let is_healthy = judged == Judged::Healthy || health.is_healthy(now);
        health.service(family, name, is_healthy)
    }

    /// Returns the Services that load balancers ask about, and on which port.
    pub fn services(&self) -> Vec<((Family, ObjectName), u16)> {
        let health = &self.state().health;
        let services = health.services();
        services
            .map(|(family, name, port)| ((family, name.clone()), port))
            .collect()
    }

    /// Returns what changes after each sync.
    pub fn syncs(&self) -> watch::Receiver<u64> {
        self.0.syncs.subscribe()
    }

    /// Returns this node, as far as it is known.
    pub fn node(&self) -> Arc<NodeView> {
        Arc::clone(&self.state().node)
    }

    /// Returns the objects that the kernel rejected at the last sync.
    pub fn rejected(&self) -> Vec<(Family, Arc<RejectedObject>)> {
        self.state().rejected.clone()
    }

    /// Returns the page that Prometheus reads; `gates` are shown on it.
    pub fn metrics(&self, gates: &Gates) -> String {
        let mut page = self.values();
        if self.state().metrics.mode == Mode::Iptables {
            counters::add_to(&mut page);
        }
        process::add_to(&mut page);
        process::add_gates(&mut page, gates);
        page.finish()
    }

    fn values(&self) -> Page {
        let now = Instant::now();
        let State {
            metrics, contacts, ..
        } = &*self.state();
        let staleness = contacts.iter().map(|(&kind, contact)| match *contact {
            Contact::InStep => (kind, Duration::ZERO),
            Contact::LostSince(at) => (kind, now.saturating_duration_since(at)),
        });
        metrics.page(staleness)
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.0.start)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left half done is whole again after the next sync.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn see_node(&mut self, engine: &Engine) {
        self.node = engine.store().node();
        self.health.set_eligible(self.node.eligible);
    }
}

/// Returns what load balancers are told of a family's Services.
fn services(engine: &Engine, family: Family) -> BTreeMap<ObjectName, LocalEndpoints> {
    let store = engine.store();
    let mut services = BTreeMap::new();
    for (name, check) in store.health_checks() {
        if store
            .ports_of(name)
            .iter()
            .any(|port| port.family == family)
        {
            let local = LocalEndpoints {
                node_port: check.node_port,
                count: check.local_ready(family),
            };
            services.insert(name.clone(), local);
        }
    }
    services
}

/// Returns a time that never goes back, counted from when it was first asked for.
pub fn stopwatch() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// Returns the time of day.
pub fn clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        nanos: since_epoch.subsec_nanos(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
