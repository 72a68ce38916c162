//! Tests of the families and addresses of Services.

use AddressRequest::{Dynamic, Keep, Static};
use Family::{V4, V6};
use FamilyPolicy::{PreferDualStack, RequireDualStack, SingleStack};

use super::*;

const DUAL: &[Family] = &[V4, V6];

fn spec(policy: Option<FamilyPolicy>, families: &[Family], addresses: &[&str]) -> AddressSpec {
    AddressSpec {
        service_type: ServiceType::ClusterIp,
        is_headless: false,
        has_selector: true,
        policy,
        families: families.to_vec(),
        addresses: addresses.iter().map(|address| ip(address)).collect(),
    }
}

fn headless(policy: Option<FamilyPolicy>, families: &[Family]) -> AddressSpec {
    AddressSpec {
        is_headless: true,
        ..spec(policy, families, &[])
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[track_caller]
fn check(
    spec: &AddressSpec,
    cluster: &[Family],
    before: Option<&AddressSpec>,
) -> (Vec<Family>, Vec<AddressRequest>, Vec<IpAddr>) {
    let plan = spec.plan(cluster, before).unwrap();
    (plan.families, plan.addresses, plan.released)
}

#[track_caller]
fn error(spec: &AddressSpec, cluster: &[Family], before: Option<&AddressSpec>) -> String {
    spec.plan(cluster, before).unwrap_err().to_string()
}

#[test]
fn a_service_without_address_fields_gets_the_default_family() {
    let silent = spec(None, &[], &[]);
    for (cluster, family) in [(&[V4][..], V4), (&[V6], V6), (&[V6, V4], V6)] {
        let plan = silent.plan(cluster, None).unwrap();
        assert_eq!(plan.policy, Some(SingleStack));
        assert_eq!(plan.addresses, [Dynamic(family)]);
    }
}

#[test]
fn the_second_family_is_added_if_the_cluster_has_it() {
    for policy in [PreferDualStack, RequireDualStack] {
        let first = spec(Some(policy), &[V6], &[]);
        let expected = (vec![V6, V4], vec![Dynamic(V6), Dynamic(V4)], vec![]);
        assert_eq!(check(&first, DUAL, None), expected);
    }
    let prefers = spec(Some(PreferDualStack), &[], &["10.0.0.5"]);
    let alone = (vec![V4], vec![Static(ip("10.0.0.5"))], vec![]);
    assert_eq!(check(&prefers, &[V4], None), alone);
    let requires = spec(Some(RequireDualStack), &[], &[]);
    assert_eq!(
        error(&requires, &[V4], None),
        "this cluster is not configured for dual-stack services"
    );
}

#[test]
fn families_follow_from_addresses() {
    let given = spec(Some(PreferDualStack), &[], &["fd00::5", "10.0.0.5"]);
    let expected = [Static(ip("fd00::5")), Static(ip("10.0.0.5"))];
    assert_eq!(given.plan(DUAL, None).unwrap().addresses, expected);
    for (given, part) in [
        (spec(None, &[], &["fd00::5"]), "IPv6 is not configured"),
        (spec(None, &[V6], &[]), "IPv6 is not configured"),
        (
            spec(None, &[V4], &["fd00::5"]),
            "fd00::5 is not of the family IPv4",
        ),
        (
            spec(None, &[], &["10.0.0.5", "10.0.0.6"]),
            "one entry for each family",
        ),
        (spec(None, &[V4, V6], &[]), "when spec.ipFamilies has two"),
        (
            spec(None, &[], &["10.0.0.5", "fd00::5"]),
            "when spec.clusterIPs has two",
        ),
    ] {
        let error = error(&given, &[V4], None);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn headless_services_have_families_and_no_addresses() {
    let selects = headless(None, &[]);
    assert_eq!(check(&selects, DUAL, None), (vec![V4], vec![], vec![]));
    let free = AddressSpec {
        has_selector: false,
        ..selects
    };
    // Even if the cluster has one family.
    let plan = free.plan(&[V6], None).unwrap();
    assert_eq!(plan.policy, Some(RequireDualStack));
    assert_eq!((plan.families, plan.addresses), (vec![V6, V4], vec![]));
}

#[test]
fn an_update_without_address_fields_changes_nothing() {
    let before = spec(Some(RequireDualStack), &[V4, V6], &["10.0.0.5", "fd00::5"]);
    let kept = vec![Keep(ip("10.0.0.5")), Keep(ip("fd00::5"))];
    let expected = (vec![V4, V6], kept, vec![]);
    for silent in [
        spec(None, &[], &[]),
        spec(None, &[V4, V6], &[]),
        spec(None, &[], &["10.0.0.5", "fd00::5"]),
    ] {
        assert_eq!(check(&silent, DUAL, Some(&before)), expected);
    }
}

#[test]
fn an_update_adds_and_releases_the_second_address() {
    let one = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
    let more = spec(Some(RequireDualStack), &[V4], &["10.0.0.5"]);
    let first = Keep(ip("10.0.0.5"));
    assert_eq!(
        check(&more, DUAL, Some(&one)),
        (vec![V4, V6], vec![first, Dynamic(V6)], vec![])
    );
    let two = spec(Some(RequireDualStack), &[V4, V6], &["10.0.0.5", "fd00::5"]);
    let released = (vec![V4], vec![first], vec![ip("fd00::5")]);
    let single = AddressSpec {
        policy: Some(SingleStack),
        ..two.clone()
    };
    assert_eq!(check(&single, DUAL, Some(&two)), released);
    assert_eq!(check(&one, DUAL, Some(&two)), released);
    assert_eq!(
        check(&spec(Some(SingleStack), &[V4], &[]), DUAL, Some(&two)),
        released
    );
    for reduced in [
        spec(None, &[V4], &["10.0.0.5"]),
        spec(None, &[], &["10.0.0.5"]),
        spec(None, &[V4], &[]),
    ] {
        assert!(error(&reduced, DUAL, Some(&two)).contains("must be SingleStack"));
    }
}

#[test]
fn no_address_or_family_is_replaced() {
    let one = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
    let two = spec(Some(RequireDualStack), DUAL, &["10.0.0.5", "fd00::5"]);
    for (before, update, place) in [
        (&one, spec(None, &[], &["10.0.0.6"]), "spec.clusterIPs[0]"),
        (&one, spec(None, &[V6], &["fd00::5"]), "spec.clusterIPs[0]"),
        (
            &one,
            spec(Some(RequireDualStack), &[], &["10.0.0.6", "fd00::5"]),
            "spec.clusterIPs[0]",
        ),
        (
            &two,
            spec(None, DUAL, &["10.0.0.5", "fd00::6"]),
            "spec.clusterIPs[1]",
        ),
        (
            &two,
            spec(None, &[], &["10.0.0.5", "fd00::6"]),
            "spec.clusterIPs[1]",
        ),
        (&one, headless(None, &[]), "spec.clusterIPs[0]"),
        (
            &two,
            headless(Some(SingleStack), &[V4]),
            "spec.clusterIPs[0]",
        ),
    ] {
        assert_eq!(
            error(&update, DUAL, Some(before)),
            format!("{place} may not change once set")
        );
    }
}

#[test]
fn a_headless_service_stays_headless() {
    let before = headless(Some(SingleStack), &[V4]);
    // An update that omits clusterIP.
    let plan = spec(None, &[], &[]).plan(DUAL, Some(&before)).unwrap();
    assert!(plan.is_headless);
    assert_eq!((plan.families, plan.addresses), (vec![V4], vec![]));
    assert_eq!(
        error(&spec(None, &[], &["10.0.0.5"]), DUAL, Some(&before)),
        "spec.clusterIPs[0] may not change once set"
    );
    for before in [Some(&before), None] {
        for service_type in [ServiceType::NodePort, ServiceType::LoadBalancer] {
            let update = AddressSpec {
                service_type,
                ..headless(None, &[])
            };
            let expected =
                format!("spec.clusterIPs[0] may not be None for a Service of type {service_type}");
            assert_eq!(error(&update, DUAL, before), expected);
        }
    }
}

#[test]
fn a_headless_service_may_change_its_families() {
    let one = headless(Some(SingleStack), &[V4]);
    let two = headless(Some(RequireDualStack), &[V4, V6]);
    for (before, update, families) in [
        (&one, headless(None, &[V6]), &[V6][..]),
        (&two, headless(None, &[V6, V4]), &[V6, V4]),
        (&two, headless(Some(SingleStack), &[V6]), &[V6]),
        (&one, headless(Some(PreferDualStack), &[V6]), &[V6, V4]),
        // Families that an update omits are those of a new Service.
        (
            &headless(Some(SingleStack), &[V6]),
            headless(None, &[]),
            &[V4],
        ),
        (
            &headless(Some(PreferDualStack), &[V6, V4]),
            headless(Some(PreferDualStack), &[]),
            DUAL,
        ),
    ] {
        let plan = update.plan(DUAL, Some(before)).unwrap();
        assert!(plan.is_headless);
        assert_eq!((&*plan.families, plan.addresses), (families, vec![]));
    }
    let reduced = error(&headless(None, &[V6]), DUAL, Some(&two));
    assert!(reduced.contains("must be SingleStack"), "{reduced}");
}

#[test]
fn prefer_dual_stack_follows_the_cluster_unless_an_update_repeats_every_field() {
    let one = spec(Some(PreferDualStack), &[V4], &["10.0.0.5"]);
    let first = Keep(ip("10.0.0.5"));
    assert_eq!(
        check(&one, DUAL, Some(&one)),
        (vec![V4], vec![first], vec![])
    );
    let two = spec(Some(PreferDualStack), &[V4, V6], &["10.0.0.5", "fd00::5"]);
    let kept = vec![first, Keep(ip("fd00::5"))];
    assert_eq!(check(&two, &[V4], Some(&two)), (vec![V4, V6], kept, vec![]));
    let is_new_type = AddressSpec {
        service_type: ServiceType::NodePort,
        ..one.clone()
    };
    for update in [
        spec(None, &[V4], &["10.0.0.5"]),
        spec(None, &[], &[]),
        spec(Some(PreferDualStack), &[], &["10.0.0.5"]),
        is_new_type,
    ] {
        let expected = (vec![V4, V6], vec![first, Dynamic(V6)], vec![]);
        assert_eq!(check(&update, DUAL, Some(&one)), expected, "{update:?}");
    }
    let headless_one = headless(Some(PreferDualStack), &[V4]);
    let repeated = check(&headless_one, DUAL, Some(&headless_one));
    assert_eq!(repeated, (vec![V4], vec![], vec![]));
    let without_policy = check(&headless(None, &[V4]), DUAL, Some(&headless_one));
    assert_eq!(without_policy, (vec![V4, V6], vec![], vec![]));
}

#[test]
fn an_external_name_has_no_address_field_of_its_own() {
    let external = |spec: AddressSpec| AddressSpec {
        service_type: ServiceType::ExternalName,
        ..spec
    };
    let served = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
    // The fields that an update repeats are dropped with the addresses.
    let plan = external(served.clone()).plan(DUAL, Some(&served)).unwrap();
    assert_eq!(
        (plan.released, plan.families),
        (vec![ip("10.0.0.5")], vec![])
    );
    for (update, field) in [
        (spec(None, &[], &["10.0.0.6"]), "spec.clusterIPs"),
        (headless(None, &[]), "spec.clusterIPs"),
        (spec(None, &[V6], &[]), "spec.ipFamilies"),
        (spec(Some(PreferDualStack), &[], &[]), "spec.ipFamilyPolicy"),
    ] {
        let update = external(update);
        for before in [Some(&served), None] {
            assert_eq!(
                error(&update, DUAL, before),
                format!("{field} may not be set for a Service of type ExternalName")
            );
        }
    }
}

#[test]
fn addresses_come_and_go_with_the_type() {
    let external = AddressSpec {
        service_type: ServiceType::ExternalName,
        ..spec(None, &[], &[])
    };
    let served = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
    let plan = external.plan(DUAL, Some(&served)).unwrap();
    assert_eq!(plan.released, [ip("10.0.0.5")]);
    assert_eq!((plan.policy, plan.addresses), (None, vec![]));
    let asks = spec(None, &[], &[]);
    let expected = (vec![V4], vec![Dynamic(V4)], vec![]);
    assert_eq!(check(&asks, DUAL, Some(&external)), expected);
}
