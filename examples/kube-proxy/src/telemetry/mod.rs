//! Health and metrics of the engine.
//!
//! [`Telemetry`] is a handle. The engine's thread reports to it, and HTTP
//! servers read it. A report waits at most for one response that is being
//! created.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proxy_core::health::{Health, HttpResponse, LocalEndpoints};
use proxy_core::{CleanupReport, Engine, Error, Family, Mode, Report, Trigger};
use tokio::sync::watch;
use tracing::{debug, info, warn};
use vipline_kube_source::api::{self, Contact, Observer, RequestEvent, Severity};
use vipline_service_model::{Kind, NodeView, ObjectName, Timestamp};

use crate::config::Gates;
use crate::rejectedz::Unserved;
use daemon::log_limit::LineLimit;
use daemon::metrics::Page;
use metrics::{Metrics, Sync};

pub use daemon::metrics::CONTENT_TYPE;
pub use metrics::Probe;

mod metrics;

mod build;

#[cfg(target_os = "linux")]
mod counters;

/// Number of sync periods that a change may be pending before the proxy is
/// unhealthy.
const MAX_PENDING_PERIODS: u32 = 2;

/// State of the engine for health and metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Telemetry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// Number of syncs.
    syncs: watch::Sender<u64>,
    /// Limit of the lines about objects of the API that cannot be read.
    unreadable: LineLimit,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    health: Health,
    metrics: Metrics,
    contacts: BTreeMap<Kind, Contact>,
    node: Arc<NodeView>,
    unserved: Unserved,
}

/// Whether health checks of Services include the health of the proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxyHealth {
    /// They include it.
    Checked,
    /// They do not, because no health server exists: the proxy counts as
    /// healthy.
    Assumed,
}

impl Telemetry {
    /// Creates the telemetry of a starting proxy. No mode is mode kernelspace.
    pub fn new(mode: Option<Mode>, families: &[Family], sync_period: Duration) -> Self {
        let clock = clock();
        let mut health = Health::new(sync_period.saturating_mul(MAX_PENDING_PERIODS));
        for &family in families {
            health.updated(family, clock);
        }
        let state = State {
            health,
            metrics: Metrics::new(mode, families, clock),
            contacts: BTreeMap::new(),
            node: Arc::default(),
            unserved: Unserved::default(),
        };
        Self(Arc::new(Shared {
            start: Instant::now(),
            syncs: watch::Sender::new(0),
            unreadable: LineLimit::new("unreadable objects"),
            state: Mutex::new(state),
        }))
    }

    /// Records changes of the engine's objects at `now`. Must be called after
    /// [`Engine::apply`], or once after several calls.
    pub fn applied(&self, engine: &Engine, now: Instant) {
        {
            let mut state = self.state();
            state.update_node(engine);
            state.metrics.counts = engine.store().counts();
        }
        if engine.is_queued() {
            self.queued(now);
        }
    }

    /// Records that a change is pending since `now`, unless one is pending
    /// already.
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

    /// Records a sync. Must be called after every [`Engine::poll`] that
    /// returned a report, including failed syncs.
    pub fn synced(&self, engine: &Engine, report: &Report, began: Instant, ended: Instant) {
        let (began, ended) = (self.since_start(began), self.since_start(ended));
        let clock = clock();
        let over_limit = engine.store().over_limit();
        let unserved = Unserved {
            rejected: engine.rejected_objects(),
            over_limit: over_limit
                .map(|(name, it)| (name.clone(), it.clone()))
                .collect(),
        };
        let mut state = self.state();
        state.update_node(engine);
        state.unserved = unserved;
        let State {
            health, metrics, ..
        } = &mut *state;
        // The removal of unused objects commits no pending change.
        let still_waits = report.trigger == Trigger::Unused && engine.is_queued();
        for done in &report.families {
            let family = done.family;
            let waited = health.pending_since(family).filter(|_| !still_waits);
            let sync = Sync {
                took: ended.saturating_sub(began),
                waited: waited.map(|since| ended.saturating_sub(since)),
                ended: clock,
            };
            metrics.synced(engine.store(), done, sync);
            metrics.set_repair_conflicts(family, engine.repair_conflicts(family));
            if done.outcome.is_ok() && still_waits {
                continue;
            }
            if done.outcome.is_ok() {
                health.updated(family, clock);
                health.set_services(family, services(engine, family));
            } else {
                // The change stays pending, even if it was not queued before.
                health.queued(family, began);
            }
        }
        metrics.counts = engine.store().counts();
        metrics.contested = engine.contested_count();
        self.0.syncs.send_modify(|syncs| *syncs += 1);
    }

