//! Log lines and Events of a sync.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::log_limit::LineLimit;
use proxy_core::{Family, FamilyReport, MissingFeature, RepairConflictChange, Report, Trigger};
use tracing::{debug, info, warn};
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};

use crate::failure::chain;
use crate::logging::ROUTINE;
use crate::rejections;
use crate::setup::Setup;

/// Records the Event of a start.
pub(super) fn report_start(setup: &Setup) {
    setup.recorder.record(NewEvent {
        regarding: Regarding::Node,
        kind: EventType::Normal,
        reason: "Starting",
        action: "StartKubeProxy",
        text: String::new(),
    });
}

/// Logs syncs, and records their Events.
///
/// A healthy proxy writes nothing at the default verbosity: its syncs are
/// [routine](ROUTINE). What an operator must know is always logged: the first sync of a
/// family, failures, the first success after them, and repairs.
#[derive(Debug)]
pub(super) struct SyncReporter {
    /// Whether the last sync of a family succeeded; none before its first sync.
    succeeded: BTreeMap<Family, bool>,
    contested: LineLimit,
    lost: LineLimit,
    bound: LineLimit,
    missing: LineLimit,
    rejected: LineLimit,
}

impl Default for SyncReporter {
    fn default() -> Self {
        Self {
            succeeded: BTreeMap::new(),
            contested: LineLimit::new("contested addresses"),
            lost: LineLimit::new("Services without an address of theirs"),
            bound: LineLimit::new("external addresses of other machines"),
            missing: LineLimit::new("missing features"),
            rejected: LineLimit::new("Services with rejected objects"),
        }
    }
}

impl SyncReporter {
    /// Logs a sync, and records its Events.
    pub(super) fn report(&mut self, setup: &mut Setup, report: &Report, took: Duration) {
        for contested in &report.contested {
            if self.contested.admits() {
                warn!("{contested}");
            }
        }
        for lost in &report.lost_addresses {
            // Without an Event, this line is the only trace of the loss.
            if self.lost.admits() {
                info!("{lost}");
            }
            setup.recorder.record(NewEvent {
                regarding: Regarding::Service(lost.service.clone()),
                kind: EventType::Warning,
                reason: "AddressContested",
                action: "ClaimAddress",
                text: lost.to_string(),
            });
        }
        let bound = setup.bound_addresses.as_mut();
        for event in bound.map_or_else(Vec::new, |it| it.events(&setup.engine)) {
            if self.bound.admits() {
                warn!("{}", event.text);
            }
            setup.recorder.record(event);
        }
        for feature in &report.missing_features {
            match feature {
                _ if !self.missing.admits() => {}
                MissingFeature::Scheduler(scheduler) => {
                    warn!(%scheduler, "IPVS scheduler not available in the kernel; its Services use the default scheduler");
                }
                _ => warn!(%feature, "feature not available in the kernel"),
            }
        }
        for done in &report.families {
            rejections::log(done, &self.rejected);
            let exists = |name: &_| !setup.engine.store().ports_of(name).is_empty();
            let events = rejections::events(done, exists).into_iter();
            events.for_each(|event| setup.recorder.record(event));
            self.log(report, done, took);
        }
    }

    /// Logs the sync of a family.
    fn log(&mut self, report: &Report, done: &FamilyReport, took: Duration) {
        let family = done.family;
        let before = self.succeeded.insert(family, done.outcome.is_ok());
        match &done.repair_conflict {
            Some(RepairConflictChange::Began(conflict)) => warn!(
                %family,
                "{conflict}: from now on these wait 1s to 60s for their repair until that program stops; stop it, or this proxy, if both program Services"
            ),
            Some(RepairConflictChange::Ended { processes }) => {
                let processes = processes.join(", ");
                info!(%family, %processes, "no other program undoes repairs any more; repairs are immediate again");
            }
            _ => {}
        }
        let outcome = match &done.outcome {
            Ok(outcome) => outcome,
            Err(error) => return warn!(%family, "sync failed; retrying: {}", chain(error)),
        };
        let (edits, dumped) = (outcome.edits, outcome.dumped);
        if outcome.took_over {
            info!(%family, edits, duration = ?took, "took over the rules of another kube-proxy");
        } else if let Some(drift) = done
            .drift
            .as_ref()
            .filter(|_| edits == 0 && outcome.waiting > 0)
        {
            let waiting = outcome.waiting;
            info!(target: ROUTINE, %family, waiting, duration = ?took, "changes by another program are not repaired yet: {drift}");
        } else if let Some(drift) = &done.drift {
            warn!(%family, edits, duration = ?took, "repaired changes by another program: {drift}");
        } else if before.is_none() {
            info!(%family, edits, dumped, duration = ?took, "synced");
        } else if before == Some(false) {
            info!(%family, edits, dumped, duration = ?took, "synced again after a failure");
        } else if report.trigger == Trigger::Timer && dumped {
            // Without notifications this happens every period.
            match edits {
                0 => debug!(%family, duration = ?took, "periodic check found no difference"),
                _ => info!(%family, edits, duration = ?took, "periodic check repaired differences"),
            }
        } else {
            info!(target: ROUTINE, %family, edits, dumped, duration = ?took, "synced");
        }
    }
}
