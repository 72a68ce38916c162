//! Tests of incremental changes, counters, health checks and trigger times.

mod objects;

use std::time::{Duration, Instant};

use objects::{
    HERE, endpoint, endpoint_port, in_zone, lines, only_port, port, resolve, slice, synced, web,
};
use vipline_service_model::{
    Config, Event, Family, NoLocalEndpoints, NodeView, ObjectName, Store, Timestamp, api,
};

fn name() -> ObjectName {
    ObjectName::new("default", "web")
}

fn slice_name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn slice_of(name: &str, words: &[&str]) -> api::EndpointSlice {
    slice(name, words.iter().map(|words| endpoint(words)).collect())
}

#[test]
fn no_port_is_resolved_before_the_initial_list_is_complete() {
    let mut store = Store::new(Config::new(HERE));
    store.apply(web().into());
    assert!(!store.is_synced());
    assert!(resolve(&mut store).is_empty());
    assert_eq!(store.counts().service_changes_pending, 1);
    store.apply(Event::Synced);
    assert!(store.is_synced());
    assert_eq!(
        lines(&resolve(&mut store)),
        ["default/web 10.96.0.10:80/TCP "]
    );
    assert!(resolve(&mut store).is_empty());
}

#[test]
fn slices_may_arrive_before_their_service() {
    let mut store = synced([slice_of("web-1", &["10.0.0.1"]).into()]);
    assert!(resolve(&mut store).is_empty());
    store.apply(web().into());
    let expected = ["default/web 10.96.0.10:80/TCP 10.0.0.1:8080"];
    assert_eq!(lines(&resolve(&mut store)), expected);
    store.apply(Event::ServiceDeleted(name()));
    assert_eq!(lines(&resolve(&mut store)), ["default/web IPv4 TCP gone"]);
    store.apply(web().into());
    assert_eq!(lines(&resolve(&mut store)), expected);
}

#[test]
fn objects_created_and_deleted_between_two_resolves_are_not_reported() {
    let mut store = synced([]);
    store.apply(web().into());
    store.apply(Event::ServiceDeleted(name()));
    assert!(!store.is_dirty());
    assert!(resolve(&mut store).is_empty());
    store.apply(web().into());
    resolve(&mut store);
    store.apply(slice_of("web-1", &["10.0.0.1"]).into());
    store.apply(Event::SliceDeleted(slice_name("web-1")));
    store.apply(Event::ServiceDeleted(name()));
    store.apply(web().into());
    assert!(resolve(&mut store).is_empty());
}

#[test]
fn changes_of_irrelevant_fields_do_not_mark_a_service_dirty() {
    let mut store = synced([web().into(), slice_of("web-1", &["10.0.0.1"]).into()]);
    resolve(&mut store);
    let mut service = web();
    service
        .metadata
        .annotations
        .insert("note".into(), "new".into());
    let mut slice = slice_of("web-1", &["10.0.0.1"]);
    slice.metadata.labels.insert("note".into(), "new".into());
    store.apply(service.into());
    store.apply(slice.into());
    assert!(!store.is_dirty());
    assert!(resolve(&mut store).is_empty());
}

#[test]
fn only_changed_services_are_resolved() {
    let mut other = web();
    other.metadata.name = "api".into();
    let mut store = synced([web().into(), other.into()]);
    let expected = [
        "default/web 10.96.0.10:80/TCP ",
        "default/api 10.96.0.10:80/TCP ",
    ];
    assert_eq!(lines(&resolve(&mut store)), expected);
    store.apply(slice_of("web-1", &["10.0.0.1"]).into());
    let expected = ["default/web 10.96.0.10:80/TCP 10.0.0.1:8080"];
    assert_eq!(lines(&resolve(&mut store)), expected);
}

#[test]
fn a_renamed_port_is_removed_and_added() {
    let mut service = web();
    service.spec.ports = vec![port("a", "TCP", 80), port("b", "TCP", 81)];
    let mut store = synced([service.clone().into()]);
    resolve(&mut store);
    service.spec.ports = vec![port("a", "UDP", 80), port("b", "TCP", 81)];
    store.apply(service.into());
    let expected = [
        "default/web:a IPv4 TCP gone",
        "default/web:a 10.96.0.10:80/UDP ",
    ];
    assert_eq!(lines(&resolve(&mut store)), expected);
}

#[test]
fn a_recreated_service_is_a_different_service() {
    let mut service = web();
    service.metadata.creation_timestamp = Some("2026-01-01T00:00:00Z".into());
    let mut store = synced([service.clone().into()]);
    resolve(&mut store);
    service.metadata.creation_timestamp = Some("2026-01-02T00:00:00Z".into());
    store.apply(service.into());
    let expected = [
        "default/web IPv4 TCP gone",
        "default/web 10.96.0.10:80/TCP ",
    ];
    assert_eq!(lines(&resolve(&mut store)), expected);
    assert_eq!(store.ports().count(), 1);
}

#[test]
fn a_service_that_loses_a_family_loses_its_ports() {
    let mut service = web();
    service.spec.cluster_ips = vec!["10.96.0.10".into(), "fd00::a".into()];
    let mut store = synced([service.clone().into()]);
    assert_eq!(resolve(&mut store).len(), 2);
    service.spec.cluster_ips.truncate(1);
    store.apply(service.into());
    assert_eq!(lines(&resolve(&mut store)), ["default/web IPv6 TCP gone"]);
}

