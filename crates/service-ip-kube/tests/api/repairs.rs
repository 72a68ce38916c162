//! Tests of repair.

use std::time::SystemTime;

use serde_json::{Value, json};
use vipline_service_ip_kube::Reason;
use vipline_service_ip_kube::blocking::Client;

use crate::cluster::{Cluster, address, cidr, later, service};

/// Repairs and returns the findings.
fn repair(client: &Client) -> Vec<(Reason, String)> {
    let mut found = Vec::new();
    let tell = &mut |finding: &vipline_service_ip_kube::Finding| {
        let service = finding.service.as_ref();
        let name = service.map_or_else(String::new, |service| service.name.to_string());
        found.push((finding.reason, name));
    };
    client.repair(later(), tell).unwrap();
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(ip, name): &(&str, &str)| ((*ip).to_owned(), (*name).to_owned());
    expected.iter().map(owned).collect()
}

#[test]
fn addresses_are_reconciled_with_services() {
    let cluster = Cluster::with(&["10.0.0.0/24", "fd00::/112"]);
    let mut odd = address("10.0.0.4", "odd");
    odd["spec"]["parentRef"]["resource"] = "gateways".into();
    let mut bare = address("10.0.0.5", "bare");
    bare["metadata"]["labels"] = json!({ "other": "stays" });
    cluster.server.apply_all([
        service("web", &["10.0.0.1", "fd00::1"]),
        service("db", &["10.0.0.2"]),
        service("odd", &["10.0.0.4"]),
        service("bare", &["10.0.0.5"]),
        service("far", &["10.9.0.1"]),
        service("wrong", &["10.0.0"]),
        service("headless", &["None"]),
        address("10.0.0.1", "web"),
        address("10.0.0.2", "gone"),
        address("10.0.0.3", "leaked"),
        odd,
        bare,
        address("10.0.0.6", "headless"),
    ]);
    let client = cluster.client();
    let mut found = repair(&client);
    found.sort();
    assert_eq!(
        found,
        [
            (Reason::ClusterIpNotAllocated, "db".into()),
            (Reason::ClusterIpNotAllocated, "odd".into()),
            (Reason::ClusterIpNotAllocated, "web".into()),
            (Reason::ClusterIpNotValid, "wrong".into()),
            (Reason::ClusterIpOutOfRange, "far".into()),
            (Reason::IpAddressNotAllocated, "leaked".into()),
            (Reason::IpAddressWrongReference, "headless".into()),
        ]
    );
    assert_eq!(
        cluster.addresses(),
        pairs(&[
            ("10.0.0.1", "web"),
            ("10.0.0.2", "db"),
            ("10.0.0.4", "odd"),
            ("10.0.0.5", "bare"),
            ("fd00::1", "web"),
        ])
    );
    for ip in ["10.0.0.2", "10.0.0.4", "fd00::1"] {
        let made = cluster.server.object("IPAddress", "", ip).unwrap();
        let name = made["spec"]["parentRef"]["name"].as_str().unwrap();
        let expected = address(ip, name);
        assert_eq!(made["spec"], expected["spec"]);
        let labels = &made["metadata"]["labels"];
        assert_eq!(labels, &expected["metadata"]["labels"]);
    }
    let labelled = cluster.server.object("IPAddress", "", "10.0.0.5").unwrap();
    let mut labels = address("10.0.0.5", "bare")["metadata"]["labels"].clone();
    labels["other"] = "stays".into();
    assert_eq!(labelled["metadata"]["labels"], labels);

    let (found, asked) = cluster.asked(|| repair(&client));
    assert_eq!(found.len(), 2, "only a person can mend these: {found:?}");
    let lists = ["list ipaddresses", "list services", "list servicecidrs"];
    assert_eq!(asked, lists);
}

#[test]
fn two_services_with_one_address_are_reported_and_not_changed() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster.server.apply_all([
        service("a", &["10.0.0.1"]),
        service("b", &["10.0.0.1"]),
        address("10.0.0.1", "b"),
    ]);
    let before = cluster.server.objects("IPAddress");
    let client = cluster.client();
    let found = [(Reason::ClusterIpAlreadyAllocated, "a".to_owned())];
    assert_eq!(repair(&client), found);
    assert_eq!(cluster.server.objects("IPAddress"), before);
}

#[test]
fn an_address_without_a_service_has_a_grace_period() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster.server.apply(address("10.0.0.1", "web"));
    let made = cluster.server.object("IPAddress", "", "10.0.0.1").unwrap();
    let client = cluster.client();
    // A time before the end of the grace period.
    let again = client.repair(SystemTime::UNIX_EPOCH, &mut |finding| {
        panic!("{finding}");
    });
    assert!(again.unwrap().is_some());
    assert_eq!(cluster.server.objects("IPAddress"), [made]);
    assert_eq!(repair(&client).len(), 1);
    assert_eq!(cluster.server.objects("IPAddress"), [Value::Null; 0]);
}

