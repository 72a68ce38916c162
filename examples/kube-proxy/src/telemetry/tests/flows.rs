//! Tests of the metrics of stale flows.

use std::time::Duration;

use proxy_core::{CleanupReport, Error, Family, Report};

use super::Stage;

const DELETED: &str = "conntrack_reconciler_deleted_entries_total";
const TIME: &str = "conntrack_reconciler_sync_duration_seconds";

/// Sets the result of the search in a family.
fn found(report: &mut Report, family: Family, cleaned: Result<CleanupReport, Error>) {
    let mut families = report.families.iter_mut();
    let done = families.find(|done| done.family == family).unwrap();
    done.cleanup = Some(cleaned);
}

fn cleaned(deleted: usize, is_complete: bool, milliseconds: u64) -> CleanupReport {
    let mut cleaned = CleanupReport::default();
    cleaned.deleted = deleted;
    cleaned.is_complete = is_complete;
    cleaned.duration = Some(Duration::from_millis(milliseconds));
    cleaned
}

#[test]
fn searches_and_deleted_flows_are_counted_by_family() {
    let mut stage = Stage::new(Duration::from_secs(30));
    let of = |name: &str, family: &str| format!("{name}{{ip_family=\"{family}\"}}");
    let (count, sum) = (format!("{TIME}_count"), format!("{TIME}_sum"));
    stage.sync();
    stage.expect(&[
        (&*of(DELETED, "IPv4"), 0.0),
        (&*of(DELETED, "IPv6"), 0.0),
        (&*of(&count, "IPv4"), 0.0),
    ]);
    for (name, search) in [
        ("a", Ok(cleaned(3, true, 3))),
        // An interrupted search has deleted the flows that it found.
        ("b", Ok(cleaned(2, false, 5))),
        // As in upstream, a failed search is not counted.
        ("c", Err(Error::NoKernel)),
    ] {
        stage.service(name, 0, "node-2");
        stage.sync_and_search(|report| {
            found(report, Family::V4, search);
            found(report, Family::V6, Ok(cleaned(0, true, 0)));
        });
    }
    stage.expect(&[
        (&*of(DELETED, "IPv4"), 5.0),
        (&*of(&count, "IPv4"), 2.0),
        (&*of(&sum, "IPv4"), 0.008),
        (
            &*format!("{TIME}_bucket{{ip_family=\"IPv4\",le=\"0.004\"}}"),
            1.0,
        ),
        (&*of(DELETED, "IPv6"), 0.0),
        (&*of(&count, "IPv6"), 3.0),
    ]);
    // Searches of the other thread count alike.
    for result in [Ok(cleaned(4, true, 3)), Err(Error::NoKernel)] {
        stage.telemetry.searched(Family::V4, &result);
    }
    stage.expect(&[
        (&*of(DELETED, "IPv4"), 9.0),
        (&*of(&count, "IPv4"), 3.0),
        (&*of(&sum, "IPv4"), 0.011),
        (&*of(DELETED, "IPv6"), 0.0),
    ]);
}
