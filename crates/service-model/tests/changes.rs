//! Tests of incremental changes, counters, health checks and trigger times.

mod objects;

#[path = "changes/health_checks.rs"]
mod health_checks;

#[path = "changes/summaries.rs"]
mod summaries;

use objects::{HERE, endpoint, in_zone, lines, only_port, port, resolve, slice, synced, web};
use vipline_service_model::{Config, Event, Family, NodeView, ObjectName, Store, api};

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
    let mut there = in_zone("b");
    there.name = "there".into();
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

#[test]
fn equal_endpoint_lists_share_memory() {
    let mut store = synced([web().into(), slice_of("web-1", &["10.0.0.1 here"]).into()]);
    let port = only_port(&mut store);
    assert!(std::sync::Arc::ptr_eq(&port.cluster, &port.serving));
}
