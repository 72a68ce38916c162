//! Log lines and Events of a sync.

use std::time::Duration;

use proxy_core::{MissingFeature, Report, Trigger};
use tracing::{debug, info, warn};
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};

use crate::failure::chain;
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

/// Logs a sync, and records its Events.
pub(super) fn report_sync(setup: &Setup, report: &Report, took: Duration) {
    for contested in &report.contested {
        warn!("{contested}");
    }
    for lost in &report.lost_addresses {
        // Without an Event, this line is the only trace of the loss.
        info!("{lost}");
        setup.recorder.record(NewEvent {
            regarding: Regarding::Service(lost.service.clone()),
            kind: EventType::Warning,
            reason: "AddressContested",
            action: "ClaimAddress",
            text: lost.to_string(),
        });
    }
    for feature in &report.missing_features {
        match feature {
            MissingFeature::Scheduler(scheduler) => {
                warn!(%scheduler, "IPVS scheduler not available in the kernel; its Services use the default scheduler");
            }
            _ => warn!(%feature, "feature not available in the kernel"),
        }
    }
    for done in &report.families {
        rejections::log(done);
        let exists = |name: &_| !setup.engine.store().ports_of(name).is_empty();
        let events = rejections::events(done, exists).into_iter();
        events.for_each(|event| setup.recorder.record(event));
        match &done.outcome {
            Ok(outcome) => {
                let (family, edits, dumped) = (done.family, outcome.edits, outcome.dumped);
                match &done.drift {
                    _ if outcome.took_over => {
                        info!(%family, edits, duration = ?took, "took over the rules of another kube-proxy");
                    }
                    // Without notifications this happens every period.
                    None if report.trigger == Trigger::Timer && edits == 0 => {
                        debug!(%family, duration = ?took, "periodic check found no difference");
                    }
                    None => info!(%family, edits, dumped, duration = ?took, "synced"),
                    Some(drift) => {
                        warn!(%family, edits, duration = ?took, "repaired changes by another program: {drift}");
                    }
                }
            }
            Err(error) => {
                let family = done.family;
                warn!(%family, "sync failed; retrying: {}", chain(error));
            }
        }
    }
}
