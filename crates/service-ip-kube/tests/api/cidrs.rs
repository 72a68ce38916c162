//! Tests of the lifecycle of ServiceCIDRs.

use serde_json::{Value, json};
use vipline_service_ip::AddressRange;
use vipline_service_ip_kube::{Cause, Finding};

use crate::cluster::{Cluster, address, cidr, second};

/// Fails if a finding is reported.
fn silent(finding: &Finding) {
    panic!("{finding}");
}

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

fn ranges(texts: &[&str]) -> Vec<AddressRange> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

impl Cluster {
    fn cidr(&self, name: &str) -> Option<Value> {
        self.server.object("ServiceCIDR", "", name)
    }

    /// Returns status, reason and message of the condition `Ready`.
    fn ready(&self, name: &str) -> Option<[String; 3]> {
        let object = self.cidr(name)?;
        let conditions = object["status"]["conditions"].as_array()?;
        let [condition] = &**conditions else {
            panic!("{conditions:?}")
        };
        assert_eq!(condition["type"], "Ready");
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        Some(["status", "reason", "message"].map(text))
    }
}

#[test]
fn the_default_service_cidr_is_created_and_updated() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster.server.delete("ServiceCIDR", "", "kubernetes");
    let client = cluster.client();
    let single = ranges(&["10.0.0.0/24"]);
    assert_eq!(
        client.reconcile_default_cidr(&single, second(0)).unwrap(),
        None
    );
    let made = cluster.cidr("kubernetes").unwrap();
    assert_eq!(made["spec"], json!({ "cidrs": ["10.0.0.0/24"] }));
    assert_eq!(
        made["status"]["conditions"],
        json!([{
            "type": "Ready",
            "status": "True",
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": "2027-01-01T00:00:00Z",
        }])
    );
    let (_, asked) = cluster.asked(|| client.reconcile_default_cidr(&single, second(9)).unwrap());
    assert_eq!(asked, ["list servicecidrs"]);

    let both = ranges(&["10.0.0.0/24", "fd00::/112"]);
    assert_eq!(
        client.reconcile_default_cidr(&both, second(9)).unwrap(),
        None
    );
    let spec = cluster.cidr("kubernetes").unwrap()["spec"].clone();
    assert_eq!(spec, json!({ "cidrs": ["10.0.0.0/24", "fd00::/112"] }));

    let odd = client
        .reconcile_default_cidr(&single, second(9))
        .unwrap()
        .unwrap();
    assert_eq!(odd.reason(), "KubernetesDefaultServiceCIDRInconsistent");
    assert_eq!(cluster.cidr("kubernetes").unwrap()["spec"], spec);
}

#[test]
fn invalid_default_ranges_are_rejected() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    cluster.server.delete("ServiceCIDR", "", "kubernetes");
    let twice = ranges(&["10.0.0.0/24", "10.1.0.0/24"]);
    let error = cluster
        .client()
        .reconcile_default_cidr(&twice, second(0))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("create ServiceCIDR kubernetes: ServiceCIDR \"kubernetes\" is invalid"),
        "{error}"
    );
    assert!(matches!(
        error.cause(),
        Some(Cause::Rejected { code: 422, .. })
    ));
}

#[test]
fn a_service_cidr_exists_until_it_has_no_addresses() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let client = cluster.client();
    cluster.server.apply(address("10.0.0.9", "web"));
    assert_eq!(
        client.reconcile_cidrs(second(0), &mut silent).unwrap(),
        None
    );
    let settled = cluster.cidr("kubernetes").unwrap();
    assert_eq!(settled["metadata"]["finalizers"], json!([FINALIZER]));
    let is_ready = ["True", "", "Kubernetes Service CIDR is ready"].map(Into::into);
    assert_eq!(cluster.ready("kubernetes"), Some(is_ready));
    let (_, asked) = cluster.asked(|| client.reconcile_cidrs(second(1), &mut silent).unwrap());
    assert_eq!(asked, ["list servicecidrs"], "all is well");

    cluster.delete_later("kubernetes", second(10));
    for now in [11, 1000] {
        assert_eq!(
            client.reconcile_cidrs(second(now), &mut silent).unwrap(),
            None
        );
        let [status, reason, message] = cluster.ready("kubernetes").unwrap();
        assert_eq!((&*status, &*reason), ("False", "Terminating"));
        assert!(message.contains("still IPAddresses"), "{message}");
    }
    let since = cluster.cidr("kubernetes").unwrap()["status"]["conditions"][0].clone();
    assert_eq!(since["lastTransitionTime"], "2027-01-01T00:00:11Z");

    cluster.server.delete("IPAddress", "", "10.0.0.9");
    assert_eq!(
        client.reconcile_cidrs(second(19), &mut silent).unwrap(),
        Some(second(20))
    );
    assert!(cluster.cidr("kubernetes").is_some());
    assert_eq!(
        client.reconcile_cidrs(second(20), &mut silent).unwrap(),
        None
    );
    assert_eq!(cluster.cidr("kubernetes"), None);
}

