//! Tests of allocation with earlier and concurrent changes of other processes.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;
use vipline_service_ip::Family;
use vipline_service_ip::{AllocationError, Error, OwnerRef, Pool, Registry};
use vipline_service_ip_kube::blocking::Kube;

use crate::cluster::{Cluster, address, chain, cidr, later, owner, random};

#[track_caller]
fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_allocation_is_one_request() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    let mut random = random(1);
    let web = owner("web");
    let (first, asked) = cluster.asked(|| allocator.allocate(&web, &mut random).unwrap());
    let lists = ["list servicecidrs", "list ipaddresses"];
    assert_eq!(asked, [lists[0], lists[1], "create ipaddresses"]);
    for _ in 0..20 {
        let (_, asked) = cluster.asked(|| allocator.allocate(&web, &mut random).unwrap());
        assert_eq!(asked, ["create ipaddresses"]);
    }
    let (_, asked) = cluster.asked(|| allocator.reserve(ip("10.0.0.1"), &web).unwrap());
    assert_eq!(asked, ["create ipaddresses"]);
    let (freed, asked) = cluster.asked(|| allocator.release(first, &web).unwrap());
    assert!(freed);
    assert_eq!(asked, ["delete ipaddresses"]);
    assert_eq!(cluster.addresses().len(), 21);
}

#[test]
fn objects_have_the_form_of_upstream() {
    let cluster = Cluster::with(&["10.0.0.0/16", "fd00::/64"]);
    let client = Arc::new(cluster.client());
    for (family, label, taken) in [
        (Family::V4, "IPv4", "10.0.0.1"),
        (Family::V6, "IPv6", "fd00::a:1"),
    ] {
        let mut allocator = Registry::new(Kube::new(Arc::clone(&client), family));
        allocator.reserve(ip(taken), &owner("web")).unwrap();
        let object = cluster.server.object("IPAddress", "", taken).unwrap();
        assert_eq!(object["apiVersion"], "networking.k8s.io/v1");
        assert_eq!(
            object["metadata"]["labels"],
            json!({
                "ipaddress.kubernetes.io/ip-family": label,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            })
        );
        assert_eq!(
            object["spec"],
            json!({
                "parentRef": {
                    "group": "",
                    "resource": "services",
                    "namespace": "default",
                    "name": "web",
                },
            })
        );
    }
}

#[test]
fn objects_of_other_owners_have_their_reference_and_another_manager() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let store = || cluster.store().with_manager("example.com");
    let mut allocator = Registry::new(store());
    let gateway = OwnerRef::new("gateway.networking.k8s.io", "gateways", "default", "web");
    allocator.reserve(ip("10.0.0.1"), &gateway).unwrap();
    let object = cluster.server.object("IPAddress", "", "10.0.0.1").unwrap();
    let manager = &object["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"];
    assert_eq!(manager, "example.com");
    let parent = json!({
        "group": "gateway.networking.k8s.io",
        "resource": "gateways",
        "namespace": "default",
        "name": "web",
    });
    assert_eq!(object["spec"]["parentRef"], parent);
    // Repair releases addresses of its own manager only.
    cluster.client().repair(later(), &mut |_| ()).unwrap();
    // Another process with the same manager may release it, for the same owner.
    let mut other = Registry::new(store());
    let error = other.release(ip("10.0.0.1"), &owner("web")).unwrap_err();
    assert!(error.to_string().contains("belongs to gateways"), "{error}");
    assert!(other.release(ip("10.0.0.1"), &gateway).unwrap());
    assert_eq!(cluster.addresses().len(), 0);
}

#[test]
fn addresses_are_listed_in_pages_and_for_one_family() {
    let cluster = Cluster::with(&["10.0.0.0/16", "fd00::/64"]);
    let addresses = (0..1100).map(|n| address(&format!("10.0.{}.{}", n / 250, n % 250 + 1), "web"));
    cluster.server.apply_all(addresses);
    cluster.server.apply(address("fd00::1", "web"));
    let mut allocator = cluster.allocator();
    let (_, asked) = cluster.asked(|| allocator.refresh().map(drop).unwrap());
    let list = "list ipaddresses";
    assert_eq!(asked, ["list servicecidrs", list, list, list]);
    let snapshot = allocator.refresh().unwrap();
    assert_eq!(snapshot.pool.items().count(), 1100);
    assert_eq!(snapshot.owners.len(), 1100);
    assert_eq!(snapshot.owners.get(&ip("10.0.4.100")), Some(&owner("web")));
    let requests = cluster.server.requests();
    let label = "ipaddress.kubernetes.io/ip-family!=IPv6";
    assert_eq!(requests.last().unwrap().labels, label);
}

#[test]
fn a_list_with_an_expired_continue_token_is_restarted() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    cluster.server.apply(address("10.0.0.1", "web"));
    cluster.server.faults(|faults| {
        faults.only = Some("ipaddresses".into());
        faults.error_response = Some(apiserver::ErrorResponse {
            code: 410,
            retry_after: None,
            times: 1,
        });
    });
    let mut allocator = cluster.allocator();
    assert_eq!(allocator.refresh().unwrap().pool.items().count(), 1);
    assert_eq!(cluster.server.count("list", "ipaddresses"), 2);
}

