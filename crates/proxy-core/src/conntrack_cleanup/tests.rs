//! Tests of when searches run, and of failed searches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use vipline_conntrack::{Protocol, Tuple};
use vipline_reconcile::Memory;
use vipline_service_model::Event;

use super::*;
use crate::backend::nftables::Planner;
use crate::{Config, Engine, Report};

/// Result of a search.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    Interrupted,
    Failed,
}

/// Flows that are all stale, and the calls that were made.
#[derive(Clone, Default)]
struct Scripted {
    fates: Arc<Mutex<VecDeque<Fate>>>,
    deleted: Arc<Mutex<usize>>,
}

impl Flows for Scripted {
    fn find(&mut self, _: Family, _: &Served) -> Result<Found, Error> {
        let fate = self.fates.lock().unwrap().pop_front().unwrap_or(Fate::Fine);
        let (a, b) = (([10, 0, 0, 1].into(), 1), ([10, 96, 0, 1].into(), 53));
        let tuple = Tuple::ports(Protocol::UDP, a, b);
        match fate {
            Fate::Failed => Err(Error::NoKernel),
            _ => Ok(Found {
                flows: vec![Flow::new(tuple, tuple.inverted())],
                is_complete: matches!(fate, Fate::Fine),
            }),
        }
    }

    fn delete(&mut self, flows: &[Flow]) -> Result<usize, Error> {
        *self.deleted.lock().unwrap() += flows.len();
        Ok(flows.len())
    }
}

struct Stage {
    engine: Engine,
    flows: Scripted,
    now: Duration,
}

impl Stage {
    /// Creates an engine of one family whose first searches have these results.
    fn new(fates: &[Fate]) -> Self {
        let flows = Scripted::default();
        flows.fates.lock().unwrap().extend(fates);
        let config = Config {
            families: vec![Family::V4],
            ..Config::default()
        };
        let mut engine = Engine::with_kernels::<Planner, _>(config, |_| Memory::new());
        engine.cleanup = Some(Cleanup::new(flows.clone()));
        Self {
            engine,
            flows,
            now: Duration::ZERO,
        }
    }

    /// Adds a Service, which is a change.
    fn change(&mut self) {
        let text = r#"{"metadata": {"name": "dns", "namespace": "default"}, "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "ports": [{"port": 53, "protocol": "UDP"}]}}"#;
        let service: vipline_service_model::api::Service = serde_json::from_str(text).unwrap();
        self.engine.apply(service.into());
        self.engine.apply(Event::Synced);
    }

    fn after(&mut self, seconds: u64) -> Option<Report> {
        self.now += Duration::from_secs(seconds);
        self.engine.poll(self.now)
    }

    fn deleted(&self) -> usize {
        *self.flows.deleted.lock().unwrap()
    }
}

/// Returns the result of the search in a report; `None` without a search.
fn cleaned(report: Option<Report>) -> Option<Result<CleanupReport, Error>> {
    let families = report.into_iter().flat_map(|report| report.families);
    families.filter_map(|done| done.cleanup).next()
}

#[test]
fn a_change_is_followed_by_one_search() {
    let mut stage = Stage::new(&[]);
    assert!(stage.after(1).is_none());
    stage.change();
    let done = cleaned(stage.after(1)).unwrap().unwrap();
    assert_eq!((done.deleted, done.is_complete), (1, true));
    // No flow search without a change, even if the kernel is dumped.
    stage.engine.request_resync();
    let report = stage.after(10).or_else(|| stage.after(10));
    assert!(report.is_some() && cleaned(report).is_none());
    assert_eq!(stage.deleted(), 1);
}

#[test]
fn a_failed_or_interrupted_search_is_repeated() {
    let mut stage = Stage::new(&[Fate::Failed, Fate::Interrupted, Fate::Fine]);
    stage.change();
    assert!(cleaned(stage.after(1)).unwrap().is_err());
    // The search is retried after the retry interval, although no sync is due.
    assert!(stage.after(1).is_none());
    let done = cleaned(stage.after(30)).unwrap().unwrap();
    assert_eq!((done.deleted, done.is_complete), (1, false));
    assert!(stage.after(1).is_none());
    let done = cleaned(stage.after(30)).unwrap().unwrap();
    assert!(done.is_complete);
    assert!(stage.after(1).is_none() && stage.after(30).is_none());
    assert_eq!(stage.deleted(), 2);
}
