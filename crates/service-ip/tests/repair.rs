//! Tests of repair with concurrent allocations and releases.

use std::net::IpAddr;

use vipline_service_ip::{
    AddressRange, Allocator, Cidrs, Error, Finding, OwnerRef, Pool, Registry, Repair, RepairReason,
    Reservations, ServiceItems,
};

use faulty::{Fault, Faulty};

mod faulty;

type Addresses = Allocator<AddressRange>;

/// A store with a registry and a repair.
struct Cluster {
    store: Faulty<Addresses>,
    registry: Registry<Addresses, Faulty<Addresses>>,
    repair: Repair<IpAddr>,
}

impl Cluster {
    /// Returns a cluster with allocated addresses of 10.0.0.0/24.
    fn new(taken: &[&str]) -> Self {
        let range = "10.0.0.0/24".parse().expect("a valid network");
        let mut pool = Addresses::new(range);
        for address in taken {
            pool.reserve(ip(address)).expect("a free address");
        }
        let store = Faulty::new(pool);
        Self {
            registry: Registry::new(store.clone()),
            store,
            repair: Repair::new(),
        }
    }

    fn try_pass(
        &mut self,
        services: &[ServiceItems<IpAddr>],
    ) -> Result<Vec<Finding<IpAddr>>, Error> {
        self.repair.pass(&mut self.registry, || services.to_vec())
    }

    /// Runs a pass and returns its findings as text.
    fn pass(&mut self, services: &[ServiceItems<IpAddr>]) -> Vec<String> {
        let findings = self.try_pass(services).expect("a successful pass");
        findings.iter().map(ToString::to_string).collect()
    }

