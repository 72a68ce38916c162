//! Tests of the health check responses of Services.

use super::*;

#[test]
fn health_checks_report_the_state_of_the_last_commit() {
    let mut stage = Stage::new(Duration::from_secs(30));
    stage.sync();
    let name = ObjectName::new("shop", "front");
    let key = (Family::V4, name.clone());
    stage.service("front", 31_000, "node-2");
    assert_eq!(stage.telemetry.services(), []);
    let syncs = stage.telemetry.syncs();
    stage.sync();
    assert!(syncs.has_changed().unwrap());
    assert_eq!(stage.telemetry.services(), [(key.clone(), 31_000)]);
    let answer =
        |stage: &Stage, proxy_health| stage.telemetry.service(Family::V4, &name, proxy_health);
    assert_eq!(
        answer(&stage, ProxyHealth::Checked).code,
        503,
        "it is elsewhere"
    );
    stage.refuse(true);
    stage.service("front", 31_001, NODE);
    stage.sync();
    assert_eq!(stage.telemetry.services(), [(key.clone(), 31_000)]);
    stage.refuse(false);
    stage.sync();
    assert_eq!(stage.telemetry.services(), [(key, 31_001)]);
    assert_eq!(answer(&stage, ProxyHealth::Checked).code, 200);
    stage.apply(Event::ServiceDeleted(name.clone()));
    stage.sync();
    assert_eq!(stage.telemetry.services(), []);
    assert_eq!(answer(&stage, ProxyHealth::Checked).body, "");
}

#[test]
fn without_a_health_server_only_endpoints_count() {
    let mut stage = Stage::new(Duration::ZERO);
    stage.service("front", 31_000, NODE);
    stage.sync();
    stage.refuse(true);
    stage.service("front", 31_000, "node-2");
    stage.sync();
    let name = ObjectName::new("shop", "front");
    for (proxy_health, code) in [(ProxyHealth::Checked, 503), (ProxyHealth::Assumed, 200)] {
        let answer = stage.telemetry.service(Family::V4, &name, proxy_health);
        assert_eq!(answer.code, code, "{proxy_health:?}");
    }
}
