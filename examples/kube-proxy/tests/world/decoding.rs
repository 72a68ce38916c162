//! Decoding of all objects that the API server admits.

use testworld::Verb;
use vipline_service_model::arbitrary::NODE;
use vipline_service_model::{Config, Event, Store};

use crate::decode::decode;
use crate::history::history;

#[test]
fn histories_often_have_served_and_contested_service_ports() {
    let [mut served, mut contested] = [0; 2];
    for seed in 0..500 {
        let mut store = Store::new(Config::new(NODE));
        for event in history(seed, 12, u8::MAX).iter().filter_map(decode) {
            store.apply(event);
        }
        store.apply(Event::Synced);
        let node = store.node();
        store.resolve(&node);
        let mut addresses = Vec::new();
        for port in store.ports() {
            let external = port.external_ips.iter().chain(&*port.load_balancer_ips);
            let ips = external.chain([&port.cluster_ip]);
            addresses.extend(ips.map(|ip| (*ip, port.protocol, port.port)));
        }
        let all = addresses.len();
        addresses.sort_unstable_by_key(|address| format!("{address:?}"));
        addresses.dedup();
        contested += u32::from(addresses.len() < all);
        served += u32::from(store.ports().any(|port| !port.serving.is_empty()));
    }
    assert!(served >= 100, "{served} of 500 have endpoints");
    assert!(
        contested >= 10,
        "{contested} of 500 have contested addresses"
    );
}

#[test]
fn every_admitted_object_is_decoded_and_keeps_its_name() {
    for seed in 0..1_000 {
        for change in history(seed, 12, u8::MAX) {
            let event = decode(&change).unwrap_or_else(|| panic!("{}", change.line()));
            let (namespace, name, is_deleted) = match &event {
                Event::ServiceApplied(it) => (&*it.metadata.namespace, &*it.metadata.name, false),
                Event::SliceApplied(it) => (&*it.metadata.namespace, &*it.metadata.name, false),
                Event::NodeApplied(it) => ("", &*it.metadata.name, false),
                Event::NamespaceApplied(it) => ("", &*it.metadata.name, false),
                Event::ServiceCidrApplied(it) => ("", &*it.metadata.name, false),
                Event::ServiceDeleted(name) | Event::SliceDeleted(name) => {
                    (&*name.namespace, &*name.name, true)
                }
                Event::NamespaceDeleted(name)
                | Event::NodeDeleted(name)
                | Event::ServiceCidrDeleted(name) => ("", &**name, true),
                Event::Synced => panic!("a change is about an object"),
            };
            let id = change.id();
            assert_eq!((namespace, name), (&*id.namespace, &*id.name));
            assert_eq!(is_deleted, change.verb == Verb::Deleted);
        }
    }
}