    fn taken(&self) -> Vec<String> {
        let snapshot = self.store.look();
        snapshot.pool.items().map(|item| item.to_string()).collect()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a valid address")
}

/// Returns a Service with addresses.
fn service(name: &str, addresses: &[&str]) -> ServiceItems<IpAddr> {
    ServiceItems::parse(
        OwnerRef::service("default", name),
        addresses.iter().copied(),
    )
}

#[test]
fn consistent_items_have_no_findings() {
    let mut cluster = Cluster::new(&["10.0.0.1", "10.0.0.9"]);
    let services = [service("a", &["10.0.0.9"]), service("b", &["10.0.0.1"])];
    for _ in 0..4 {
        assert!(cluster.pass(&services).is_empty());
    }
    assert_eq!(cluster.taken(), ["10.0.0.1", "10.0.0.9"]);
    assert_eq!(cluster.store.commits(), 0);
}

#[test]
fn an_address_that_its_service_has_in_another_form_stays_allocated() {
    let taken = ["10.0.0.10", "10.0.0.11", "10.0.0.12"];
    let mut cluster = Cluster::new(&taken);
    let services = [
        service("a", &["010.0.0.10"]),
        service("b", &["::ffff:10.0.0.11"]),
        service("c", &["::FFFF:a00:c"]),
    ];
    for _ in 0..4 {
        assert_eq!(cluster.pass(&services), [""; 0]);
    }
    assert_eq!(cluster.taken(), taken);
    let expected = "Service default/d has 10.0.0.10, which belongs to default/a; recreate it";
    let duplicate = service("d", &["10.0.0.10"]);
    assert_eq!(
        cluster.pass(&[&services[..], &[duplicate]].concat()),
        [expected]
    );
}

#[test]
fn a_store_that_requires_repair_rejects_changes_until_a_pass() {
    let mut cluster = Cluster::new(&["10.0.0.9"]);
    let mut other = Registry::new(cluster.store.clone());
    let owner = OwnerRef::service("default", "new");
    other.refresh().unwrap();
    let reason = RepairReason::Uninitialized {
        object: "the key".into(),
    };
    let lost = reason.clone();
    // The key disappears after a registry has loaded it.
    cluster.store.meanwhile(move |snapshot| {
        snapshot.pool.release(ip("10.0.0.9"));
        snapshot.repair_reason = Some(lost);
    });
    let error = other.allocate(&owner, &mut || 0).unwrap_err();
    assert!(matches!(&error, Error::RepairRequired(found) if *found == reason));
    let expected = "the key is not initialized: a repair pass is required first";
    assert_eq!(error.to_string(), expected);
    let error = other.release(ip("10.0.0.9"), &owner).unwrap_err();
    assert!(matches!(error, Error::RepairRequired(_)), "{error}");
    let error = other.dry_run(|draft| draft.reserve(ip("10.0.0.7"), &owner));
    assert!(matches!(error, Err(Error::RepairRequired(_))), "{error:?}");
    assert_eq!(cluster.store.commits(), 0);
    let services = [service("a", &["10.0.0.9"])];
    assert_eq!(
        cluster.pass(&services),
        [
            "the key is not initialized; written by repair",
            "Service default/a has 10.0.0.9, which was not allocated: it is now",
        ]
    );
    let refused = other.reserve(ip("10.0.0.9"), &owner).unwrap_err();
    assert_eq!(refused.to_string(), "10.0.0.9 is already allocated");
    assert!(cluster.pass(&services).is_empty());
}

#[test]
fn a_store_without_a_service_is_written_by_the_first_pass() {
    let mut cluster = Cluster::new(&[]);
    let object = "the key".into();
    let lost = Some(RepairReason::Uninitialized { object });
    cluster
        .store
        .meanwhile(|snapshot| snapshot.repair_reason = lost);
    let mut other = Registry::new(cluster.store.clone());
    let owner = OwnerRef::service("default", "new");
    other.allocate(&owner, &mut || 0).unwrap_err();
    assert_eq!(cluster.pass(&[]).len(), 1);
    assert_eq!(cluster.store.commits(), 1, "although nothing is taken");
    other.allocate(&owner, &mut || 0).unwrap();
}

#[test]
fn leaked_items_are_released_in_the_third_pass() {
    let mut cluster = Cluster::new(&["10.0.0.1", "10.0.0.9"]);
    let services = [service("a", &["10.0.0.1"])];
    for passes in 1..=2 {
        let expected =
            format!("10.0.0.9 may have leaked: no Service has it in {passes} of 3 passes");
        assert_eq!(cluster.pass(&services), [expected]);
        assert_eq!(cluster.taken(), ["10.0.0.1", "10.0.0.9"]);
    }
    let findings = cluster.try_pass(&services).unwrap();
    assert_eq!(findings[0].label(), Some("leak"));
    assert_eq!(
        findings[0].to_string(),
        "10.0.0.9 has leaked: no Service has it; released"
    );
    assert_eq!(cluster.taken(), ["10.0.0.1"]);
    assert!(cluster.pass(&services).is_empty());
}

#[test]
fn an_item_used_again_restarts_the_count_of_passes() {
    let mut cluster = Cluster::new(&["10.0.0.9"]);
    let a = [service("a", &["10.0.0.9"])];
    for services in [&[][..], &[], &a, &[], &[], &a] {
        cluster.pass(services);
        assert_eq!(cluster.taken(), ["10.0.0.9"]);
    }
}

#[test]
fn an_item_allocated_again_restarts_the_count_of_passes() {
    let mut cluster = Cluster::new(&[]);
    let mut other = Registry::new(cluster.store.clone());
    let (a, b) = (
        OwnerRef::service("default", "a"),
        OwnerRef::service("default", "b"),
    );
    other.reserve(ip("10.0.0.9"), &a).unwrap();
    cluster.pass(&[]);
    cluster.pass(&[]);
    other.release(ip("10.0.0.9"), &a).unwrap();
    other.reserve(ip("10.0.0.9"), &b).unwrap();
    // Service b is not stored yet.
    let expected = "10.0.0.9 (default/b) may have leaked: no Service has it in 1 of 3 passes";
    assert_eq!(cluster.pass(&[]), [expected]);
    assert!(cluster.pass(&[service("b", &["10.0.0.9"])]).is_empty());
}

#[test]
fn services_are_listed_again_after_a_conflict() {
    let mut cluster = Cluster::new(&["10.0.0.9", "10.0.0.30"]);
    cluster.pass(&[]);
    cluster.pass(&[]);
    // Both items are due for release, but the first one is allocated to a new Service
    // meanwhile.
    cluster.store.meanwhile(|snapshot| {
        snapshot.pool.release(ip("10.0.0.9"));
        snapshot.pool.reserve(ip("10.0.0.9")).unwrap();
    });
    let mut lists = 0;
    let findings = cluster.repair.pass(&mut cluster.registry, || {
        lists += 1;
        let addresses: &[&str] = if lists == 1 { &[] } else { &["10.0.0.9"] };
        vec![service("new", addresses)]
    });
    let expected = Finding::Leaked {
        item: ip("10.0.0.30"),
        recorded: None,
    };
    assert_eq!(findings.unwrap(), [expected]);
    assert_eq!((lists, cluster.taken()), (2, vec!["10.0.0.9".to_owned()]));
}

#[test]
fn a_conflict_does_not_count_as_a_pass() {
    let mut cluster = Cluster::new(&["10.0.0.9"]);
    let a = [service("a", &["10.0.0.1"])];
    let faults = [true, false].map(|is_told| Fault::Conflict { is_told });
    cluster.store.fail(faults.repeat(3));
    // The pass changes the store, so it is planned seven times.
    let findings = cluster.pass(&a);
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[1].contains("in 1 of 3 passes"), "{findings:?}");
    assert_eq!(cluster.taken(), ["10.0.0.1", "10.0.0.9"]);
}