#[test]
fn a_repair_is_planned_again_after_a_conflict() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster.server.apply_all([
        service("web", &["10.0.0.1"]),
        service("db", &["10.0.0.2"]),
        address("10.0.0.3", "leaked"),
    ]);
    cluster.server.faults(|faults| faults.conflicts = 2);
    let found = repair(&cluster.client());
    assert_eq!(found.len(), 3, "each is told once: {found:?}");
    assert_eq!(
        cluster.addresses(),
        pairs(&[("10.0.0.1", "web"), ("10.0.0.2", "db")])
    );
    assert_eq!(cluster.server.count("list", "services"), 2);
}

#[test]
fn a_repair_with_an_outdated_list_changes_nothing() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster.server.apply(address("10.0.0.1", "leaked"));
    cluster.server.delete("IPAddress", "", "10.0.0.1");
    cluster.server.apply(address("10.0.0.1", "another"));
    let before = cluster.server.objects("IPAddress");
    // The list still contains the first address.
    cluster.server.faults(|faults| {
        faults.only = Some("ipaddresses".into());
        faults.outdated = 2;
    });
    let error = cluster.client().repair(later(), &mut |_| ());
    assert_eq!(
        error.unwrap_err().to_string(),
        "repair IPAddresses: conflict with other processes in each of 4 attempts"
    );
    assert_eq!(cluster.server.objects("IPAddress"), before);
    assert_eq!(cluster.server.count("delete", "ipaddresses"), 4);
}

#[test]
fn a_lost_response_is_an_error_and_the_next_repair_continues() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster
        .server
        .apply_all([service("a", &["10.0.0.1"]), service("b", &["10.0.0.2"])]);
    cluster.server.faults(|faults| faults.lost_responses = 1);
    let client = cluster.client();
    let error = client.repair(later(), &mut |_| ()).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(cluster.addresses().len(), 1);
    assert_eq!(repair(&client).len(), 1);
    assert_eq!(cluster.addresses().len(), 2);
}

#[test]
fn an_address_that_its_service_has_in_another_form_is_kept() {
    let cluster = Cluster::with(&["10.0.0.0/24", "fd00::/112"]);
    cluster.server.apply_all([
        service("a", &["010.0.0.1"]),
        service("b", &["::ffff:10.0.0.2"]),
        service("c", &["fd00:0::3"]),
        address("10.0.0.1", "a"),
        address("10.0.0.2", "b"),
        address("fd00::3", "c"),
    ]);
    let before = cluster.server.objects("IPAddress");
    assert_eq!(repair(&cluster.client()), []);
    assert_eq!(cluster.server.objects("IPAddress"), before);
}

#[test]
fn unparsable_objects_do_not_prevent_repair() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let mut broken = address("10.0.0.2", "kept");
    broken["spec"] = json!({ "parentRef": "kept" });
    cluster.server.apply_all([
        cidr("wrong", &["10.0.0"]),
        address("web", "web"),
        broken,
        service("kept", &["10.0.0.2"]),
        service("web", &["10.0.0.1"]),
        address("10.0.0.3", "leaked"),
    ]);
    let client = cluster.client();
    let mut found = Vec::new();
    let told = client.repair(later(), &mut |finding| found.push(finding.to_string()));
    told.unwrap();
    let known = found.split_off(3);
    assert!(
        found[0].starts_with("Unreadable: IPAddress 10.0.0.2 cannot be read: "),
        "{found:?}"
    );
    assert_eq!(
        found[1..],
        [
            "Unreadable: IPAddress web cannot be read: missing an address as name; ignored",
            "Unreadable: ServiceCIDR wrong cannot be read: \"10.0.0\" is not a network in CIDR notation; ignored",
        ]
    );
    assert_eq!(known.len(), 2, "{known:?}");
    let left = cluster.server.objects("IPAddress");
    let names = left
        .iter()
        .map(|object| object["metadata"]["name"].as_str());
    let names: Vec<&str> = names.map(Option::unwrap).collect();
    assert_eq!(names, ["10.0.0.1", "10.0.0.2", "web"]);
}

#[test]
fn an_unparsable_service_keeps_its_address() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let mut broken = service("broken", &["10.0.0.1"]);
    broken["spec"]["clusterIPs"] = 7.into();
    cluster
        .server
        .apply_all([broken, address("10.0.0.1", "broken")]);
    let error = cluster.client().repair(later(), &mut |_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("read Service default/broken: "), "{text}");
    assert_eq!(cluster.addresses().len(), 1);
}

#[test]
fn a_rejected_change_does_not_prevent_changes_of_other_addresses() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    // An IPAddress cannot refer to the first Service.
    cluster.server.apply_all([
        service("a/b", &["10.0.0.1"]),
        service("b", &["10.0.0.2"]),
        service("c", &["10.0.0.3"]),
    ]);
    let error = cluster.client().repair(later(), &mut |_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("create IPAddress 10.0.0.1: "), "{text}");
    assert_eq!(
        cluster.addresses(),
        pairs(&[("10.0.0.2", "b"), ("10.0.0.3", "c")])
    );
}
