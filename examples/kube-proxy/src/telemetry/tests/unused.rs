//! Tests of changes that are pending while unused objects are removed.

use proxy_core::Trigger;

use super::*;

#[test]
fn a_change_stays_pending_after_the_removal_of_unused_chains() {
    let mut stage = Stage::new(Duration::ZERO);
    stage.service("web", 0, NODE);
    let service = |affinity: &str| -> api::Service {
        let service = json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": {
                "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }], "sessionAffinity": affinity,
            },
        });
        serde_json::from_value(service).unwrap()
    };
    stage.apply(service("ClientIP").into());
    stage.sync();
    stage.apply(service("None").into());
    stage.sync();
    assert!(stage.engine.poll(stage.now).is_none());
    let removal = stage.engine.next_deadline().expect("unused chains");
    // The removal is within the minimum interval after another change.
    stage.now = removal - Duration::from_millis(2_500);
    stage.service("other", 0, NODE);
    stage.sync();
    assert!(stage.engine.poll(stage.now).is_none());
    stage.service("third", 0, NODE);
    assert_eq!(stage.codes().1, 503, "the change waits");
    let report = stage.engine.poll(removal).expect("unused chains");
    assert_eq!(report.trigger, Trigger::Unused);
    let now = Instant::now();
    stage.telemetry.synced(&stage.engine, &report, now, now);
    assert_eq!(stage.codes().1, 503, "the change still waits");
    stage.sync();
    assert_eq!(stage.codes().1, 200);
}