#[test]
fn a_failed_pass_does_not_count() {
    let mut cluster = Cluster::new(&["10.0.0.9"]);
    let a = [service("a", &["10.0.0.1"])];
    cluster.store.fail([Fault::Failed; 5]);
    for _ in 0..5 {
        let error = cluster.try_pass(&a).unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{error}");
    }
    assert!(cluster.pass(&a)[1].contains("in 1 of 3 passes"));
    let counters = cluster.repair.counters();
    assert_eq!(counters.failures, 5);
    assert_eq!(counters.findings, [("repair", 1)].into());
    cluster.pass(&a);
    cluster.store.fail([Fault::Failed]);
    assert!(cluster.try_pass(&a).is_err());
    // Earlier passes still count.
    assert!(cluster.pass(&a)[0].contains("has leaked"));
}

#[test]
fn a_pass_with_unknown_outcome_restarts_the_count_of_passes() {
    for is_made in [true, false] {
        let mut cluster = Cluster::new(&["10.0.0.9"]);
        cluster.pass(&[]);
        cluster.pass(&[]);
        cluster.store.fail([Fault::Unknown { is_made }]);
        let error = cluster.try_pass(&[]).unwrap_err();
        assert!(matches!(error, Error::Unknown(_)), "{error}");
        assert_eq!(cluster.taken().is_empty(), is_made);
        // Another process allocates the item before it stores its Service.
        let mut other = Registry::new(cluster.store.clone());
        if is_made {
            let b = OwnerRef::service("default", "b");
            other
                .change(|draft| draft.reserve(ip("10.0.0.9"), &b))
                .unwrap();
        }
        assert!(cluster.pass(&[])[0].contains("in 1 of 3 passes"));
    }
}

#[test]
fn nothing_changes_when_services_cannot_be_listed() {
    let mut cluster = Cluster::new(&["10.0.0.9"]);
    for _ in 0..4 {
        let failed = cluster
            .repair
            .try_pass(&mut cluster.registry, || Err("no answer"));
        assert!(
            matches!(&failed, Err(Error::Services(error)) if error.to_string() == "no answer"),
            "{failed:?}"
        );
    }
    assert!(cluster.pass(&[])[0].contains("in 1 of 3 passes"));
}

#[test]
fn findings_name_the_service() {
    let mut cluster = Cluster::new(&["10.0.0.1"]);
    let services = [
        service("a", &["10.0.0.1", "10.1.0.1", "10.0.0.255"]),
        service("b", &["fd00::1", "nonsense"]),
        service("c", &["10.0.0.1"]),
        service("d", &["10.0.0.7", "10.0.0.7"]),
    ];
    let findings = cluster.try_pass(&services).unwrap();
    let expected: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        expected,
        [
            r#"Service default/b has "nonsense", which is not valid; recreate it"#,
            "Service default/c has 10.0.0.1, which belongs to default/a; recreate it",
            "Service default/d has 10.0.0.7, which was not allocated: it is now",
            "Service default/d has 10.0.0.7 twice; recreate it",
            "Service default/a has 10.0.0.255: 10.0.0.255 is not in the valid range \
             10.0.0.0/24; recreate it",
            "Service default/a has 10.1.0.1: 10.1.0.1 is not in the valid range 10.0.0.0/24; \
             recreate it",
            "Service default/b has fd00::1: fd00::1 is not of the family of 10.0.0.0/24; \
             recreate it",
        ]
    );
    let labels: Vec<_> = findings.iter().filter_map(Finding::label).collect();
    let expected = [
        "invalid",
        "duplicate",
        "repair",
        "duplicate",
        "outOfRange",
        "outOfRange",
        "invalid",
    ];
    assert_eq!(labels, expected);
    assert_eq!(cluster.taken(), ["10.0.0.1", "10.0.0.7"]);
    let snapshot = cluster.store.look();
    let d = OwnerRef::service("default", "d");
    assert_eq!(snapshot.owners.get(&ip("10.0.0.7")), Some(&d));
}