#[test]
fn headless_and_service_proxy_name_labels_remove_an_object() {
    let mut store = synced([web().into(), slice_of("web-1", &["10.0.0.1"]).into()]);
    resolve(&mut store);
    let mut headless = slice_of("web-1", &["10.0.0.1"]);
    headless
        .metadata
        .labels
        .insert("service.kubernetes.io/headless".into(), String::new());
    store.apply(headless.into());
    assert_eq!(
        lines(&resolve(&mut store)),
        ["default/web 10.96.0.10:80/TCP "]
    );
    let mut foreign = web();
    let label = "service.kubernetes.io/service-proxy-name".into();
    foreign.metadata.labels.insert(label, "other".into());
    store.apply(foreign.into());
    assert_eq!(lines(&resolve(&mut store)), ["default/web IPv4 TCP gone"]);
}

#[test]
fn a_slice_relabeled_to_another_service_is_removed_from_the_first() {
    let mut other = web();
    other.metadata.name = "api".into();
    let mut store = synced([
        web().into(),
        other.into(),
        slice_of("web-1", &["10.0.0.1"]).into(),
    ]);
    resolve(&mut store);
    let mut moved = slice_of("web-1", &["10.0.0.1"]);
    moved
        .metadata
        .labels
        .insert("kubernetes.io/service-name".into(), "api".into());
    store.apply(moved.into());
    let expected = [
        "default/web 10.96.0.10:80/TCP ",
        "default/api 10.96.0.10:80/TCP 10.0.0.1:8080",
    ];
    assert_eq!(lines(&resolve(&mut store)), expected);
}

#[test]
fn only_a_changed_name_or_zone_of_the_node_resolves_all_ports() {
    let mut store = synced([
        web().into(),
        slice_of("web-1", &["10.0.0.1 here zone=a", "10.0.0.2 there zone=b"]).into(),
    ]);
    assert_eq!(store.resolve(&in_zone("a")).len(), 1);
    let mut same = in_zone("a");
    same.addresses = vec!["10.1.0.1".parse().unwrap()];
    same.eligible = true;
    assert!(store.resolve(&same).is_empty());
    let expected = ["default/web 10.96.0.10:80/TCP 10.0.0.2:8080"];
    assert_eq!(lines(&store.resolve(&in_zone("b"))), expected);
    let there = NodeView {
        name: "there".into(),
        ..in_zone("b")
    };
    store.resolve(&there);
    assert!(store.ports().all(|port| port.cluster[0].is_local));
}

#[test]
fn only_the_object_of_this_node_is_used_and_survives_its_deletion() {
    let mut store = synced([]);
    let mut node = api::Node::default();
    node.metadata.name = "there".into();
    node.metadata
        .labels
        .insert(api::Node::ZONE_LABEL.into(), "b".into());
    store.apply(node.clone().into());
    assert_eq!(*store.node(), NodeView::new(HERE));
    node.metadata.name = HERE.into();
    store.apply(node.into());
    assert_eq!(store.node().zone.as_deref(), Some("b"));
    store.apply(Event::NodeDeleted(HERE.into()));
    assert_eq!(store.node().zone.as_deref(), Some("b"));
}

#[test]
fn service_cidrs_are_listed_by_family() {
    let mut store = synced([]);
    let cidr = |name: &str, cidrs: &[&str]| {
        let mut cidr = api::ServiceCidr::default();
        cidr.metadata.name = name.into();
        cidr.spec.cidrs = cidrs.iter().map(|&cidr| cidr.into()).collect();
        cidr
    };
    assert!(
        store
            .apply(cidr("b", &["10.96.0.0/16", "fd00::/108"]).into())
            .is_empty()
    );
    let warnings = store.apply(cidr("a", &["10.97.0.0/16", "10.96.0.0/16", "odd"]).into());
    let expected = r#"ServiceCIDR a: spec.cidrs[2]: not a network: "odd""#;
    assert_eq!(warnings[0].to_string(), expected);
    let list = |store: &Store, family| {
        let texts: Vec<_> = store
            .service_cidrs(family)
            .iter()
            .map(ToString::to_string)
            .collect();
        texts.join(" ")
    };
    assert_eq!(list(&store, Family::V4), "10.96.0.0/16 10.97.0.0/16");
    assert_eq!(list(&store, Family::V6), "fd00::/108");
    store.apply(Event::ServiceCidrDeleted("b".into()));
    assert_eq!(list(&store, Family::V4), "10.96.0.0/16 10.97.0.0/16");
    assert_eq!(list(&store, Family::V6), "");
}

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
    let start_time = Timestamp::parse("2026-01-01T00:00:00Z");
    let mut store = Store::new(Config {
        start_time,
        ..Config::new(HERE)
    });
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

#[test]
fn equal_endpoint_lists_share_memory() {
    let mut store = synced([web().into(), slice_of("web-1", &["10.0.0.1 here"]).into()]);
    let port = only_port(&mut store);
    assert!(std::sync::Arc::ptr_eq(&port.cluster, &port.serving));
}
