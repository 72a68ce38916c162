//! Laws that hold for any events in any order, and limits on the number of objects and
//! edits.

mod faults;

mod histories;

mod limits;

use std::time::Duration;

use proxy_core::{Config, Event, Intervals};
use vipline_nftables::Object;
use vipline_service_model::arbitrary;
use vipline_service_model::{DetectLocal, api};

use crate::fixtures::{self, Kernels, apply, sync, web, with_endpoints};

/// Returns the configuration of an engine that syncs on every poll.
fn config() -> Config {
    let min = Duration::ZERO;
    Config::new(arbitrary::NODE)
        .with_detect_local(DetectLocal::NodeCidr)
        .with_intervals(Intervals {
            min,
            ..Intervals::default()
        })
}

#[test]
fn the_oldest_service_that_claims_an_address_gets_it() {
    let older = with_endpoints(web("10.96.0.10"), &["10.1.0.1", "10.1.0.2"]);
    let younger = with_endpoints(
        testkit::generate::ServiceBuilder::new("a-usurper")
            .cluster_ip("10.96.0.10".parse().unwrap())
            .port(api::TransportProtocol::Tcp, 80, 9090),
        &["10.2.0.1", "10.2.0.2", "10.2.0.3"],
    );
    let events = |builder: &testkit::generate::ServiceBuilder, created: &str| {
        let mut service = builder.service();
        service.metadata.creation_timestamp = Some(created.into());
        let slices = builder.slices().into_iter().map(Event::from);
        [Event::from(service)]
            .into_iter()
            .chain(slices)
            .collect::<Vec<_>>()
    };
    let (older, younger) = (
        events(&older, "2025-01-01T00:00:00Z"),
        events(&younger, "2026-01-01T00:00:00Z"),
    );
    let mut plans = Vec::new();
    for events in [[older.clone(), younger.clone()], [younger, older]] {
        let mut engine = Kernels::default().engine(fixtures::config());
        apply(&mut engine, events.into_iter().flatten());
        engine.apply(Event::Synced);
        plans.push(engine.desired());
    }
    assert_eq!(plans[0], plans[1]);
    let elements = |set: &str| {
        let listed = plans[0].split(&format!("map {set} {{")).nth(1);
        let listed = listed.and_then(|rest| rest.split("\n\t}").next());
        listed.is_some_and(|listed| listed.contains("10.96.0.10 . tcp . 80 . 0 : "))
    };
    assert!(elements("backends-2"), "{}", plans[0]);
    assert!(!elements("backends-3"), "{}", plans[0]);
    assert!(plans[0].contains("10.96.0.10 . tcp . 80 . 0 : 10.1.0.1 . 8080"));
    assert!(!plans[0].contains("10.2.0.1"));
}

#[test]
fn a_service_with_300_endpoints_has_300_slots() {
    let addresses: Vec<_> = (0..300)
        .map(|n| format!("10.1.{}.{}", n / 250, n % 250))
        .collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let mut engine = Kernels::default().engine(fixtures::config());
    apply(
        &mut engine,
        with_endpoints(web("10.96.0.10"), &addresses).events(),
    );
    engine.apply(Event::Synced);
    let plan = engine.desired();
    assert!(
        plan.contains("numgen random mod 300 map @backends"),
        "{plan}"
    );
    assert!(
        plan.contains("10.96.0.10 . tcp . 80 . 299 : 10.1.1.49 . 8080"),
        "{plan}"
    );
}

#[test]
fn the_services_that_a_cluster_depends_on_are_programmed_first() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    for (namespace, name, address) in [
        ("default", "a-shop", "10.96.0.30"),
        ("kube-system", "a-metrics-server", "10.96.0.20"),
        ("kube-system", "kube-dns", "10.96.0.10"),
        ("default", "kubernetes", "10.96.0.1"),
    ] {
        let mut service = web(address).service();
        service.metadata = api::ObjectMeta::named(namespace, name);
        engine.apply(service.into());
    }
    engine.apply(Event::Synced);
    sync(&mut engine, &mut Duration::from_secs(1));
    let kernel = kernels.v4.get();
    let addresses = kernel
        .last_edits
        .iter()
        .filter_map(|edit| match edit.object() {
            Object::Element(element) if element.set().name.as_str() == "active-cluster-ips" => {
                Some(element.to_string())
            }
            _ => None,
        });
    assert_eq!(
        addresses.collect::<Vec<_>>(),
        ["10.96.0.1", "10.96.0.10", "10.96.0.20", "10.96.0.30"]
    );
}