#[test]
fn addresses_outside_of_all_service_cidrs_are_reported_and_kept() {
    let mut pool = Cidrs::ipv4();
    let range = "10.0.0.0/24".parse().unwrap();
    pool.insert("kubernetes", range, true).unwrap();
    for taken in ["10.0.0.9", "10.1.0.1", "10.1.0.2"] {
        pool.mark_allocated(ip(taken)).unwrap();
    }
    let store = Faulty::new(pool);
    let mut registry = Registry::new(store.clone());
    let mut repair = Repair::new();
    let services = [service("a", &["10.0.0.9", "10.1.0.1"])];
    for _ in 0..4 {
        let list = || services.to_vec();
        let findings = repair.pass(&mut registry, list).unwrap();
        assert_eq!(findings[0].label(), Some("outOfRange"));
    }
    let taken: Vec<IpAddr> = store.look().pool.items().collect();
    assert_eq!(taken, [ip("10.0.0.9"), ip("10.1.0.1")]);
}

#[test]
fn the_recorded_owner_keeps_a_duplicate_address() {
    let mut cluster = Cluster::new(&[]);
    let mut other = Registry::new(cluster.store.clone());
    let b = OwnerRef::service("default", "b");
    other.reserve(ip("10.0.0.9"), &b).unwrap();
    let both = [service("a", &["10.0.0.9"]), service("b", &["10.0.0.9"])];
    let expected = "Service default/a has 10.0.0.9, which belongs to default/b; recreate it";
    assert_eq!(cluster.pass(&both), [expected]);
    // Without the other Service the record is wrong.
    let expected = "Service default/a has 10.0.0.9, which was recorded for default/b";
    assert_eq!(cluster.pass(&both[..1]), [expected]);
    assert!(cluster.pass(&both[..1]).is_empty());
    let refused = other.release(ip("10.0.0.9"), &b);
    assert!(matches!(refused, Err(Error::Allocation(_))), "{refused:?}");
}

#[test]
fn a_failed_pass_changes_nothing() {
    let mut cluster = Cluster::new(&[]);
    cluster.store.fail([Fault::Failed]);
    let mut services = vec![service("a", &["10.0.0.9"])];
    assert!(cluster.try_pass(&services).is_err());
    assert!(cluster.taken().is_empty());
    services.clear();
    assert!(cluster.pass(&services).is_empty());
}

#[test]
fn repair_respects_reservations() {
    let mut cluster = Cluster::new(&["10.0.0.10", "10.0.0.11", "10.0.0.12"]);
    let mut reservations = Reservations::new();
    let dns = OwnerRef::service("kube-system", "dns");
    reservations
        .reserve(ip("10.0.0.10")..=ip("10.0.0.10"), dns)
        .unwrap();
    reservations
        .exclude(ip("10.0.0.12")..=ip("10.0.0.20"))
        .unwrap();
    cluster.registry.set_reservations(reservations);
    let services = [service("a", &["10.0.0.13"]), service("b", &["10.0.0.14"])];
    let reported = |text: &str| format!("{text} is excluded from allocation");
    for pass in 1..=3 {
        let findings = cluster.pass(&services);
        for address in ["10.0.0.13", "10.0.0.14"] {
            let reported = reported(address);
            let found = findings.iter().any(|finding| finding.contains(&reported));
            assert!(found, "pass {pass}: {findings:?}");
        }
    }
    // 10.0.0.11 has leaked. The reserved and the excluded one are kept for later.
    let kept = ["10.0.0.10", "10.0.0.12", "10.0.0.13", "10.0.0.14"];
    assert_eq!(cluster.taken(), kept);
}

#[test]
fn items_of_other_objects_are_not_released() {
    let mut cluster = Cluster::new(&[]);
    let gateway = OwnerRef::new("gateway.networking.k8s.io", "gateways", "default", "web");
    let address = cluster.registry.allocate(&gateway, &mut || 0).unwrap();
    for _ in 0..4 {
        assert!(cluster.pass(&[]).is_empty());
    }
    assert!(cluster.registry.release(address, &gateway).unwrap());
}
