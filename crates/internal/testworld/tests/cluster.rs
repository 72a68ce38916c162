//! Generated objects, and objects that validation rejects.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use testworld::validation::{Strictness, create, update};
use testworld::{Change, Cluster, Id, Proposal, Verb, generate};
use vipline_service_model::Kind;
use vipline_service_model::arbitrary::Dice;

/// Returns the changes of hundreds of random histories.
fn histories(strictness: Strictness) -> Vec<Change> {
    let history = |seed| {
        let mut dice = Dice::from_seed(seed);
        let mut cluster = Cluster::new(strictness);
        let steps = (0..30).map(|_| generate::step(&mut cluster, &mut dice));
        steps.collect::<Vec<_>>()
    };
    (0..200).flat_map(history).collect()
}

/// Returns all strings and numbers of a value, as JSON.
fn leaves(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|each| leaves(each, into)),
        Value::Object(members) => members.values().for_each(|each| leaves(each, into)),
        leaf => drop(into.insert(leaf.to_string())),
    }
}

#[test]
fn histories_contain_every_kind_verb_and_hostile_value() {
    let changes = histories(Strictness::Strict);
    let mut kinds = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for change in &changes {
        *kinds
            .entry((change.kind, format!("{:?}", change.verb)))
            .or_insert(0) += 1;
        leaves(&change.object, &mut seen);
    }
    for kind in [
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Node,
        Kind::ServiceCidr,
    ] {
        for verb in ["Added", "Modified", "Deleted"] {
            let count = kinds.get(&(kind, verb.to_owned())).copied().unwrap_or(0);
            // A ServiceCIDR has few mutable fields.
            let least = if kind == Kind::ServiceCidr { 5 } else { 40 };
            assert!(count >= least, "{kind} {verb}: {count}");
        }
    }
    for hostile in [
        "\"10.96.0.50\"",
        "\"192.168.55.255\"",
        "\"255.255.255.255\"",
        "\"239.1.2.3\"",
        "\"ff0e::1\"",
        "\"127.0.0.1\"",
        "\"ExternalName\"",
        "\"None\"",
        "\"0.0.0.0/0\"",
        "\" ::/0\\t\"",
        "70000",
        "-1",
        "0",
        "86400",
        "\"odd\"",
        "\" 10.244.0.0/16 ,::/0\\t\"",
        "\"A_b.c\"",
        "\"example.com/lb\"",
        "\"PreferSameNode\"",
    ] {
        assert!(seen.contains(hostile), "{hostile}");
    }
    let is_legacy = |text: &String| text.contains("::ffff:10.") || text.starts_with("\"010.");
    let addresses = changes.iter().filter(|change| change.kind != Kind::Node);
    let mut strict = BTreeSet::new();
    for change in addresses {
        leaves(&change.object["spec"], &mut strict);
        leaves(&change.object["endpoints"], &mut strict);
    }
    assert!(!strict.iter().any(is_legacy));
    let mut legacy = BTreeSet::new();
    for change in histories(Strictness::Legacy) {
        leaves(&change.object, &mut legacy);
    }
    assert!(legacy.iter().any(is_legacy));
    assert!(legacy.contains("\"10.96.0.0022\""));
}

#[test]
fn a_stored_object_stays_valid_when_written_back() {
    for seed in 0..100 {
        let mut dice = Dice::from_seed(seed);
        let mut cluster = Cluster::new(Strictness::Legacy);
        for step in 0..20 {
            generate::step(&mut cluster, &mut dice);
            if step == 10 {
                cluster.set_strictness(Strictness::Strict);
            }
        }
        for (id, object) in cluster.clone().objects() {
            // Networks of a Node are validated again in each update of its specification.
            if id.kind != Kind::Node {
                let again = cluster.admit(Proposal::Update(id.kind, object.clone()));
                assert!(again.is_ok(), "seed {seed}: {again:?} of {object}");
            }
        }
    }
}

#[test]
fn most_proposals_are_valid_and_most_corrupted_ones_are_not() {
    let [mut valid, mut corrupted_valid, mut count] = [0; 3];
    for seed in 0..100 {
        let mut dice = Dice::from_seed(seed);
        let mut cluster = Cluster::new(Strictness::Strict);
        for _ in 0..20 {
            let proposal = generate::proposal(&cluster, &mut dice);
            if let Proposal::Create(kind, object) = &proposal {
                let mut object = object.clone();
                for _ in 0..4 {
                    generate::corrupt(&mut object, &mut dice);
                }
                count += 1;
                let plain = cluster.clone().admit(proposal.clone());
                valid += u32::from(plain.is_ok());
                let corrupted = cluster.clone().admit(Proposal::Create(*kind, object));
                corrupted_valid += u32::from(corrupted.is_ok());
            }
            drop(cluster.admit(proposal));
        }
    }
    assert!(valid * 10 > count * 8, "{valid} of {count}");
    assert!(corrupted_valid * 2 < count, "{corrupted_valid} of {count}");
}

