//! Searches for stale flows.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use vipline_conntrack::{Error, Flow};
use vipline_service_model::Family;

use crate::served::Served;
use crate::targets::Targets;
use crate::{CleanupReport, Flows};

/// Access to the tracked flows, shared by a cleanup and its search.
pub(crate) type SharedFlows = Arc<Mutex<Box<dyn Flows>>>;

/// A search for stale flows, which a thread of the caller may run.
///
/// Created by [`Cleanup::take`](crate::Cleanup::take), which accepts changes and commits while
/// the search runs.
#[must_use = "the cleanup creates no other search before this one is finished"]
pub struct FlowSearch {
    pub(crate) targets: Vec<(Family, Targets)>,
    pub(crate) served: Arc<RwLock<Served>>,
    pub(crate) flows: SharedFlows,
    pub(crate) clock: Option<fn() -> Duration>,
}

/// Result of a [`FlowSearch`] for [`Cleanup::finish`](crate::Cleanup::finish).
#[derive(Debug)]
#[must_use = "the cleanup creates no other search before it has the result"]
pub struct FinishedFlowSearch {
    pub(crate) families: Vec<(Family, Targets, Result<CleanupReport, Error>)>,
}

impl FlowSearch {
    /// Finds and deletes stale flows. Blocks until the kernel has replied.
    pub fn run(self) -> FinishedFlowSearch {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let families = self.targets.into_iter().map(|(family, targets)| {
            let began = self.clock.map(|clock| clock());
            let cleaned = clean(family, &targets, &self.served, &mut **flows);
            let duration = self.clock.zip(began).map(|(clock, began)| clock() - began);
            let cleaned = cleaned.map(|report| CleanupReport { duration, ..report });
            (family, targets, cleaned)
        });
        FinishedFlowSearch {
            families: families.collect(),
        }
    }
}

impl fmt::Debug for FlowSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets = &self.targets;
        f.debug_struct("FlowSearch")
            .field("targets", targets)
            .finish_non_exhaustive()
    }
}

/// Deletes the stale flows of a family.
fn clean(
    family: Family,
    targets: &Targets,
    served: &RwLock<Served>,
    flows: &mut dyn Flows,
) -> Result<CleanupReport, Error> {
    let mut keys = Vec::new();
    let mut report = find(family, targets, served, flows, |flow| keys.push(flow.key()))?;
    if !keys.is_empty() {
        report.deleted = flows.delete(&keys)?;
    }
    Ok(report)
}

/// Calls `each` for every stale flow of a family.
///
/// Each flow is compared with the endpoints at that moment, so a search that takes long
/// deletes no flow of an endpoint that meanwhile returned.
pub(crate) fn find(
    family: Family,
    targets: &Targets,
    served: &RwLock<Served>,
    flows: &mut dyn Flows,
    mut each: impl FnMut(Flow),
) -> Result<CleanupReport, Error> {
    let read = || served.read().unwrap_or_else(PoisonError::into_inner);
    let protocols = read().protocols(family);
    let mut report = CleanupReport {
        is_complete: true,
        ..CleanupReport::default()
    };
    for dump in targets.dumps(family, &protocols, || flows.count())? {
        report.dumps += 1;
        report.is_complete &= flows.dump(&dump.filter, &mut |flow| {
            report.checked += 1;
            if dump.checks(&flow) && read().is_stale(&flow) {
                each(flow);
            }
        })?;
    }
    Ok(report)
}
