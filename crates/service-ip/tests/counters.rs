//! Tests of allocation counters.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::time::Duration;

use vipline_service_ip::{
    AddressRange, Allocator, Cidrs, Family, Memory, OwnerRef, Pool, Registry, Scope, Store,
};

use faulty::{Fault, Faulty};

#[expect(dead_code, reason = "the module is shared with other tests")]
mod faulty;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the counters of allocations and errors, each static and dynamic.
fn counts<P: Pool, S: Store<P>>(registry: &Registry<P, S>, range: &str) -> [Option<u64>; 4] {
    let counters = &registry.counters()[range];
    let of = |scope| [&counters.allocations, &counters.errors].map(|one| one.get(&scope).copied());
    let [given, refused] = of(Scope::Static);
    let [drawn, missed] = of(Scope::Dynamic);
    [given, refused, drawn, missed]
}

#[test]
fn allocations_and_errors_are_counted_by_scope() {
    let range: AddressRange = "10.0.0.0/30".parse().unwrap();
    let mut registry = Registry::new(Memory::new(Allocator::new(range)));
    let web = OwnerRef::service("default", "web");
    registry.reserve(ip("10.0.0.1"), &web).unwrap();
    registry.reserve(ip("10.0.0.1"), &web).unwrap_err();
    registry.reserve(ip("10.9.0.1"), &web).unwrap_err();
    let address = registry.allocate(&web, &mut || 0).unwrap();
    registry.observe(address, Duration::from_millis(3));
    for _ in 0..3 {
        registry.allocate(&web, &mut || 0).unwrap_err();
    }
    // The allocations of a failed change and of a dry run are not counted.
    registry.release(address, &web).unwrap();
    let halves = registry.change(|draft| {
        draft.allocate(&web, &mut || 0)?;
        draft.allocate(&web, &mut || 0)
    });
    halves.unwrap_err();
    registry
        .dry_run(|draft| draft.allocate(&web, &mut || 0))
        .unwrap();
    let expected = [Some(1), Some(2), Some(1), Some(4)];
    assert_eq!(counts(&registry, "10.0.0.0/30"), expected);
    assert_eq!(registry.counters()["10.0.0.0/30"].durations.count(), 1);
}

#[test]
fn each_attempt_with_a_conflict_counts_as_an_error() {
    let store = Faulty::new(Allocator::new(
        "10.0.0.0/24".parse::<AddressRange>().unwrap(),
    ));
    store.fail([Fault::Conflict { is_told: false }; 3]);
    let mut registry = Registry::new(store);
    let web = OwnerRef::service("default", "web");
    registry.allocate(&web, &mut || 0).unwrap();
    let expected = [None, None, Some(1), Some(3)];
    assert_eq!(counts(&registry, "10.0.0.0/24"), expected);
}

#[test]
fn an_allocation_is_counted_for_the_range_of_its_address() {
    let mut cidrs = Cidrs::of(Family::V4);
    for (name, range) in [("a", "10.0.0.0/30"), ("b", "10.1.0.0/30")] {
        cidrs.insert(name, range.parse().unwrap(), true).unwrap();
    }
    let mut registry = Registry::new(Memory::new(cidrs));
    let web = OwnerRef::service("default", "web");
    registry.reserve(ip("10.1.0.1"), &web).unwrap();
    assert_eq!(
        counts(&registry, "10.1.0.0/30"),
        [Some(1), None, None, None]
    );
    for _ in 0..3 {
        registry.allocate(&web, &mut || 0).unwrap();
    }
    registry.allocate(&web, &mut || 0).unwrap_err();
    let of_a = [None, None, Some(2), Some(1)];
    assert_eq!(counts(&registry, "10.0.0.0/30"), of_a);
    let of_b = [Some(1), None, Some(1), Some(1)];
    assert_eq!(counts(&registry, "10.1.0.0/30"), of_b);
    let usage = registry.refresh().unwrap().pool.usage();
    let usage = usage.iter().map(|it| (&*it.range, it.used, it.free));
    let expected = [("10.0.0.0/30", 2, 0), ("10.1.0.0/30", 2, 0)];
    assert_eq!(usage.collect::<Vec<_>>(), expected);
}
