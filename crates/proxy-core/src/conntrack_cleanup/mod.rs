//! Deletion of stale conntrack entries after a sync.
//!
//! A change that can make flows stale records which: those of a frontend, or those of an
//! endpoint that left. A search after the commit dumps only these flows. A failed search
//! is repeated with the same flows.

mod served;

mod targets;

mod pace;

mod search;

#[cfg(target_os = "linux")]
mod kernel;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use vipline_conntrack::{Filter, Flow, Key};
use vipline_service_model::{Family, PortChange};

use crate::{Context, Error};

#[cfg(target_os = "linux")]
pub(crate) use kernel::Kernel;
use pace::Pace;
use search::SharedFlows;
pub use search::{FinishedFlowSearch, FlowSearch};
use served::Served;
use targets::Targets;

/// Result of a search for stale flows in one family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// Number of deleted flows.
    pub deleted: usize,
    /// Number of dumps of the conntrack table.
    pub dumps: usize,
    /// Number of flows that the dumps returned.
    pub checked: usize,
    /// Whether all flows were checked. If not, the search is repeated.
    pub is_complete: bool,
    /// Duration of the search, if a [clock](crate::Engine::set_flow_cleanup_clock) is
    /// set.
    pub duration: Option<Duration>,
}

/// Access to tracked flows.
pub(crate) trait Flows: Send {
    /// Returns the number of tracked flows.
    fn count(&mut self) -> Result<usize, Error>;

    /// Calls `each` for every flow that matches the filter. Returns whether the dump was
    /// complete.
    fn dump(&mut self, filter: &Filter, each: &mut dyn FnMut(Flow)) -> Result<bool, Error>;

    /// Deletes flows and returns the number of deleted flows. Flows that have already
    /// ended do not count.
    fn delete(&mut self, keys: &[Key]) -> Result<usize, Error>;
}

/// Schedules searches for stale flows.
pub(crate) struct Cleanup {
    /// Shared with the search, which compares flows with the current endpoints.
    served: Arc<RwLock<Served>>,
    flows: SharedFlows,
    /// Flows to search next.
    due: BTreeMap<Family, Targets>,
    clock: Option<fn() -> Duration>,
    /// When the caller runs a search; `None` if each sync runs its own.
    pace: Option<Pace>,
}

impl Cleanup {
    /// Creates a cleanup of tracked flows.
    pub(crate) fn new(flows: impl Flows + 'static) -> Self {
        Self {
            served: Arc::default(),
            flows: Arc::new(Mutex::new(Box::new(flows))),
            due: BTreeMap::new(),
            clock: None,
            pace: None,
        }
    }

    /// Sets the clock that measures searches.
    pub(crate) fn set_clock(&mut self, clock: fn() -> Duration) {
        self.clock = Some(clock);
    }

    /// Leaves searches to the caller.
    pub(crate) fn defer(&mut self) {
        self.pace.get_or_insert_default();
    }

    /// Records a changed service port.
    pub(crate) fn plan(&self, change: &PortChange) {
        let mut served = self.served();
        match &change.port {
            Some(port) => served.set(port),
            None => served.remove(&change.name, change.family),
        }
    }

    /// Sets the addresses on which node ports are served.
    pub(crate) fn set_context(&self, cx: &Context) {
        self.served().set_node(cx.family, cx.node_port_ips());
    }

    /// Records that the kernel has all changes of a family.
    ///
    /// Unless the caller runs searches, deletes the stale flows of the family. Returns
    /// `None` if no flow can be stale.
    pub(crate) fn committed(
        &mut self,
        family: Family,
        now: Duration,
    ) -> Option<Result<CleanupReport, Error>> {
        let changed = self.served().take_changed(family);
        let is_new = !changed.is_empty();
        let due = self.due.entry(family).or_default();
        due.extend(changed);
        if let Some(pace) = &mut self.pace {
            if is_new {
                pace.request(now);
            }
            return None;
        }
        let targets = std::mem::take(due);
        let search = self.search(vec![(family, targets)])?;
        self.finish(search.run()).pop().map(|(_, cleaned)| cleaned)
    }

    /// Returns whether the next sync must repeat a search.
    pub(crate) fn needs_sync(&self) -> bool {
        self.pace.is_none() && self.due.values().any(|due| !due.is_empty())
    }

    /// Returns a search that the caller must run, if one is due.
    pub(crate) fn take(&mut self, now: Duration) -> Option<FlowSearch> {
        let begins = self.pace.as_mut()?.begin(now);
        if !begins {
            return None;
        }
        let due = std::mem::take(&mut self.due);
        let search = self.search(due.into_iter().collect());
        if let (None, Some(pace)) = (&search, &mut self.pace) {
            pace.end(now);
        }
        search
    }

    /// Records the end of a search that the caller has run, and returns its results.
    /// A failed search is repeated after `retry`.
    pub(crate) fn finish_taken(
        &mut self,
        finished: FinishedFlowSearch,
        now: Duration,
        retry: Duration,
    ) -> Vec<(Family, Result<CleanupReport, Error>)> {
        let results = self.finish(finished);
        if let Some(pace) = &mut self.pace {
            pace.end(now);
            for (_, result) in &results {
                match result {
                    Ok(report) if report.is_complete => {}
                    Ok(_) => pace.request(now),
                    Err(_) => pace.retry(now.saturating_add(retry)),
                }
            }
        }
        results
    }

    /// Returns the time at which the caller must take the next search.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.pace.and_then(|pace| pace.next_deadline())
    }

    /// Returns all stale flows of a family. Waits for a running search.
    pub(crate) fn find(&self, family: Family) -> Result<Vec<Flow>, Error> {
        let mut found = Vec::new();
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let each = |flow| found.push(flow);
        search::find(family, &Targets::all(), &self.served, &mut **flows, each)?;
        Ok(found)
    }

    /// Returns a search of these flows; `None` if there are none.
    fn search(&self, mut targets: Vec<(Family, Targets)>) -> Option<FlowSearch> {
        targets.retain(|(_, targets)| !targets.is_empty());
        (!targets.is_empty()).then(|| FlowSearch {
            targets,
            served: Arc::clone(&self.served),
            flows: Arc::clone(&self.flows),
            clock: self.clock,
        })
    }

    /// Records the results of a search. Flows that were not all checked are due again.
    fn finish(
        &mut self,
        finished: FinishedFlowSearch,
    ) -> Vec<(Family, Result<CleanupReport, Error>)> {
        let mut results = Vec::new();
        for (family, searched, result) in finished.families {
            let due = self.due.entry(family).or_default();
            if result.as_ref().is_ok_and(|report| report.is_complete) {
                let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
                served.forget_removed(&searched, due);
            } else {
                due.extend(searched);
            }
            results.push((family, result));
        }
        results
    }

    fn served(&self) -> RwLockWriteGuard<'_, Served> {
        self.served.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
