//! Summaries of changes: counts, trigger times, and whether UDP is affected.

use vipline_service_model::{Config, Event, Family, NoLocalEndpoints, Store, Timestamp, api};

use super::objects::{HERE, endpoint_port, port, resolve, synced, web};
use super::{name, slice_name, slice_of};

#[test]
fn endpoint_changes_affect_udp_if_the_service_has_udp_endpoints() {
    let udp = |name: &str, endpoints: &[&str]| {
        let mut slice = slice_of(name, endpoints);
        slice.ports = vec![endpoint_port("dns", "UDP", 53)];
        slice
    };
    let mut store = synced([web().into()]);
    let mut affects = |event: Event| {
        store.apply(event);
        resolve(&mut store);
        (
            store.changes().affects_udp(Family::V4),
            store.changes().affects_udp(Family::V6),
        )
    };
    assert_eq!(
        affects(slice_of("web-1", &["10.0.0.1"]).into()),
        (false, false)
    );
    assert_eq!(affects(udp("web-2", &[]).into()), (false, false));
    assert_eq!(affects(udp("web-2", &["10.0.0.2"]).into()), (true, false));
    // A change of a Service without a change of slices does not affect UDP.
    let mut service = web();
    service.spec.ports.push(port("dns", "UDP", 53));
    assert_eq!(affects(service.into()), (false, false));
    // A change of another slice of a Service with UDP endpoints does.
    assert_eq!(
        affects(slice_of("web-1", &["10.0.0.3"]).into()),
        (true, false)
    );
    // The removal of the UDP endpoints does, later changes do not.
    assert_eq!(affects(udp("web-2", &[]).into()), (true, false));
    assert_eq!(
        affects(slice_of("web-1", &["10.0.0.4"]).into()),
        (false, false)
    );
    assert_eq!(affects(udp("web-2", &["10.0.0.2"]).into()), (true, false));
    assert_eq!(
        affects(Event::SliceDeleted(slice_name("web-2"))),
        (true, false)
    );
    assert_eq!(
        affects(Event::SliceDeleted(slice_name("web-1"))),
        (false, false)
    );
    let mut v6 = udp("web-6", &["fd00::1"]);
    v6.address_type = api::AddressType::V6;
    assert_eq!(affects(v6.into()), (false, true));
}

#[test]
fn trigger_times_are_reported_once() {
    let triggered = |words: &str, time: &str| {
        let mut slice = slice_of("web-1", &[words]);
        let key = "endpoints.kubernetes.io/last-change-trigger-time".to_owned();
        slice.metadata.annotations.insert(key, time.into());
        slice
    };
    let mut config = Config::new(HERE);
    config.start_time = Timestamp::parse("2026-01-01T00:00:00Z");
    let mut store = Store::new(config);
    store.apply(web().into());
    store.apply(Event::Synced);
    store.apply(triggered("10.0.0.1", "2025-12-31T23:59:59Z").into());
    store.apply(triggered("10.0.0.2", "2026-01-01T00:00:01.5Z").into());
    store.apply(triggered("10.0.0.2", "2026-01-01T00:00:02Z").into());
    store.apply(triggered("10.0.0.3", "odd").into());
    store.apply(triggered("10.0.0.4", "2026-01-01T00:00:03Z").into());
    resolve(&mut store);
    let times = |texts: &[&str]| {
        let times: Vec<_> = texts
            .iter()
            .map(|text| (Family::V4, Timestamp::parse(text).unwrap()))
            .collect();
        vec![(name(), times)]
    };
    let expected = times(&["2026-01-01T00:00:01.5Z", "2026-01-01T00:00:03Z"]);
    assert_eq!(store.changes().trigger_times, expected);
    resolve(&mut store);
    assert_eq!(store.changes().trigger_times, []);
    // The deletion of a slice discards the trigger times of its Service.
    store.apply(triggered("10.0.0.5", "2026-01-01T00:00:04Z").into());
    store.apply(Event::SliceDeleted(slice_name("web-1")));
    resolve(&mut store);
    assert_eq!(store.changes().trigger_times, []);
}

#[test]
fn changes_are_counted() {
    let mut store = synced([]);
    let mut counts = |event: Option<Event>| {
        match event {
            Some(event) => drop(store.apply(event)),
            None => drop(resolve(&mut store)),
        }
        let counts = store.counts();
        let services = (counts.service_changes, counts.service_changes_pending);
        (
            services,
            (counts.slice_changes, counts.slice_changes_pending),
        )
    };
    assert_eq!(counts(Some(web().into())), ((1, 1), (0, 0)));
    assert_eq!(counts(Some(web().into())), ((2, 1), (0, 0)));
    assert_eq!(
        counts(Some(slice_of("web-1", &["10.0.0.1"]).into())),
        ((2, 1), (1, 1))
    );
    assert_eq!(
        counts(Some(slice_of("web-1", &["10.0.0.1"]).into())),
        ((2, 1), (2, 1))
    );
    assert_eq!(
        counts(Some(slice_of("web-1", &["10.0.0.2"]).into())),
        ((2, 1), (3, 2))
    );
    assert_eq!(counts(None), ((2, 0), (3, 0)));
    // A reverted change of a Service is not counted, a reverted change of a slice counts twice.
    let mut service = web();
    service.spec.ports[0].port = 81;
    assert_eq!(counts(Some(service.into())), ((3, 1), (3, 0)));
    assert_eq!(counts(Some(web().into())), ((4, 0), (3, 0)));
    assert_eq!(
        counts(Some(slice_of("web-1", &[]).into())),
        ((4, 0), (4, 1))
    );
    assert_eq!(
        counts(Some(slice_of("web-1", &["10.0.0.2"]).into())),
        ((4, 0), (5, 2))
    );
    // A slice without a Service is not counted.
    let mut unlabeled = slice_of("web-2", &["10.0.0.1"]);
    unlabeled.metadata.labels.clear();
    assert_eq!(counts(Some(unlabeled.into())), ((4, 0), (5, 2)));
}

#[test]
fn counts_of_ports_without_local_endpoints_follow_every_change() {
    let mut service = web();
    service.spec.internal_traffic_policy = api::TrafficPolicy::Local;
    let mut store = synced([
        service.into(),
        slice_of("web-1", &["10.0.0.1 there"]).into(),
    ]);
    let mut internal = |event: Option<Event>| {
        event.map(|event| store.apply(event));
        resolve(&mut store);
        for family in Family::ALL {
            // The Service has one port, so both counts are equal.
            let counts = store.services_without_local_endpoints(family);
            assert_eq!(counts, store.ports_without_local_endpoints(family));
        }
        assert_eq!(
            store.ports_without_local_endpoints(Family::V6),
            NoLocalEndpoints::default()
        );
        store.ports_without_local_endpoints(Family::V4).internal
    };
    assert_eq!(internal(None), 1);
    assert_eq!(
        internal(Some(slice_of("web-1", &["10.0.0.2 there"]).into())),
        1
    );
    assert_eq!(
        internal(Some(slice_of("web-1", &["10.0.0.2 here"]).into())),
        0
    );
    assert_eq!(
        internal(Some(slice_of("web-1", &["10.0.0.2 there"]).into())),
        1
    );
    assert_eq!(internal(Some(Event::ServiceDeleted(name()))), 0);
}
