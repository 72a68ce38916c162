//! Tests of repair plans.

use std::slice::from_ref;

use super::*;
use crate::ip_address::MANAGER;
use vipline_service_ip::Family;

const MINUTE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_secs(5);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A Service, created an hour ago.
fn service(name: &str, ips: &[&str]) -> Service {
    Service {
        owner: OwnerRef::service("default", name),
        created: now() - 60 * MINUTE,
        is_external_name: false,
        cluster_ips: ips.iter().map(|ip| (*ip).into()).collect(),
    }
}

/// An IPAddress of a Service, created half an hour ago.
fn address(ip: &str, service: &str) -> IpAddress {
    let ip = ip.parse().unwrap();
    IpAddress {
        ip,
        uid: format!("uid of {ip}").into(),
        version: "7".into(),
        family: Some(Family::of(ip).as_str().into()),
        manager: Some(MANAGER.into()),
        owner: OwnerRef::service("default", service),
        created: now() - 30 * MINUTE,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn planned(services: &[Service], addresses: &[IpAddress]) -> Plan {
    planned_at(services, addresses, now())
}

fn planned_at(services: &[Service], addresses: &[IpAddress], now: SystemTime) -> Plan {
    let cidr = |name: &str, ranges: &[&str]| ServiceCidr {
        name: name.into(),
        version: "7".into(),
        ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        unreadable: Vec::new(),
        finalizers: Vec::new(),
        conditions: Vec::new(),
        deleted: None,
    };
    let cidrs = [
        cidr("kubernetes", &["10.0.0.0/24", "fd00::/112"]),
        cidr("more", &["10.9.0.0/24"]),
    ];
    plan(services, addresses, &cidrs, now)
}

fn found(plan: &Plan) -> Vec<String> {
    plan.findings.iter().map(ToString::to_string).collect()
}

fn created(address: &str, service: &str) -> Action {
    Action::Create {
        ip: ip(address),
        owner: OwnerRef::service("default", service),
    }
}

fn deleted(address: &IpAddress) -> Action {
    Action::Delete {
        ip: address.ip,
        uid: address.uid.clone(),
        version: address.version.clone(),
    }
}

fn recreated(address: &IpAddress, service: &str) -> Action {
    Action::Recreate {
        ip: address.ip,
        uid: address.uid.clone(),
        version: address.version.clone(),
        owner: OwnerRef::service("default", service),
    }
}

#[test]
fn consistent_objects_require_no_action() {
    let services = [
        service("web", &["10.0.0.1", "fd00::1"]),
        service("db", &["10.9.0.1"]),
        service("headless", &[]),
    ];
    let addresses = [
        address("10.0.0.1", "web"),
        address("fd00::1", "web"),
        address("10.9.0.1", "db"),
    ];
    assert_eq!(planned(&services, &addresses), Plan::default());
}

#[test]
fn invalid_addresses_are_reported() {
    let plan = planned(&[service("web", &["10.0.0.300"])], &[]);
    assert_eq!(
        found(&plan),
        ["ClusterIPNotValid: Service default/web: 10.0.0.300 is not an address"]
    );
    assert_eq!(plan.actions, []);
}

#[test]
fn an_address_in_no_service_cidr_is_reported_and_not_changed() {
    for outside in ["10.1.0.1", "10.0.0.0", "10.0.0.255", "fd01::1"] {
        let plan = planned(&[service("web", &[outside])], &[address(outside, "web")]);
        assert_eq!(
            found(&plan),
            [format!(
                "ClusterIPOutOfRange: Service default/web: {outside} is in no ServiceCIDR"
            )]
        );
        assert_eq!(plan.actions, []);
    }
}

#[test]
fn an_unallocated_address_of_a_service_is_allocated() {
    let plan = planned(
        &[service("web", &["10.0.0.1", "fd00::1"])],
        &[address("10.0.0.1", "web")],
    );
    assert_eq!(
        found(&plan),
        ["ClusterIPNotAllocated: Service default/web: fd00::1 is not allocated; allocating it"]
    );
    assert_eq!(plan.actions, [created("fd00::1", "web")]);
    assert_eq!(plan.requeue_at, None);
}

#[test]
fn the_older_of_two_services_gets_an_address() {
    let mut old = service("old", &["10.0.0.1", "10.0.0.1"]);
    old.created -= MINUTE;
    let services = [service("a", &["10.0.0.1"]), old];
    let plan = planned(&services, &[]);
    assert_eq!(plan.actions, [created("10.0.0.1", "old")]);
    let reasons: Vec<_> = plan.findings.iter().map(|one| one.reason).collect();
    assert_eq!(
        reasons,
        [
            Reason::ClusterIpNotAllocated,
            Reason::ClusterIpAlreadyAllocated
        ]
    );
    assert_eq!(
        plan.findings[1].service,
        Some(OwnerRef::service("default", "a"))
    );
}

#[test]
fn an_address_of_a_service_that_has_it_is_kept() {
    let services = [service("web", &["10.0.0.1"]), service("db", &["10.0.0.1"])];
    let plan = planned(&services, &[address("10.0.0.1", "web")]);
    assert_eq!(
        found(&plan),
        [
            "ClusterIPAlreadyAllocated: Service default/db: 10.0.0.1 belongs to another owner; recreate the Service"
        ]
    );
    assert_eq!(plan.actions, []);
}

#[test]
fn an_address_with_a_wrong_reference_is_recreated_for_its_service() {
    let gone = address("10.0.0.1", "gone");
    let mut odd = address("10.0.0.1", "web");
    odd.owner.resource = "gateways".into();
    let mut grouped = address("10.0.0.1", "web");
    grouped.owner.group = "x.io".into();
    for address in [gone, odd, grouped] {
        let plan = planned(&[service("web", &["10.0.0.1"])], from_ref(&address));
        assert_eq!(plan.findings[0].reason, Reason::ClusterIpNotAllocated);
        assert_eq!(plan.findings.len(), 1);
        assert_eq!(plan.actions, [recreated(&address, "web")]);
    }
}

#[test]
fn an_address_of_another_manager_is_not_changed() {
    let mut gateway = address("10.0.0.1", "g");
    gateway.owner.resource = "gateways".into();
    gateway.manager = Some("somebody-else".into());
    let mut unmanaged = address("10.0.0.1", "gone");
    unmanaged.manager = None;
    for address in [gateway, unmanaged] {
        let plan = planned(&[service("web", &["10.0.0.1"])], from_ref(&address));
        assert_eq!(plan.findings[0].reason, Reason::ClusterIpAlreadyAllocated);
        assert_eq!(plan.actions, []);
        assert_eq!(planned(&[], &[address]), Plan::default());
    }
}

#[test]
fn wrong_labels_are_patched() {
    let mut bare = address("10.0.0.1", "web");
    bare.manager = None;
    let mut odd = address("10.0.0.1", "web");
    odd.family = Some("IPv6".into());
    let mut less = address("10.0.0.1", "web");
    less.family = None;
    for address in [bare, odd, less] {
        let plan = planned(&[service("web", &["10.0.0.1"])], &[address]);
        assert_eq!(found(&plan), [""; 0]);
        let label = Action::Label {
            ip: ip("10.0.0.1"),
            version: "7".into(),
        };
        assert_eq!(plan.actions, [label]);
    }
}

#[test]
fn a_managed_address_that_does_not_refer_to_a_service_is_released() {
    let mut odd = address("10.0.0.1", "web");
    odd.owner.resource = "gateways".into();
    odd.created = now();
    let plan = planned(&[], &[odd.clone()]);
    assert_eq!(
        found(&plan),
        ["IPAddressNotAllocated: 10.0.0.1 refers to an object that is not a Service; releasing it"]
    );
    assert_eq!(plan.actions, [deleted(&odd)]);
}

#[test]
fn an_address_without_a_service_is_released_after_a_minute() {
    let mut leaked = address("10.0.0.1", "gone");
    leaked.created = now();
    let end = now() + MINUTE;
    let waiting = planned_at(&[], &[leaked.clone()], end - MOMENT);
    assert_eq!((waiting.actions.len(), waiting.requeue_at), (0, Some(end)));
    let plan = planned_at(&[], &[leaked.clone()], end);
    assert_eq!(
        found(&plan),
        [
            "IPAddressNotAllocated: Service default/gone: 10.0.0.1 refers to a Service that does not exist; releasing it"
        ]
    );
    assert_eq!(plan.actions, [deleted(&leaked)]);
    assert_eq!(plan.requeue_at, Some(end), "at once");
}

#[test]
fn an_address_that_its_service_does_not_have_is_released() {
    let stale = address("10.0.0.2", "web");
    let mut services = [service("web", &["10.0.0.1"])];
    let addresses = [address("10.0.0.1", "web"), stale.clone()];
    let plan = planned(&services, &addresses);
    assert_eq!(
        found(&plan),
        [
            "IPAddressWrongReference: Service default/web: 10.0.0.2 refers to a Service that does not have it; releasing it"
        ]
    );
    assert_eq!(plan.actions, [deleted(&stale)]);
    // Even if the Service has no other address.
    services[0].cluster_ips.clear();
    assert_eq!(planned(&services, &addresses).actions.len(), 2);
}

#[test]
fn another_service_gets_an_address_after_its_release() {
    let services = [service("web", &["10.0.0.1"]), service("db", &["10.0.0.2"])];
    let wrong = address("10.0.0.1", "db");
    let addresses = [wrong.clone(), address("10.0.0.2", "db")];
    let plan = planned(&services, &addresses);
    assert_eq!(plan.actions, [deleted(&wrong)]);
    let reasons: Vec<_> = plan.findings.iter().map(|one| one.reason).collect();
    assert_eq!(reasons, [Reason::IpAddressWrongReference]);
    assert_eq!(plan.requeue_at, Some(now()));
    let plan = planned(&services, &addresses[1..]);
    assert_eq!(plan.actions, [created("10.0.0.1", "web")]);
}

#[test]
fn an_update_in_progress_has_a_grace_period() {
    let mut fresh = address("10.0.0.2", "web");
    fresh.created = now();
    let web = service("web", &["10.0.0.1"]);
    let addresses = [address("10.0.0.1", "web"), fresh.clone()];
    let end = now() + MOMENT;
    let waiting = planned(from_ref(&web), &addresses);
    assert_eq!((waiting.actions.len(), waiting.requeue_at), (0, Some(end)));
    let plan = planned_at(from_ref(&web), &addresses, end);
    assert_eq!(plan.actions, [deleted(&fresh)]);
    // An address of a former Service of that name has no grace period.
    let mut young = web;
    young.created = now() + MOMENT;
    assert_eq!(planned(&[young], &addresses).actions.len(), 1);
}

#[test]
fn a_service_that_becomes_an_external_name_has_a_grace_period() {
    let mut fresh = address("10.0.0.2", "web");
    fresh.created = now() - MOMENT;
    let mut web = service("web", &[]);
    assert_eq!(planned(&[web.clone()], &[fresh.clone()]).actions.len(), 1);
    web.is_external_name = true;
    let waiting = planned(&[web.clone()], &[fresh.clone()]);
    let end = fresh.created + MINUTE;
    assert_eq!((waiting.actions.len(), waiting.requeue_at), (0, Some(end)));
    let plan = planned_at(&[web], &[fresh.clone()], end);
    assert_eq!(plan.actions, [deleted(&fresh)]);
}

#[test]
fn an_address_of_an_external_name_is_not_allocated() {
    let mut web = service("web", &["10.0.0.1"]);
    web.is_external_name = true;
    assert_eq!(planned(&[web], &[]), Plan::default());
}