#[test]
fn giant_objects_are_valid() {
    let mut largest = BTreeMap::new();
    for seed in 0..60 {
        let mut dice = Dice::from_seed(seed);
        let mut cluster = Cluster::new(Strictness::Strict);
        let Ok(Some(change)) = cluster.admit(generate::giant(&cluster, &mut dice)) else {
            continue;
        };
        for pointer in ["/spec/ports", "/ports", "/endpoints"] {
            let list = change.object.pointer(pointer).and_then(Value::as_array);
            let length = largest.entry(pointer).or_insert(0);
            *length = list.map_or(0, Vec::len).max(*length);
        }
    }
    let expected = [("/endpoints", 1_000), ("/ports", 300), ("/spec/ports", 300)];
    assert_eq!(largest.into_iter().collect::<Vec<_>>(), expected);
}

/// Returns a stored Service with one port.
fn web(kind: &str, more: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "type": kind, "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
        },
    });
    let Value::Object(more) = more else {
        return service;
    };
    for (field, value) in more {
        service["spec"][field] = value;
    }
    service
}

#[test]
fn services_are_validated_as_by_kube_apiserver() {
    for (service, path) in [
        (web("ClusterIP", json!({})), ""),
        (
            web(
                "ClusterIP",
                json!({"externalIPs": ["255.255.255.255"], "externalTrafficPolicy": "Local"}),
            ),
            "",
        ),
        (
            web(
                "ClusterIP",
                json!({"externalIPs": ["224.0.0.1"], "externalTrafficPolicy": "Local"}),
            ),
            "spec.externalIPs",
        ),
        (
            web(
                "ClusterIP",
                json!({"externalIPs": ["010.0.0.1"], "externalTrafficPolicy": "Local"}),
            ),
            "spec.externalIPs",
        ),
        (
            web("ClusterIP", json!({"externalTrafficPolicy": "Local"})),
            "spec.externalTrafficPolicy",
        ),
        (
            web(
                "ClusterIP",
                json!({"clusterIPs": ["10.96.0.10", "10.96.0.11"]}),
            ),
            "spec.clusterIPs",
        ),
        (web("ClusterIP", json!({"ports": []})), "spec.ports"),
        (web("NodePort", json!({})), "spec.externalTrafficPolicy"),
        (web("ExternalName", json!({"externalName": "a.b"})), "spec"),
        (
            web(
                "ClusterIP",
                json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86_401}}}),
            ),
            "spec.sessionAffinityConfig",
        ),
        (
            web(
                "ClusterIP",
                json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            ),
            "spec.loadBalancerSourceRanges",
        ),
    ] {
        let found = create(Kind::Service, &service, Strictness::Strict);
        let paths: Vec<_> = found
            .iter()
            .filter_map(|it| it.split(": ").next())
            .collect();
        let expected: &[&str] = if path.is_empty() { &[] } else { &[path] };
        assert_eq!(
            paths.first().into_iter().copied().collect::<Vec<_>>(),
            expected,
            "{service}"
        );
    }
    let old = web(
        "ClusterIP",
        json!({"clusterIP": "10.96.0.11", "clusterIPs": ["10.96.0.11"]}),
    );
    let found = update(
        Kind::Service,
        &old,
        &web("ClusterIP", json!({})),
        Strictness::Strict,
    );
    assert_eq!(found, ["spec.clusterIPs: must not change once set"]);
}

#[test]
fn a_second_service_cannot_have_the_address_or_node_port_of_the_first() {
    let mut cluster = Cluster::new(Strictness::Strict);
    let port = json!([{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30_080}]);
    let more = json!({"ports": port, "externalTrafficPolicy": "Cluster"});
    let first = web("NodePort", more.clone());
    assert!(
        cluster
            .admit(Proposal::Create(Kind::Service, first.clone()))
            .is_ok()
    );
    let mut second = web("NodePort", more);
    second["metadata"]["name"] = json!("other");
    let violations = cluster.admit(Proposal::Create(Kind::Service, second.clone()));
    assert_eq!(violations.unwrap_err().len(), 2);
    let id = Id::of(Kind::Service, &first);
    let deleted = cluster.admit(Proposal::Delete(id)).unwrap().unwrap();
    assert_eq!(
        (deleted.verb, &deleted.object["spec"]["type"]),
        (Verb::Deleted, &json!("NodePort"))
    );
    assert!(
        deleted
            .line()
            .starts_with(r#"{"type":"DELETED","object":{"#)
    );
    assert!(
        cluster
            .admit(Proposal::Create(Kind::Service, second))
            .is_ok()
    );
}
