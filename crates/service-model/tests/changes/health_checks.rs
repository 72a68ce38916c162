//! Health checks.

use std::time::{Duration, Instant};

use vipline_service_model::{Event, Family, Store, api};

use super::objects::{endpoint_port, resolve, synced, web};
use super::{name, slice_of};

fn checked() -> api::Service {
    let mut service = web();
    service.spec.kind = api::ServiceType::LoadBalancer;
    service.spec.external_traffic_policy = api::TrafficPolicy::Local;
    service.spec.health_check_node_port = 32_000;
    service
}

#[test]
fn health_checks_count_ready_local_addresses() {
    let mut slice = slice_of(
        "web-1",
        &[
            "10.0.0.1 here",
            "10.0.0.2 here unready terminating",
            "10.0.0.3 there",
            "10.0.0.4 here stopped terminating",
        ],
    );
    // An address with two ports counts once, even if the Service lacks one of the ports.
    slice.ports.push(endpoint_port("metrics", "TCP", 9090));
    let mut v6 = slice_of("web-6", &["fd00::1 here"]);
    v6.address_type = api::AddressType::V6;
    let mut store = synced([checked().into(), slice.into(), v6.into()]);
    resolve(&mut store);
    let health_checks = |store: &Store| -> Vec<_> {
        let ready = |check: &vipline_service_model::HealthCheck| {
            (check.local_ready(Family::V4), check.local_ready(Family::V6))
        };
        let checks = store.health_checks();
        checks
            .map(|(name, check)| (name.to_string(), check.node_port, ready(check)))
            .collect()
    };
    assert_eq!(
        health_checks(&store),
        [("default/web".to_owned(), 32_000, (2, 1))]
    );
    store.apply(slice_of("web-1", &["10.0.0.3 there"]).into());
    resolve(&mut store);
    assert_eq!(
        health_checks(&store),
        [("default/web".to_owned(), 32_000, (0, 1))]
    );
    store.apply(Event::ServiceDeleted(name()));
    resolve(&mut store);
    assert_eq!(health_checks(&store), []);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test measures time")]
fn the_cost_of_resolving_does_not_depend_on_unused_ports_of_slices() {
    let time = |extra_ports: u32| {
        let hosts = (0..1000).map(|host| format!("10.0.{}.{} here", host / 250, host % 250 + 1));
        let hosts: Vec<_> = hosts.collect();
        let words: Vec<_> = hosts.iter().map(String::as_str).collect();
        let mut slice = slice_of("web-1", &words);
        let extra = (0..extra_ports).map(|port| endpoint_port(&format!("p{port}"), "TCP", 1));
        slice.ports.extend(extra);
        let mut store = synced([checked().into(), slice.into()]);
        let start = Instant::now();
        resolve(&mut store);
        let (_, check) = store.health_checks().next().unwrap();
        assert_eq!(check.local_ready(Family::V4), 1000);
        start.elapsed()
    };
    let (few, many) = (time(0), time(20_000));
    println!("one port: {few:?}, 20,001 ports: {many:?}");
    let bound = few * 20 + Duration::from_millis(100);
    assert!(many < bound, "{many:?}, but {few:?} with one port");
}

#[test]
fn a_slice_without_usable_ports_has_no_ready_addresses() {
    let mut slice = slice_of("web-1", &["10.0.0.1 here"]);
    slice.ports.clear();
    let mut store = synced([checked().into(), slice.into()]);
    resolve(&mut store);
    let (_, check) = store.health_checks().next().unwrap();
    assert_eq!(check.local_ready(Family::V4), 0);
}
