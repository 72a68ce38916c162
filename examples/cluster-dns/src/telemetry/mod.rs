//! Health, readiness, metrics and the query log.
//!
//! - [`Counters`]: counts of one thread and one listener; [`Observation`]: a query with its
//!   response;
//! - [`QueryLog`]: one line per query, on demand;
//! - [`Telemetry`]: all counters and the state of the process;
//! - `pages`: the paths of the HTTP servers; `page`: the metrics.

mod counters;

mod page;

mod pages;

mod query_log;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use daemon::log_limit::LineLimit;
use vipline_kube_source::api::{Contact, Observer, Report, RequestEvent, Severity};
use vipline_service_dns::Zone;
use vipline_service_model::Kind;

use crate::forward::Forwarder;

pub use counters::{Counters, Observation, Origin, Transport, ZoneLabel};
pub use pages::{Servers, serve};
pub use query_log::{Entry as LogEntry, QueryLog};

/// Counters and state of the process.
#[derive(Debug)]
pub struct Telemetry {
    /// The zone, for its name and whether it is complete.
    zone: Arc<RwLock<Zone>>,
    forwarder: Option<Forwarder>,
    counters: Mutex<Vec<Listener>>,
    is_serving: AtomicBool,
    is_ending: AtomicBool,
    source: Source,
    /// Limit of the lines about objects of the API that cannot be read.
    unreadable: LineLimit,
    /// Connections beyond the limit.
    pub(crate) evicted_connections: AtomicU64,
    /// Queries without a place to wait for the forwarder.
    pub(crate) overload: AtomicU64,
}

/// Counters of one thread for one listener.
#[derive(Debug)]
struct Listener {
    /// Label `server`.
    name: String,
    counters: Arc<Counters>,
}

/// State of the source of objects.
#[derive(Debug, Default)]
struct Source {
    events: AtomicU64,
    problems: AtomicU64,
    /// Whether the watch of each kind is in sync. Empty with manifests.
    contacts: Mutex<BTreeMap<Kind, Contact>>,
}

impl Telemetry {
    /// Creates the telemetry of a zone and a forwarder.
    pub fn new(zone: Arc<RwLock<Zone>>, forwarder: Option<Forwarder>) -> Self {
        Self {
            zone,
            forwarder,
            counters: Mutex::default(),
            is_serving: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            source: Source::default(),
            unreadable: LineLimit::new("unreadable objects"),
            evicted_connections: AtomicU64::new(0),
            overload: AtomicU64::new(0),
        }
    }

    /// Creates counters of one thread for a listener.
    pub fn counters(&self, address: SocketAddr) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let listener = Listener {
            name: server_label(address),
            counters: Arc::clone(&counters),
        };
        self.listeners().push(listener);
        counters
    }

    /// Marks that all listeners are open.
    pub fn set_serving(&self) {
        self.is_serving.store(true, Ordering::Release);
    }

    /// Marks that the process ends soon: it is no longer ready.
    pub fn set_ending(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Counts an event of the source.
    pub fn count_event(&self) {
        self.source.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an object or a file with a problem.
    pub fn count_problem(&self) {
        self.source.problems.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the time since the watch of each kind was last in sync: zero while it is.
    fn staleness(&self, now: Instant) -> Vec<(Kind, Duration)> {
        let contacts = self.source.contacts.lock();
        let contacts = contacts.unwrap_or_else(PoisonError::into_inner);
        let staleness = contacts.iter().map(|(&kind, contact)| match *contact {
            Contact::InSync => (kind, Duration::ZERO),
            Contact::LostSince(at) => (kind, now.saturating_duration_since(at)),
        });
        staleness.collect()
    }

    /// Returns the reason why the process is not ready.
    pub fn unready_reason(&self) -> Option<&'static str> {
        if self.is_ending.load(Ordering::Acquire) {
            return Some("the process ends");
        }
        if !self.is_serving.load(Ordering::Acquire) {
            return Some("not all listeners are open");
        }
        let zone = self.zone.read().unwrap_or_else(PoisonError::into_inner);
        (!zone.is_synced()).then_some("the first list of objects is not complete")
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, Vec<Listener>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the label `server` as CoreDNS does: without a wildcard address.
fn server_label(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("dns://:{}", address.port()),
        false => format!("dns://{address}"),
    }
}

impl Observer for Telemetry {
    fn request(&self, _: &str, _: &str, _: RequestEvent) {}

    fn contact(&self, kind: Kind, contact: Contact) {
        let contacts = self.source.contacts.lock();
        let mut contacts = contacts.unwrap_or_else(PoisonError::into_inner);
        contacts.insert(kind, contact);
    }

    fn report(&self, report: &Report) {
        if report.object_problem().is_some() {
            self.count_problem();
            if !self.unreadable.admits() {
                return;
            }
        }
        if let Report::Unavailable {
            kind: Kind::Namespace,
            reason,
        } = report
        {
            tracing::warn!(
                "Namespaces cannot be listed: {reason}; only namespaces with Services exist until \
                 the ClusterRole permits to list and watch namespaces, as deploy/rbac.yaml does"
            );
            return;
        }
        match report.severity() {
            Severity::Debug => tracing::debug!("{report}"),
            Severity::Info => tracing::info!("{report}"),
            Severity::Warning => tracing::warn!("{report}"),
        }
    }
}

/// Returns seconds for a metric.
fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use vipline_service_dns::Options;
    use vipline_service_dns::service_model::Event;

    use super::*;

    #[test]
    fn the_process_is_ready_between_the_first_list_and_the_end() {
        let zone = Zone::new(Options::new("cluster.local".parse().unwrap()));
        let zone = Arc::new(RwLock::new(zone));
        let telemetry = Telemetry::new(Arc::clone(&zone), None);
        assert!(telemetry.unready_reason().unwrap().contains("listeners"));
        telemetry.set_serving();
        assert!(telemetry.unready_reason().unwrap().contains("first list"));
        zone.write().unwrap().apply(&Event::Synced);
        assert_eq!(telemetry.unready_reason(), None);
        telemetry.set_ending();
        assert!(telemetry.unready_reason().unwrap().contains("ends"));
    }

    #[test]
    fn the_label_of_a_wildcard_address_is_its_port() {
        for (address, label) in [
            ("0.0.0.0:53", "dns://:53"),
            ("[::]:53", "dns://:53"),
            ("169.254.20.10:53", "dns://169.254.20.10:53"),
            ("[fd00::1]:5353", "dns://[fd00::1]:5353"),
        ] {
            assert_eq!(server_label(address.parse().unwrap()), label);
        }
    }
}
