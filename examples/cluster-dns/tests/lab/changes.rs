//! Time from a change of an object to its answer.

use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::Value;

use crate::chaos::with_api;
use crate::objects::{endpoints, service, shop};
use crate::stage::{SOON, Stage};

/// Maximum time from a change to its answer.
const LIMIT: Duration = Duration::from_millis(50);

/// Changes of each kind.
const CHANGES: usize = 10;

/// Asks until the data are as expected. Returns the time that passed.
#[track_caller]
fn time_until(stage: &Stage, name: &str, expected: &[&str]) -> Duration {
    let mut client = stage.client();
    let start = Instant::now();
    loop {
        let answer = client.ask(name, RecordType::A).unwrap();
        let passed = start.elapsed();
        let is_expected = match expected {
            [] => answer.code == ResponseCode::NXDomain,
            _ => answer.data == expected,
        };
        if is_expected {
            return passed;
        }
        assert!(passed < SOON, "{name} {expected:?}: {answer:?}");
    }
}

/// Asserts that a typical change is answered in time. One of ten may be delayed by another
/// process of a busy machine.
#[track_caller]
fn assert_in_time(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let typical = times[times.len() - 2];
    assert!(typical <= LIMIT, "{what}: {times:?}");
}

#[test]
fn answers_follow_changes_of_services_in_the_api_within_50_ms() {
    let (api, stage) = with_api();
    let name = "new.shop.svc.cluster.local.";
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for number in 0..CHANGES {
        let address = format!("10.96.1.{number}");
        api.apply(service("new", &address, None));
        added.push(time_until(&stage, name, &[&address]));
        assert!(api.delete("Service", "shop", "new"));
        removed.push(time_until(&stage, name, &[]));
    }
    assert_in_time("added Services", added);
    assert_in_time("removed Services", removed);
}

#[test]
fn answers_follow_changes_of_endpoints_in_manifests_within_50_ms() {
    let stage = Stage::new();
    let mut changed = Vec::new();
    for number in 0..CHANGES {
        let endpoint = format!("10.244.7.{}", 1 + number);
        stage.write(
            "shop.yaml",
            &shop_with(endpoints("db", &[(&endpoint, None)])),
        );
        let name = "db.shop.svc.cluster.local.";
        changed.push(time_until(&stage, name, &[&endpoint]));
    }
    assert_in_time("changed endpoints", changed);
}

/// Returns the objects of all tests with another slice of Service `db`.
fn shop_with(slice: Value) -> Vec<Value> {
    let mut objects = shop();
    objects.retain(|object| object["metadata"]["name"] != slice["metadata"]["name"]);
    objects.push(slice);
    objects
}
