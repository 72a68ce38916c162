//! Tests of allocation beside reserved and excluded items.

use std::collections::BTreeSet;
use std::net::IpAddr;

use vipline_service_ip::{
    AddressRange, AllocationError, Allocator, Cidrs, Error, Memory, OwnerRef, Pool, PortRange,
    Registry, Reservations,
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a valid address")
}

fn web() -> OwnerRef {
    OwnerRef::service("default", "web")
}

/// Allocates dynamically until the range is full, from different random numbers.
fn allocate_all<P: Pool + Clone>(
    pool: P,
    reservations: Reservations<P::Item>,
) -> BTreeSet<P::Item> {
    let mut registry = Registry::new(Memory::new(pool)).with_reservations(reservations);
    let mut state = 1_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state
    };
    let mut allocated = BTreeSet::new();
    loop {
        match registry.allocate(&web(), &mut random) {
            Ok(item) => assert!(allocated.insert(item), "{item} twice"),
            Err(Error::Allocation(error)) if error.is_full() => return allocated,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn dynamic_allocation_returns_all_items_except_reserved_ones() {
    let mut reservations = Reservations::new();
    // The static band of a /24 ends with 10.0.0.16.
    for (first, last) in [("9.0.0.0", "10.0.0.3"), ("10.0.0.15", "10.0.0.90")] {
        reservations.exclude(ip(first)..=ip(last)).unwrap();
    }
    reservations
        .reserve(ip("10.0.0.254")..=ip("11.0.0.0"), web())
        .unwrap();
    let expected: BTreeSet<IpAddr> = (4..15)
        .chain(91..254)
        .map(|last| ip(&format!("10.0.0.{last}")))
        .collect();
    let range: AddressRange = "10.0.0.0/24".parse().unwrap();
    assert_eq!(
        allocate_all(Allocator::new(range), reservations.clone()),
        expected
    );
    let mut cidrs = Cidrs::ipv4();
    cidrs.insert("default", range, true).unwrap();
    assert_eq!(allocate_all(cidrs, reservations), expected);
}

#[test]
fn a_family_or_range_that_is_reserved_completely_is_full() {
    let mut ports = Reservations::new();
    ports.exclude(0..=u16::MAX).unwrap();
    let range: PortRange = "30000-32767".parse().unwrap();
    assert!(allocate_all(Allocator::new(range), ports).is_empty());
    // Reservations of IPv4 addresses do not affect IPv6 ranges.
    let mut all_ipv4 = Reservations::new();
    all_ipv4
        .exclude(ip("0.0.0.0")..=ip("255.255.255.255"))
        .unwrap();
    let range: AddressRange = "fd00::/122".parse().unwrap();
    assert_eq!(allocate_all(Allocator::new(range), all_ipv4).len(), 63);
}

#[test]
fn a_reserved_item_is_allocated_to_its_owner_only() {
    let range: AddressRange = "10.0.0.0/24".parse().unwrap();
    let mut reservations = Reservations::new();
    let dns = OwnerRef::service("kube-system", "kube-dns");
    reservations
        .reserve(ip("10.0.0.10")..=ip("10.0.0.11"), dns.clone())
        .unwrap();
    let store = Memory::new(Allocator::new(range));
    let mut registry = Registry::new(store).with_reservations(reservations);
    let error = registry.reserve(ip("10.0.0.10"), &web()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "10.0.0.10 is reserved for kube-system/kube-dns"
    );
    assert!(matches!(
        error,
        Error::Allocation(AllocationError::Reserved { .. })
    ));
    assert_eq!(registry.usage()[0].used, 0);
    registry.reserve(ip("10.0.0.10"), &dns).unwrap();
    assert_eq!(registry.usage()[0].used, 1);
    // A failed request counts, as every other one.
    let counters = &registry.counters()["10.0.0.0/24"];
    assert_eq!((counters.allocations.len(), counters.errors.len()), (1, 1));
}
