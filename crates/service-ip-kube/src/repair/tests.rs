//! One thing that is wrong at a time.

use std::slice::from_ref;

use super::*;
use crate::ip_address::MANAGER;
use vipline_service_ip::Family;

const MINUTE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_secs(5);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A Service that is an hour old.
fn service(name: &str, ips: &[&str]) -> Service {
    Service {
        owner: ServiceRef::new("default", name),
        created: now() - 60 * MINUTE,
        is_external_name: false,
        cluster_ips: ips.iter().map(|ip| (*ip).into()).collect(),
    }
}

/// An address of a Service, half an hour old.
fn address(ip: &str, service: &str) -> IpAddress {
    let ip = ip.parse().unwrap();
    IpAddress {
        ip,
        uid: format!("uid of {ip}").into(),
        version: "7".into(),
        family: Some(Family::of(ip).label().into()),
        manager: Some(MANAGER.into()),
        parent: ParentRef::service(&ServiceRef::new("default", service)),
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
        owner: ServiceRef::new("default", service),
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
        owner: ServiceRef::new("default", service),
    }
}

#[test]
fn where_all_is_well_nothing_is_done() {
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
fn what_is_no_address_is_told() {
    let plan = planned(&[service("web", &["10.0.0.300"])], &[]);
    assert_eq!(
        found(&plan),
        ["ClusterIPNotValid: Service default/web: 10.0.0.300 is no address"]
    );
    assert_eq!(plan.actions, []);
}

#[test]
fn an_address_in_no_service_cidr_is_told_and_left() {
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
fn an_address_that_is_not_allocated_is_allocated() {
    let plan = planned(
        &[service("web", &["10.0.0.1", "fd00::1"])],
        &[address("10.0.0.1", "web")],
    );
    assert_eq!(
        found(&plan),
        [
            "ClusterIPNotAllocated: Service default/web: fd00::1 is not allocated; it is allocated again"
        ]
    );
    assert_eq!(plan.actions, [created("fd00::1", "web")]);
    assert_eq!(plan.requeue_at, None);
}

#[test]
fn of_two_services_with_one_address_the_older_one_has_it() {
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
        Some(ServiceRef::new("default", "a"))
    );
}

#[test]
fn an_address_of_a_service_that_has_it_is_not_taken_away() {
    let services = [service("web", &["10.0.0.1"]), service("db", &["10.0.0.1"])];
    let plan = planned(&services, &[address("10.0.0.1", "web")]);
    assert_eq!(
        found(&plan),
        [
            "ClusterIPAlreadyAllocated: Service default/db: 10.0.0.1 belongs to another one; the Service must be made anew"
        ]
    );
    assert_eq!(plan.actions, []);
}

#[test]
fn an_address_with_a_wrong_reference_is_given_to_its_service() {
    let gone = address("10.0.0.1", "gone");
    let mut odd = address("10.0.0.1", "web");
    odd.parent.resource = "gateways".into();
    let mut grouped = address("10.0.0.1", "web");
    grouped.parent.group = "x.io".into();
    for address in [gone, odd, grouped] {
        let plan = planned(&[service("web", &["10.0.0.1"])], from_ref(&address));
        assert_eq!(plan.findings[0].reason, Reason::ClusterIpNotAllocated);
        assert_eq!(plan.findings.len(), 1);
        assert_eq!(plan.actions, [recreated(&address, "web")]);
    }
}

#[test]
fn an_address_of_somebody_elses_is_left_to_them() {
    let mut gateway = address("10.0.0.1", "g");
    gateway.parent.resource = "gateways".into();
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
fn labels_that_are_not_right_are_made_so() {
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
fn an_address_that_was_made_to_refer_to_something_else_is_freed() {
    let mut odd = address("10.0.0.1", "web");
    odd.parent.resource = "gateways".into();
    odd.created = now();
    let plan = planned(&[], &[odd.clone()]);
    assert_eq!(
        found(&plan),
        [
            "IPAddressNotAllocated: 10.0.0.1 was of a Service, and is attached to something else; it is freed"
        ]
    );
    assert_eq!(plan.actions, [deleted(&odd)]);
}

#[test]
fn an_address_without_its_service_is_freed_after_a_minute() {
    let mut leaked = address("10.0.0.1", "gone");
    leaked.created = now();
    let end = now() + MINUTE;
    let waiting = planned_at(&[], &[leaked.clone()], end - MOMENT);
    assert_eq!((waiting.actions.len(), waiting.requeue_at), (0, Some(end)));
    let plan = planned_at(&[], &[leaked.clone()], end);
    assert_eq!(
        found(&plan),
        [
            "IPAddressNotAllocated: Service default/gone: 10.0.0.1 is of a Service that is not there; it is freed"
        ]
    );
    assert_eq!(plan.actions, [deleted(&leaked)]);
    assert_eq!(plan.requeue_at, Some(end), "at once");
}

#[test]
fn an_address_that_its_service_does_not_have_is_freed() {
    let stale = address("10.0.0.2", "web");
    let mut services = [service("web", &["10.0.0.1"])];
    let addresses = [address("10.0.0.1", "web"), stale.clone()];
    let plan = planned(&services, &addresses);
    assert_eq!(
        found(&plan),
        [
            "IPAddressWrongReference: Service default/web: 10.0.0.2 is of a Service that does not have it; it is freed"
        ]
    );
    assert_eq!(plan.actions, [deleted(&stale)]);
    // Even if it is the only one that a Service ever had.
    services[0].cluster_ips.clear();
    assert_eq!(planned(&services, &addresses).actions.len(), 2);
}

#[test]
fn another_service_gets_an_address_once_the_wrong_one_is_freed() {
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
fn a_change_that_is_under_way_is_waited_for() {
    let mut fresh = address("10.0.0.2", "web");
    fresh.created = now();
    let web = service("web", &["10.0.0.1"]);
    let addresses = [address("10.0.0.1", "web"), fresh.clone()];
    let end = now() + MOMENT;
    let waiting = planned(from_ref(&web), &addresses);
    assert_eq!((waiting.actions.len(), waiting.requeue_at), (0, Some(end)));
    let plan = planned_at(from_ref(&web), &addresses, end);
    assert_eq!(plan.actions, [deleted(&fresh)]);
    // One of a Service of that name that was there before is of no change.
    let mut young = web;
    young.created = now() + MOMENT;
    assert_eq!(planned(&[young], &addresses).actions.len(), 1);
}

#[test]
fn a_service_that_becomes_an_external_name_is_waited_for() {
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
