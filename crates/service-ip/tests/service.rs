//! Tests of the atomic allocation of addresses of both families.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;

use vipline_service_ip::{
    AddressRange, AddressSpec, AllocationError, Allocator, Error, Family, FamilyPolicy, Memory,
    OwnerRef, Pool, Registry, ServiceAddresses, ServiceType,
};

type Addresses = Allocator<AddressRange>;

const DUAL: &[Family] = &[Family::V4, Family::V6];

/// Returns a cluster with six IPv4 and three IPv6 addresses.
fn cluster() -> ServiceAddresses<Addresses, Memory<Addresses>> {
    let registry = |range: &str| Registry::new(Memory::new(Allocator::new(range.parse().unwrap())));
    ServiceAddresses::new(
        [
            (Family::V4, registry("10.0.0.0/29")),
            (Family::V6, registry("fd00::/126")),
        ]
        .into(),
    )
}

/// Returns a dual-stack Service.
fn dual(addresses: &[&str]) -> AddressSpec {
    AddressSpec {
        service_type: ServiceType::ClusterIp,
        is_headless: false,
        has_selector: true,
        policy: Some(FamilyPolicy::RequireDualStack),
        families: DUAL.to_vec(),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

/// Returns the allocated addresses of both families.
fn taken(cluster: &mut ServiceAddresses<Addresses, Memory<Addresses>>) -> Vec<String> {
    let mut taken = Vec::new();
    for family in DUAL {
        let registry = cluster.registry(*family).unwrap();
        let items: Vec<IpAddr> = registry.refresh().unwrap().pool.items().collect();
        taken.extend(items.iter().map(IpAddr::to_string));
    }
    taken
}

#[test]
fn earlier_allocations_are_reverted_after_a_failure() {
    let (mut cluster, mut zero) = (cluster(), || 0);
    let (web, other) = (
        OwnerRef::service("default", "web"),
        OwnerRef::service("default", "other"),
    );
    let plan = dual(&["10.0.0.3", "fd00::2"]).plan(DUAL, None).unwrap();
    let _stored = cluster.assign(&plan, &web, &mut zero).unwrap();
    let plan = dual(&["10.0.0.4", "fd00::2"]).plan(DUAL, None).unwrap();
    let error = cluster.assign(&plan, &other, &mut zero).unwrap_err();
    assert_eq!(
        error.to_string(),
        "default/other: failed to allocate fd00::2"
    );
    let Error::Assign {
        not_released,
        source,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(not_released.is_empty());
    assert_eq!(source.to_string(), "fd00::2 is already allocated");
    assert_eq!(taken(&mut cluster), ["10.0.0.3", "fd00::2"]);
}

#[test]
fn new_addresses_are_reverted_and_former_addresses_are_released_on_commit() {
    let (mut cluster, mut zero) = (cluster(), || 0);
    let web = OwnerRef::service("default", "web");
    let plan = dual(&[]).plan(DUAL, None).unwrap();
    let not_released = cluster.assign(&plan, &web, &mut zero).unwrap();
    assert_eq!(taken(&mut cluster).len(), 2);
    assert!(cluster.revert(not_released, &web).is_empty());
    assert!(taken(&mut cluster).is_empty());

    let assigned = cluster.assign(&plan, &web, &mut zero).unwrap();
    let before = AddressSpec {
        addresses: assigned.addresses.clone(),
        ..dual(&[])
    };
    assert!(cluster.commit(assigned, &web).is_empty());
    let single = AddressSpec {
        policy: Some(FamilyPolicy::SingleStack),
        ..before.clone()
    };
    let plan = single.plan(DUAL, Some(&before)).unwrap();
    let kept = cluster.assign(&plan, &web, &mut zero).unwrap();
    assert_eq!(kept.addresses, before.addresses[..1]);
    assert_eq!(
        taken(&mut cluster).len(),
        2,
        "the Service is not stored yet"
    );
    assert!(cluster.revert(kept.clone(), &web).is_empty());
    assert_eq!(taken(&mut cluster).len(), 2);
    assert!(cluster.commit(kept, &web).is_empty());
    assert_eq!(taken(&mut cluster), ["10.0.0.1"]);
}

#[test]
fn a_missing_family_is_reported_before_any_allocation() {
    let mut cluster = ServiceAddresses::<Addresses, Memory<Addresses>>::new(
        [(
            Family::V4,
            Registry::new(Memory::new(Allocator::new("10.0.0.0/29".parse().unwrap()))),
        )]
        .into(),
    );
    let plan = dual(&[]).plan(DUAL, None).unwrap();
    let error = cluster.assign(&plan, &OwnerRef::service("default", "web"), &mut || 0);
    assert!(matches!(
        error,
        Err(Error::Allocation(AllocationError::NotConfigured {
            family: Family::V6
        }))
    ));
    let registry = cluster.registry(Family::V4).unwrap();
    assert_eq!(registry.refresh().unwrap().pool.used(), 0);
}