#[test]
fn two_stores_never_allocate_the_same_address() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let (mut one, mut other) = (cluster.allocator(), cluster.allocator());
    one.refresh().unwrap();
    other.refresh().unwrap();
    let taken = one.allocate(&owner("web"), &mut || 0).unwrap();
    // The other store does not know the address, requests it and is rejected.
    let (next, asked) = cluster.asked(|| other.allocate(&owner("db"), &mut || 0).unwrap());
    assert_ne!(next, taken);
    assert_eq!(asked, ["create ipaddresses"; 2], "nothing is listed anew");
    let refused = other.reserve(taken, &owner("db")).unwrap_err();
    assert!(matches!(&refused, Error::Allocation(error) if error.is_allocated()));
    let refused = other.release(taken, &owner("db")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("{taken} belongs to default/web")
    );
    assert!(!other.release(ip("10.0.9.9"), &owner("db")).unwrap());
    assert_eq!(cluster.addresses().len(), 2);
}

#[test]
fn all_addresses_are_listed_again_after_repeated_conflicts() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let (mut one, mut other) = (cluster.allocator(), cluster.allocator());
    other.refresh().unwrap();
    for _ in 0..20 {
        one.allocate(&owner("web"), &mut || 0).unwrap();
    }
    let (_, asked) = cluster.asked(|| other.allocate(&owner("db"), &mut || 0).unwrap());
    let mut expected = vec!["create ipaddresses"; 8];
    expected.extend([
        "list servicecidrs",
        "list ipaddresses",
        "create ipaddresses",
    ]);
    assert_eq!(asked, expected);
}

#[test]
fn several_addresses_are_allocated_atomically() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    allocator.refresh().unwrap();
    cluster.server.apply(address("10.0.0.3", "db"));
    let both = [ip("10.0.0.2"), ip("10.0.0.3")];
    let web = owner("web");
    let refused = allocator.change(|draft| both.iter().try_for_each(|ip| draft.reserve(*ip, &web)));
    assert!(matches!(refused, Err(Error::Allocation(error)) if error.is_allocated()));
    assert_eq!(cluster.server.count("create", "ipaddresses"), 2);
    assert_eq!(cluster.server.count("delete", "ipaddresses"), 1);
    assert_eq!(cluster.addresses(), [("10.0.0.3".into(), "db".into())]);
    cluster.server.delete("IPAddress", "", "10.0.0.3");
    allocator
        .change(|draft| both.iter().try_for_each(|ip| draft.reserve(*ip, &web)))
        .unwrap();
    assert_eq!(cluster.addresses().len(), 2);
}

#[test]
fn an_address_changes_its_owner_in_one_change() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    let (web, db) = (owner("web"), owner("db"));
    allocator.reserve(ip("10.0.0.2"), &web).unwrap();
    let change = allocator.change(|draft| {
        draft.release(ip("10.0.0.2"), &web)?;
        draft.reserve(ip("10.0.0.2"), &db)
    });
    change.unwrap();
    assert_eq!(cluster.addresses(), [("10.0.0.2".into(), "db".into())]);
}

#[test]
fn released_addresses_are_created_again_if_a_change_fails() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    let web = owner("web");
    for taken in ["10.0.0.2", "10.0.0.3"] {
        allocator.reserve(ip(taken), &web).unwrap();
    }
    // Another process has released an address and allocated it to another Service.
    cluster.server.delete("IPAddress", "", "10.0.0.3");
    cluster.server.apply(address("10.0.0.3", "db"));
    let refused = allocator.change(|draft| {
        draft.release(ip("10.0.0.2"), &web)?;
        draft.release(ip("10.0.0.3"), &web)
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "10.0.0.3 belongs to default/db"
    );
    let expected = [("10.0.0.2", "web"), ("10.0.0.3", "db")];
    assert_eq!(
        cluster.addresses(),
        expected.map(|(ip, name)| (ip.into(), name.into()))
    );
}

#[test]
fn an_address_with_a_new_owner_is_not_released() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    let web = owner("web");
    let taken = allocator.allocate(&web, &mut || 0).unwrap();
    let name = taken.to_string();
    cluster.server.delete("IPAddress", "", &name);
    cluster.server.apply(address(&name, "db"));
    let refused = allocator.release(taken, &web).unwrap_err();
    assert_eq!(refused.to_string(), format!("{name} belongs to default/db"));
    assert_eq!(cluster.addresses(), [(name.clone(), "db".into())]);
    // An address deleted by another process counts as released.
    let again = allocator.allocate(&web, &mut || 0).unwrap();
    cluster.server.delete("IPAddress", "", &again.to_string());
    assert!(allocator.release(again, &web).unwrap());
}

