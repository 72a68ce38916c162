//! The values of all metrics.
//!
//! Names, types, labels and buckets of `kubeproxy_…` and `rest_client_…` are
//! upstream's, so that dashboards and alerts continue to work. Metrics that
//! upstream lacks are called `vipline_…`, except
//! `kubeproxy_sync_rejected_objects`.

use std::collections::BTreeMap;
use std::time::Duration;

use proxy_core::{CleanupReport, Family, FamilyReport, Mode, RuleCount};
use vipline_service_model::{Counts, Kind, NoLocalEndpoints, Store, Timestamp};

use daemon::metrics::Histogram;
use daemon::metrics::{Page, float};
use requests::Requests;

mod page;

pub(super) mod requests;

/// Buckets from 1 ms, each twice the previous one.
const SYNC: [f64; 15] = doubled(0.001);

/// Buckets from 100 µs, each twice the previous one.
const EVENT_TO_KERNEL: [f64; 20] = doubled(0.0001);

/// Buckets for edits of a sync: powers of four.
const EDITS: [f64; 11] = [
    0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0,
];

/// Upstream's buckets for the programming latency.
const PROGRAMMING: [f64; 80] = programming();

/// The kinds of objects that the proxy reads.
const KINDS: [Kind; 4] = [
    Kind::EndpointSlice,
    Kind::Node,
    Kind::Service,
    Kind::ServiceCidr,
];

/// Maximum number of trigger times that are kept while syncs fail.
const MAX_TRIGGERS: usize = 4096;

/// A health probe.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Probe {
    /// `/healthz`, for load balancers.
    Healthz,
    /// `/livez`, for liveness probes.
    Livez,
}

/// The values of all metrics.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    /// The mode. `None` is mode kernelspace.
    pub(super) mode: Option<Mode>,
    pub(super) families: BTreeMap<Family, FamilyMetrics>,
    pub(super) counts: Counts,
    /// Number of addresses that several Services claim.
    pub(super) contested: usize,
    /// Number of left out fields and parts of objects.
    pub(super) object_problems: BTreeMap<Kind, usize>,
    pub(super) requests: Requests,
    healthz: ProbeCounts,
    livez: ProbeCounts,
}

/// The values of one IP family.
#[derive(Clone, Debug)]
pub(super) struct FamilyMetrics {
    pub(super) last_queued: Timestamp,
    last_synced: Option<Timestamp>,
    sync: Histogram,
    sync_full: Histogram,
    sync_partial: Histogram,
    programming: Histogram,
    reaction: Histogram,
    edits: Histogram,
    without_local: Option<NoLocalEndpoints>,
    objects: Option<usize>,
    /// Number of objects that the kernel rejects.
    rejected: usize,
    /// Number of rules per table, in modes with rules per Service.
    rules: Vec<RuleCount>,
    failures: u64,
    /// Number of failures of partial syncs. Included in `failures`.
    partial_failures: u64,
    drift: u64,
    /// Number of objects whose repairs are delayed, because another program undoes them.
    repair_conflicts: usize,
    /// Duration of searches for stale flows.
    searches: Histogram,
    /// Number of deleted stale flows.
    stale_flows: u64,
    /// Whether the kernel's state is unknown, so that the next sync begins with
    /// a dump.
    is_unknown: bool,
    /// Times of changes that are not in the kernel yet.
    triggers: Vec<Timestamp>,
}

/// Number of responses by result.
#[derive(Clone, Debug, Default)]
struct ProbeCounts {
    good: u64,
    bad: u64,
}

/// Times of a sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync {
    /// Duration.
    pub(super) took: Duration,
    /// Time from the first change to the end of the sync, if a change was
    /// pending.
    pub(super) waited: Option<Duration>,
    /// Time of the end.
    pub(super) ended: Timestamp,
}

impl Metrics {
    /// Creates the values of a starting proxy.
    pub(super) fn new(mode: Option<Mode>, families: &[Family], now: Timestamp) -> Self {
        let families = families.iter();
        Self {
            mode,
            families: families
                .map(|&family| (family, FamilyMetrics::new(now)))
                .collect(),
            counts: Counts::default(),
            contested: 0,
            object_problems: KINDS.map(|kind| (kind, 0)).into(),
            requests: Requests::default(),
            healthz: ProbeCounts::default(),
            livez: ProbeCounts::default(),
        }
    }

    /// Records the result of a sync in one family.
    pub(super) fn synced(&mut self, store: &Store, done: &FamilyReport, sync: Sync) {
        let Some(family) = self.families.get_mut(&done.family) else {
            return;
        };
        let causes = store.changes().trigger_times.iter();
        let causes = causes.flat_map(|(_, causes)| causes);
        let causes = causes.filter(|&&(of, _)| of == done.family);
        let room = MAX_TRIGGERS.saturating_sub(family.triggers.len());
        family.triggers.extend(causes.map(|&(_, at)| at).take(room));
        family.synced(done, sync);
        if done.outcome.is_ok() {
            family.without_local = Some(match self.mode {
                // Upstream counts Services in mode ipvs, and ports in the other
                // modes.
                Some(Mode::Ipvs) => store.services_without_local_endpoints(done.family),
                _ => store.ports_without_local_endpoints(done.family),
            });
        }
    }

