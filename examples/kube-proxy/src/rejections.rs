//! Logs and Events about objects that the kernel rejected.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::log_limit::LineLimit;
use proxy_core::{Engine, FamilyReport, RejectedObject};
use tracing::warn;
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};
use vipline_reconcile::Cause;
use vipline_service_model::{Counted, ObjectName};

/// Pause between two reminders of objects that stay rejected.
const REMINDER_PERIOD: Duration = Duration::from_secs(60 * 60);

/// Reminds of objects that stay rejected.
///
/// [`log`] reports a rejection once, and retries follow every 5 minutes without a word. A chain
/// that a rule of another program keeps in use may stay for weeks, and the line about it
/// is gone with the old log by then.
#[derive(Debug, Default)]
pub struct Reminder {
    /// Time of the next reminder, while objects are rejected.
    next: Option<Duration>,
}

impl Reminder {
    /// Logs a reminder after a sync, if it is due.
    pub fn synced(&mut self, engine: &Engine, now: Duration) {
        let families = engine.config().families.iter();
        let count = families.map(|&family| engine.rejected_count(family)).sum();
        if self.is_due(count, now)
            && let Some((family, first)) = engine.rejected_objects().first()
        {
            warn!(%family, objects = count, "objects are still rejected and retried every 5 minutes; /rejectedz lists all: {first}");
        }
    }

    fn is_due(&mut self, count: usize, now: Duration) -> bool {
        if count == 0 {
            self.next = None;
            return false;
        }
        let next = *self.next.get_or_insert(now + REMINDER_PERIOD);
        if now < next {
            return false;
        }
        self.next = Some(now + REMINDER_PERIOD);
        true
    }
}

/// Logs new rejections: one warning per Service, and one for objects without a
/// Service.
///
/// A Service with many rejected objects does not hide other Services.
pub fn log(done: &FamilyReport, limit: &LineLimit) {
    let family = done.family;
    for objects in by_service(&done.rejected).values() {
        if limit.admits() {
            let text = text(objects);
            warn!(%family, "object rejected; retrying with backoff: {text}");
        }
    }
}

/// Returns one Event for each Service with new rejections.
///
/// Services that no longer exist are left out, and Services whose objects were
/// left out untested.
pub fn events(done: &FamilyReport, exists: impl Fn(&ObjectName) -> bool) -> Vec<NewEvent> {
    let services = by_service(&done.rejected).into_iter();
    let events = services.filter_map(|(service, objects)| {
        let service = service.filter(&exists)?;
        let is_tested = objects.first()?.reason.cause != Cause::Untested;
        is_tested.then(|| NewEvent {
            regarding: Regarding::Service(service),
            kind: EventType::Warning,
            reason: "ObjectRejected",
            action: "SyncProxyRules",
            text: format!("the kernel rejected {}", text(&objects)),
        })
    });
    events.collect()
}

/// Groups objects by Service. Objects that the kernel itself rejected come
/// first.
fn by_service(
    rejected: &[Arc<RejectedObject>],
) -> BTreeMap<Option<ObjectName>, Vec<&RejectedObject>> {
    let mut services: BTreeMap<_, Vec<&RejectedObject>> = BTreeMap::new();
    for rejected in rejected {
        let service = rejected.owner.as_ref().map(|port| port.service_name());
        services.entry(service).or_default().push(rejected);
    }
    for objects in services.values_mut() {
        objects.sort_by_key(|it| match it.reason.cause {
            Cause::Rejected | Cause::Conflict => Reverse(2),
            Cause::Dependent => Reverse(1),
            Cause::Untested => Reverse(0),
        });
    }
    services
}

fn text(objects: &[&RejectedObject]) -> String {
    let Some(first) = objects.first() else {
        return String::new();
    };
    match objects.len() - 1 {
        0 => first.to_string(),
        more => format!("{first}; and {}", Counted(more, "more object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_is_due_each_hour_while_objects_stay_rejected() {
        let mut reminder = Reminder::default();
        let minutes = |count: u64| Duration::from_secs(60 * count);
        for (minute, count, expected) in [
            (0, 0, false),
            (10, 5, false),
            (69, 5, false),
            (70, 4, true),
            (71, 4, false),
            (130, 4, true),
            (131, 0, false),
            (200, 1, false),
            (259, 1, false),
            (260, 1, true),
        ] {
            assert_eq!(
                reminder.is_due(count, minutes(minute)),
                expected,
                "{minute}"
            );
        }
    }
}