    /// Records a search for stale flows that ran outside of a sync.
    pub fn searched(&self, family: Family, result: &Result<CleanupReport, Error>) {
        if let (Ok(report), Some(metrics)) =
            (result, self.state().metrics.families.get_mut(&family))
        {
            metrics.searched(report);
        }
    }

    /// Counts an object of which a part cannot be used.
    pub fn object_problem(&self, kind: Kind) {
        let mut state = self.state();
        let problems = state.metrics.object_problems.entry(kind).or_default();
        *problems = problems.saturating_add(1);
    }

    /// Returns and counts the response to a health probe.
    pub fn probe(&self, probe: Probe) -> HttpResponse {
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

    /// Returns the response to a health check of a Service.
    pub fn service(
        &self,
        family: Family,
        name: &ObjectName,
        proxy_health: ProxyHealth,
    ) -> HttpResponse {
        let now = self.since_start(Instant::now());
        let health = &self.state().health;
        let is_healthy = proxy_health == ProxyHealth::Assumed || health.is_healthy(now);
        health.service(family, name, is_healthy)
    }

    /// Returns all health check node ports with their Services.
    pub fn services(&self) -> Vec<((Family, ObjectName), u16)> {
        let health = &self.state().health;
        let services = health.services();
        services
            .map(|(family, name, port)| ((family, name.clone()), port))
            .collect()
    }

    /// Returns a receiver that is notified after each sync.
    pub fn syncs(&self) -> watch::Receiver<u64> {
        self.0.syncs.subscribe()
    }

    /// Returns this node.
    pub fn node(&self) -> Arc<NodeView> {
        Arc::clone(&self.state().node)
    }

    /// Returns what is not served as of the last sync.
    pub fn unserved(&self) -> Unserved {
        self.state().unserved.clone()
    }

    /// Returns the page of all metrics, including the feature `gates`.
    pub fn metrics(&self, gates: &Gates) -> String {
        let mut page = self.values();
        #[cfg(target_os = "linux")]
        {
            if self.state().metrics.mode == Some(Mode::Iptables) {
                counters::add_to(&mut page);
            }
            daemon::metrics::add_process(&mut page);
        }
        build::add_to(&mut page);
        build::add_gates(&mut page, gates);
        page.finish()
    }

    fn values(&self) -> Page {
        let now = Instant::now();
        // A copy: while a page is written, probes and syncs must not wait for the lock.
        let (metrics, contacts) = {
            let state = self.state();
            (state.metrics.clone(), state.contacts.clone())
        };
        let staleness = contacts.iter().map(|(&kind, contact)| match *contact {
            Contact::InSync => (kind, Duration::ZERO),
            Contact::LostSince(at) => (kind, now.saturating_duration_since(at)),
        });
        metrics.page(staleness)
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.0.start)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic, the next sync makes the state consistent again.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn update_node(&mut self, engine: &Engine) {
        self.node = engine.store().node();
        self.health.set_eligible(self.node.eligible);
    }
}

/// Returns the local endpoints of all Services in a family.
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

/// Returns a monotonic time since the first call.
pub fn stopwatch() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// Returns the wall-clock time.
pub fn clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        nanos: since_epoch.subsec_nanos(),
    }
}

/// Metrics and log lines of the API source.
impl Observer for Telemetry {
    fn request(&self, host: &str, method: &str, event: RequestEvent) {
        self.state().metrics.requests.record(host, method, event);
    }

    fn contact(&self, kind: Kind, contact: Contact) {
        self.state().contacts.insert(kind, contact);
    }

    fn report(&self, report: &api::Report) {
        if let Some(kind) = report.object_problem() {
            self.object_problem(kind);
            if !self.0.unreadable.admits() {
                return;
            }
        }
        match report.severity() {
            Severity::Warning => warn!("{report}"),
            Severity::Info => info!("{report}"),
            Severity::Debug => debug!("{report}"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