    /// Records the number of objects of a family whose repairs are delayed.
    pub(super) fn set_repair_conflicts(&mut self, family: Family, count: usize) {
        if let Some(family) = self.families.get_mut(&family) {
            family.repair_conflicts = count;
        }
    }

    /// Counts a response to a health probe.
    pub(super) fn probed(&mut self, probe: Probe, code: u16) {
        let answers = match probe {
            Probe::Healthz => &mut self.healthz,
            Probe::Livez => &mut self.livez,
        };
        match code {
            200 => answers.good += 1,
            _ => answers.bad += 1,
        }
    }

    /// Creates the page, with the given staleness per kind.
    pub(super) fn page(&self, staleness: impl Iterator<Item = (Kind, Duration)>) -> Page {
        let mut page = Page::default();
        self.add_to(&mut page);
        page::add_staleness(&mut page, staleness);
        page::add_object_problems(&mut page, &self.object_problems);
        page
    }
}

impl FamilyMetrics {
    fn new(now: Timestamp) -> Self {
        Self {
            last_queued: now,
            last_synced: None,
            sync: Histogram::new(&SYNC),
            sync_full: Histogram::new(&SYNC),
            sync_partial: Histogram::new(&SYNC),
            programming: Histogram::new(&PROGRAMMING),
            reaction: Histogram::new(&EVENT_TO_KERNEL),
            edits: Histogram::new(&EDITS),
            without_local: None,
            objects: None,
            rejected: 0,
            rules: Vec::new(),
            failures: 0,
            partial_failures: 0,
            drift: 0,
            repair_conflicts: 0,
            searches: Histogram::new(&SYNC),
            stale_flows: 0,
            is_unknown: true,
            triggers: Vec::new(),
        }
    }

    fn synced(&mut self, done: &FamilyReport, sync: Sync) {
        let outcome = done.outcome.as_ref();
        // After an error it is unknown whether a dump came before.
        let unknown = self.is_unknown || done.drift.is_some();
        let is_full = outcome.map_or(unknown, |outcome| outcome.dumped);
        self.is_unknown = outcome.is_err();
        self.sync.observe_time(sync.took);
        match is_full {
            true => self.sync_full.observe_time(sync.took),
            false => self.sync_partial.observe_time(sync.took),
        }
        let Ok(outcome) = outcome else {
            self.failures += 1;
            self.partial_failures += u64::from(done.was_state_known);
            return;
        };
        self.last_synced = Some(sync.ended);
        self.objects = Some(outcome.objects);
        self.rejected = outcome.rejected;
        self.rules.clone_from(&outcome.rules);
        self.edits.observe(float(outcome.edits));
        if let Some(waited) = sync.waited {
            self.reaction.observe_time(waited);
        }
        for at in self.triggers.drain(..) {
            let passed = page::seconds(sync.ended) - page::seconds(at);
            self.programming.observe(passed.max(0.0));
        }
        // Nothing is repaired while all changed objects wait.
        let is_repaired = outcome.edits > 0 || outcome.waiting == 0;
        if let Some(drift) = done.drift.as_ref().filter(|_| is_repaired) {
            self.drift += drift.changes.max(1) as u64;
        }
        if let Some(Ok(cleaned)) = &done.cleanup {
            self.searched(cleaned);
        }
    }

    /// Records a search for stale flows. As in upstream, failed searches are not counted.
    pub(super) fn searched(&mut self, cleaned: &CleanupReport) {
        self.searches
            .observe_time(cleaned.duration.unwrap_or_default());
        self.stale_flows += cleaned.deleted as u64;
    }
}

/// Returns bounds that start at `first` and double.
const fn doubled<const N: usize>(first: f64) -> [f64; N] {
    let mut bounds = [first; N];
    let mut index = 1;
    while index < N {
        bounds[index] = bounds[index - 1] * 2.0;
        index += 1;
    }
    bounds
}

/// Returns 0.25, 0.5, every second to 1 min, every 5 s to 2 min and every 30 s
/// to 5 min.
const fn programming() -> [f64; 80] {
    let mut bounds = [0.25; 80];
    bounds[1] = 0.5;
    let mut index = 2;
    let mut bound = 1.0;
    while index < bounds.len() {
        bounds[index] = bound;
        index += 1;
        bound += match bound {
            ..60.0 => 1.0,
            ..120.0 => 5.0,
            _ => 30.0,
        };
    }
    bounds
}
