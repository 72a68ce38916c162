//! Tests that a store retains no state of deleted objects.

use super::*;
use crate::arbitrary::{Dice, NODE};

/// Asserts that the store holds no state of any object.
fn assert_forgot_all(store: &Store) {
    assert_eq!(store.entries.iter().count(), 0, "{:?}", store.entries);
    assert!(!store.entries.is_dirty(), "{:?}", store.entries);
    assert!(store.owners.is_empty(), "{:?}", store.owners);
    assert_eq!(store.counts.service_changes_pending, 0);
    assert!(store.health_checks.is_empty(), "{:?}", store.health_checks);
    assert!(store.service_cidrs.is_empty(), "{:?}", store.service_cidrs);
    assert_eq!(store.ports_without_local_endpoints, BothFamilies::default());
    assert_eq!(store.endpoints, BothFamilies::default());
}

#[test]
fn a_store_retains_nothing_of_deleted_objects() {
    for seed in 0..500 {
        let mut dice = Dice::from_seed(seed);
        let mut store = Store::new(Config::new(NODE));
        let mut deletions = Vec::new();
        for _ in 0..60 {
            let event = dice.event();
            match &event {
                Event::ServiceApplied(service) => {
                    deletions.push(Event::ServiceDeleted(service.metadata.object_name()));
                }
                Event::SliceApplied(slice) => {
                    deletions.push(Event::SliceDeleted(slice.metadata.object_name()));
                }
                Event::ServiceCidrApplied(cidr) => {
                    let name = cidr.metadata.name.as_str().into();
                    deletions.push(Event::ServiceCidrDeleted(name));
                }
                _ => {}
            }
            store.apply(event);
            match dice.roll(8) {
                0 => drop(store.apply(Event::Synced)),
                1 => drop(store.resolve(&store.node())),
                _ => {}
            }
        }
        store.apply(Event::Synced);
        if dice.once_in(2) {
            store.resolve(&store.node());
        }
        for deletion in deletions {
            store.apply(deletion);
        }
        store.resolve(&store.node());
        assert_forgot_all(&store);
    }
}

#[test]
fn a_store_retains_nothing_of_objects_deleted_before_the_initial_list_is_complete() {
    let mut store = Store::new(Config::new(NODE));
    for number in 0..1_000 {
        let service = api::Service {
            metadata: api::ObjectMeta::named("default", format!("web-{number}")),
            spec: api::ServiceSpec {
                cluster_ip: "10.96.0.10".into(),
                ..api::ServiceSpec::default()
            },
            ..api::Service::default()
        };
        let name = service.metadata.object_name();
        store.apply(service.into());
        store.apply(Event::ServiceDeleted(name));
    }
    assert_forgot_all(&store);
}

#[test]
fn trigger_times_of_a_service_are_bounded() {
    let mut store = Store::new(Config::new(NODE));
    let mut slice = api::EndpointSlice {
        metadata: api::ObjectMeta::named("default", "web-1"),
        endpoints: vec![api::SliceEndpoint::default()],
        ..api::EndpointSlice::default()
    };
    let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
    slice.metadata.labels.insert(label, "web".into());
    let time = "2026-01-01T00:00:00Z".to_owned();
    slice
        .metadata
        .annotations
        .insert(MetadataKey::LastChangeTriggerTime.as_str().into(), time);
    for number in 0..1_000 {
        slice.endpoints = vec![api::SliceEndpoint {
            addresses: vec![format!("10.0.{}.{}", number / 256, number % 256)],
            ..api::SliceEndpoint::default()
        }];
        store.apply(slice.clone().into());
    }
    let entry = store.entries.iter().next().unwrap();
    assert_eq!(entry.trigger_times.len(), MAX_TRIGGERS);
}