#[test]
fn a_service_cidr_whose_addresses_are_in_another_one_is_deleted() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let client = cluster.client();
    cluster.server.apply(address("10.0.0.9", "web"));
    cluster.server.apply(cidr("part", &["10.0.0.0/28"]));
    cluster.server.apply(cidr("all", &["10.0.0.0/16"]));
    client.reconcile_cidrs(second(0), &mut silent).unwrap();
    for name in ["all", "kubernetes"] {
        cluster.delete_later(name, second(0));
    }
    assert_eq!(
        client.reconcile_cidrs(second(10), &mut silent).unwrap(),
        None
    );
    let left = cluster.server.objects("ServiceCIDR");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["name"], "part");
}

#[test]
fn finalizers_of_other_controllers_are_kept() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let client = cluster.client();
    let mut object = cidr("kubernetes", &["10.0.0.0/24"]);
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    cluster.server.apply(object);
    client.reconcile_cidrs(second(0), &mut silent).unwrap();
    cluster.delete_later("kubernetes", second(0));
    client.reconcile_cidrs(second(10), &mut silent).unwrap();
    let left = cluster.cidr("kubernetes").unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/wait"]));
}

#[test]
fn a_change_is_planned_again_after_a_conflict() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let client = cluster.client();
    let conflicts = |conflicts| cluster.server.faults(|faults| faults.conflicts = conflicts);
    conflicts(1);
    client.reconcile_cidrs(second(0), &mut silent).unwrap();
    let made = cluster.cidr("kubernetes").unwrap();
    assert_eq!(made["metadata"]["finalizers"], json!([FINALIZER]));
    cluster.server.delete("ServiceCIDR", "", "kubernetes");
    conflicts(2);
    let ranges = ranges(&["10.0.0.0/24"]);
    assert_eq!(
        client.reconcile_default_cidr(&ranges, second(0)).unwrap(),
        None
    );
    conflicts(usize::MAX);
    cluster.delete_later("kubernetes", second(0));
    cluster.server.apply(cidr("more", &["10.1.0.0/24"]));
    let error = client.reconcile_cidrs(second(1), &mut silent).unwrap_err();
    assert_eq!(
        error.to_string(),
        "change ServiceCIDRs: conflict with other processes in each of 4 attempts"
    );
}

#[test]
fn an_unparsable_service_cidr_is_reported_and_others_are_reconciled() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let mut shapeless = cidr("shapeless", &[]);
    shapeless["spec"] = json!({ "cidrs": 7 });
    cluster
        .server
        .apply_all([cidr("wrong", &["10.0.0"]), shapeless, address("web", "web")]);
    let client = cluster.client();
    client.reconcile_cidrs(second(0), &mut |_| ()).unwrap();
    cluster.delete_later("kubernetes", second(0));
    let mut told = Vec::new();
    let mut tell = |finding: &Finding| told.push(finding.address.to_string());
    client.reconcile_cidrs(second(10), &mut tell).unwrap();
    told.sort();
    let expected = [
        "IPAddress web",
        "ServiceCIDR shapeless",
        "ServiceCIDR wrong",
    ];
    assert_eq!(told, expected);
    assert_eq!(
        cluster.cidr("wrong").unwrap()["metadata"]["finalizers"],
        json!([FINALIZER])
    );
    assert_eq!(cluster.cidr("kubernetes"), None, "no address needs it");
}

#[test]
fn an_unparsable_default_service_cidr_is_reported() {
    let cluster = Cluster::with(&["10.0.0.0/24"]);
    let mut shapeless = cidr("kubernetes", &[]);
    shapeless["spec"] = json!({ "cidrs": 7 });
    cluster.server.apply(shapeless);
    let client = cluster.client();
    let wanted = ranges(&["10.0.0.0/24"]);
    let error = client
        .reconcile_default_cidr(&wanted, second(0))
        .unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("read ServiceCIDR kubernetes: "), "{text}");
    assert_eq!(cluster.server.count("create", "servicecidrs"), 0);
}
