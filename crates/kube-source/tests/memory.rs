//! Memory that parsing takes, as a count of allocated bytes.
#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::{Value, json};
use testkit::allocation::{Counting, allocated};
use vipline_kube_source::manifests::object::Object;
use vipline_kube_source::manifests::parse::parse;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of Services and of EndpointSlices.
const COUNT: usize = 500;

/// Maximum number of allocated bytes for each byte of text, including freed ones.
const LIMIT: f64 = 6.0;

/// Returns objects as an API server stores them.
fn objects() -> impl Iterator<Item = Value> {
    (0..COUNT).flat_map(|number| {
        let name = format!("web-{number}");
        let metadata = |name: &str| {
            json!({
                "name": name,
                "namespace": "default",
                "uid": "6b4f6ce6-9d0e-4d6b-8e0c-0f8b8f6f7d30",
                "resourceVersion": "4711",
                "labels": {"kubernetes.io/service-name": format!("web-{number}")},
                "managedFields": [{
                    "manager": "kubectl",
                    "fieldsV1": {"f:spec": {"f:ports": {"k:{\"port\":80}": {"f:port": {}}}}},
                }],
            })
        };
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(&name),
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "10.96.0.1",
                "clusterIPs": ["10.96.0.1"],
                "ipFamilies": ["IPv4"],
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
                "sessionAffinity": "None",
            },
        });
        let endpoint = |host: usize| {
            json!({
                "addresses": [format!("10.128.0.{host}")],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "node-1",
            })
        };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata(&format!("{name}-1")),
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": (1..6).map(endpoint).collect::<Vec<_>>(),
        });
        [service, slice]
    })
}

fn assert_frugal(text: &str) {
    let (bytes, manifest) = allocated(|| parse(text).unwrap());
    assert_eq!(manifest.objects.len(), 2 * COUNT);
    let ratio = bytes as f64 / text.len() as f64;
    assert!(ratio < LIMIT, "{bytes} bytes for {}: {ratio}", text.len());
    let (of_trees, _) = allocated(|| parse(&format!("# YAML\n{text}")).unwrap());
    assert!(3 * bytes < of_trees, "{bytes} bytes, {of_trees} as YAML");
}

#[test]
fn plain_json_is_parsed_without_trees() {
    let documents = objects().map(|object| format!("---\n{object}\n"));
    assert_frugal(&documents.collect::<String>());
}

#[test]
fn a_list_of_indented_json_is_parsed_without_trees() {
    let items: Vec<_> = objects().collect();
    let list = json!({"apiVersion": "v1", "items": items, "kind": "List"});
    assert_frugal(&serde_json::to_string_pretty(&list).unwrap());
}

#[test]
fn lists_of_objects_have_no_spare_capacity() {
    let text: String = objects().map(|object| format!("{object}\n---\n")).collect();
    for object in parse(&text).unwrap().objects {
        let spare = match *object.object {
            Object::Service(service) => {
                let spec = service.spec;
                spec.ports.capacity() - spec.ports.len() + spec.cluster_ips.capacity()
                    - spec.cluster_ips.len()
            }
            Object::Slice(slice) => {
                let endpoints = slice.endpoints;
                let addresses = endpoints.iter().map(|it| it.addresses.capacity() - 1);
                addresses.sum::<usize>() + endpoints.capacity() - endpoints.len()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(spare, 0, "{:?}", object.key);
    }
}

#[test]
fn one_invalid_object_costs_one_tree() {
    let documents = objects().map(|object| format!("{object}\n---\n"));
    let text = documents.collect::<String>();
    let (valid, _) = allocated(|| parse(&text).unwrap());
    let broken = text.replacen("10.96.0.1", "10.96.0.300", 1);
    let (bytes, manifest) = allocated(|| parse(&broken).unwrap());
    assert_eq!(manifest.objects.len(), 2 * COUNT - 1);
    assert_eq!(manifest.invalid.len(), 1);
    assert!(
        bytes < valid + 200_000,
        "{bytes} bytes, {valid} without the fault"
    );
}
