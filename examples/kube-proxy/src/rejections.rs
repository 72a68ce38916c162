//! Logs and Events about objects that the kernel rejected.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use proxy_core::{FamilyReport, RejectedObject};
use tracing::warn;
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};
use vipline_reconcile::Cause;
use vipline_service_model::ObjectName;

/// Maximum number of warnings of a sync of one family.
const WARNINGS: usize = 16;

/// Logs new rejections: one warning per Service, and one for objects without a
/// Service.
///
/// A Service with many rejected objects does not hide other Services.
pub fn log(done: &FamilyReport) {
    let family = done.family;
    let services = by_service(&done.rejected);
    for objects in services.values().take(WARNINGS) {
        let text = text(objects);
        warn!(%family, "object rejected; retrying with backoff: {text}");
    }
    let rest = services.values().skip(WARNINGS).map(Vec::len);
    let more: usize = rest.sum();
    if more > 0 {
        warn!(%family, objects = more, "more objects rejected; retrying with backoff");
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
        more => format!("{first}; and {more} more objects"),
    }
}
