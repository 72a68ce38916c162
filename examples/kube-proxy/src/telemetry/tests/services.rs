//! What load balancers are told of Services.

use super::*;

#[test]
fn load_balancers_ask_about_what_is_in_the_kernel() {
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
    let answer = |stage: &Stage, judged| stage.telemetry.service(Family::V4, &name, judged);
    assert_eq!(answer(&stage, Judged::Really).code, 503, "it is elsewhere");
    stage.refuse(true);
    stage.service("front", 31_001, NODE);
    stage.sync();
    assert_eq!(stage.telemetry.services(), [(key.clone(), 31_000)]);
    stage.refuse(false);
    stage.sync();
    assert_eq!(stage.telemetry.services(), [(key, 31_001)]);
    assert_eq!(answer(&stage, Judged::Really).code, 200);
    stage.apply(Event::ServiceDeleted(name.clone()));
    stage.sync();
    assert_eq!(stage.telemetry.services(), []);
    assert_eq!(answer(&stage, Judged::Really).body, "");
}

#[test]
fn without_a_port_for_health_services_are_asked_of_their_endpoints_alone() {
    let mut stage = Stage::new(Duration::ZERO);
    stage.service("front", 31_000, NODE);
    stage.sync();
    stage.refuse(true);
    stage.service("front", 31_000, "node-2");
    stage.sync();
    let name = ObjectName::new("shop", "front");
    for (judged, code) in [(Judged::Really, 503), (Judged::Healthy, 200)] {
        let answer = stage.telemetry.service(Family::V4, &name, judged);
        assert_eq!(answer.code, code, "{judged:?}");
    }
}