#[test]
fn addresses_of_other_managers_are_allocated_and_not_deleted() {
    let cluster = Cluster::with(&["10.0.0.0/28"]);
    let mut managed = address("10.0.0.1", "gateway");
    managed["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] = "somebody-else".into();
    managed["spec"]["parentRef"]["resource"] = "gateways".into();
    let mut bare = address("10.0.0.2", "bare");
    bare["metadata"]["labels"] = json!({});
    cluster.server.apply_all([managed, bare]);
    let mut allocator = cluster.allocator();
    for taken in ["10.0.0.1", "10.0.0.2"] {
        let refused = allocator.reserve(ip(taken), &owner("web")).unwrap_err();
        assert!(
            matches!(&refused, Error::Allocation(error) if error.is_allocated()),
            "{refused}"
        );
    }
    let refused = allocator.change(|draft| Ok(draft.free(ip("10.0.0.1"))));
    assert_eq!(
        chain(&refused.unwrap_err()),
        "delete IPAddress 10.0.0.1: not managed by ipallocator.k8s.io"
    );
    let refused = allocator.release(ip("10.0.0.2"), &owner("bare"));
    assert!(chain(&refused.unwrap_err()).contains("not managed"));
    assert_eq!(cluster.addresses().len(), 2);
    for _ in 0..12 {
        allocator.allocate(&owner("web"), &mut || 0).unwrap();
    }
    let full = allocator.allocate(&owner("web"), &mut || 0).unwrap_err();
    assert!(matches!(full, Error::Allocation(error) if error.is_full()));
}

#[test]
fn only_ready_service_cidrs_are_used_for_allocation() {
    let cluster = Cluster::with(&["10.0.0.0/28"]);
    let ready = |name: &str, status: &str| {
        let mut object = cidr(name, &["10.1.0.0/28"]);
        object["status"]["conditions"] = json!([{
            "type": "Ready",
            "status": status,
            "reason": "",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        object
    };
    let mut allocator = cluster.allocator();
    let mut reserve = |taken: &str| {
        allocator.refresh().unwrap();
        match allocator.reserve(ip(taken), &owner("web")) {
            Ok(()) => "taken",
            Err(Error::Allocation(AllocationError::NotReady { .. })) => "not ready",
            Err(Error::Allocation(AllocationError::NotInRange { .. })) => "not in range",
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(reserve("10.0.0.1"), "taken", "without the condition Ready");
    assert_eq!(reserve("10.1.0.1"), "not in range");
    cluster.server.apply(ready("more", "False"));
    assert_eq!(reserve("10.1.0.1"), "not ready");
    cluster.server.apply(ready("more", "Unknown"));
    assert_eq!(reserve("10.1.0.1"), "not ready");
    cluster.server.apply(ready("more", "True"));
    assert_eq!(reserve("10.1.0.1"), "taken");
    cluster.delete_later("more", crate::cluster::second(0));
    assert_eq!(reserve("10.1.0.2"), "not ready");
    cluster.server.apply(ready("twin", "True"));
    assert_eq!(reserve("10.1.0.2"), "taken", "of another one");
}

#[test]
fn unparsable_objects_do_not_prevent_allocation() {
    let cluster = Cluster::with(&["10.0.0.0/28", "fd00::/200"]);
    let mut shapeless = cidr("shapeless", &[]);
    shapeless["spec"] = json!({ "cidrs": 7 });
    let mut broken = address("10.0.0.2", "web");
    broken["spec"] = json!({ "parentRef": "web" });
    cluster.server.apply_all([
        cidr("wrong", &["10.0.0"]),
        // The form of API servers before 1.36.
        cidr("old", &["010.1.0.7/28"]),
        shapeless,
        address("web", "web"),
        broken,
    ]);
    let mut allocator = cluster.allocator();
    let web = owner("web");
    for taken in ["10.0.0.1", "10.1.0.1"] {
        allocator.reserve(ip(taken), &web).unwrap();
    }
    let mut found: Vec<String> = allocator
        .store()
        .unreadable()
        .iter()
        .map(|e| chain(e))
        .collect();
    found.sort();
    let [broken, web_name, v6, shapeless, wrong] = &*found else {
        panic!("{found:#?}")
    };
    assert!(
        broken.starts_with("read IPAddress 10.0.0.2: invalid type"),
        "{broken}"
    );
    assert_eq!(web_name, "read IPAddress web: missing an address as name");
    let network = "is not a network in CIDR notation";
    assert_eq!(
        *v6,
        format!("read ServiceCIDR kubernetes: \"fd00::/200\" {network}")
    );
    assert!(
        shapeless.starts_with("read ServiceCIDR shapeless: "),
        "{shapeless}"
    );
    assert_eq!(
        *wrong,
        format!("read ServiceCIDR wrong: \"10.0.0\" {network}")
    );
    // The name of an IPAddress is sufficient to mark the address as allocated.
    let refused = allocator.reserve(ip("10.0.0.2"), &owner("db")).unwrap_err();
    assert_eq!(refused.to_string(), "10.0.0.2 is already allocated");
    let refused = allocator.release(ip("10.0.0.2"), &web).unwrap_err();
    assert_eq!(
        chain(&refused),
        "delete IPAddress 10.0.0.2: the owner is unknown"
    );
    assert_eq!(cluster.server.count("delete", "ipaddresses"), 0);
}
