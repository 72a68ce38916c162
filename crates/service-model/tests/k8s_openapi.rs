//! Tests of the conversions from and to the objects of the crate k8s-openapi.
#![allow(clippy::unwrap_used, reason = "a test")]

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::json;
use vipline_service_model::api::{EndpointSlice, Node, Service, ServiceCidr};
use vipline_service_model::arbitrary::Dice;

/// A Service as an API server returns it.
fn service() -> serde_json::Value {
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": "ingress", "namespace": "edge", "uid": "2f1c5c1e-9d0a-4a57-8a53-0c7f4b4ac001",
            "creationTimestamp": "2026-03-04T05:06:07Z",
            "deletionTimestamp": "2026-04-05T06:07:08Z",
            "labels": {"app": "ingress"},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.12.34", "clusterIPs": ["10.96.12.34", "fd00:96::c22"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http", "nodePort": 31080},
                {"name": "quic", "protocol": "UDP", "port": 443, "targetPort": 8443},
            ],
            "selector": {"app": "ingress"},
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
            "externalIPs": ["192.0.2.80"],
            "loadBalancerSourceRanges": ["198.51.100.0/24"],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 32123,
            "externalName": "lb.example", "publishNotReadyAddresses": true,
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.7", "ipMode": "Proxy"},
            {"hostname": "lb.example"},
        ]}},
    })
}

/// Reads an object as one of the model and as one of k8s-openapi.
fn both<T: DeserializeOwned, U: DeserializeOwned>(object: &serde_json::Value) -> (T, U) {
    let ours = serde_json::from_value(object.clone()).unwrap();
    (ours, serde_json::from_value(object.clone()).unwrap())
}

#[test]
fn a_converted_service_equals_the_service_in_json() {
    let (ours, theirs): (Service, core::Service) = both(&service());
    assert_eq!(Service::try_from(&theirs), Ok(ours.clone()));
    assert_eq!(Service::try_from(theirs), Ok(ours.clone()));
    let written = core::Service::try_from(ours.clone()).unwrap();
    assert_eq!(Service::try_from(written), Ok(ours));
    let empty = core::Service::default();
    assert_eq!(Service::try_from(empty), Ok(Service::default()));
}

#[test]
fn converted_slices_nodes_and_cidrs_equal_those_in_json() {
    let (ours, theirs): (EndpointSlice, discovery::EndpointSlice) = both(&json!({
        "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "ingress"}},
        "addressType": "IPv6",
        "endpoints": [
            {"addresses": ["fd00::1"], "nodeName": "n", "zone": "z", "hostname": "web-0",
             "conditions": {"ready": true, "terminating": false},
             "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]}},
            {"addresses": ["fd00::2"], "conditions": {}},
        ],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {}],
    }));
    assert_eq!(EndpointSlice::from(&theirs), ours);
    let written = discovery::EndpointSlice::try_from(ours).unwrap();
    assert_eq!(written.endpoints, theirs.endpoints);
    let (ours, theirs): (Node, core::Node) = both(&json!({
        "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}},
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"],
                 "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    }));
    assert_eq!(Node::from(theirs), ours);
    let written = core::Node::try_from(ours.clone()).unwrap();
    assert_eq!(Node::from(written), ours);
    let (ours, theirs): (ServiceCidr, networking::ServiceCIDR) = both(&json!({
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]},
    }));
    assert_eq!(ServiceCidr::from(theirs), ours);
}

#[test]
fn a_number_out_of_range_is_an_error_with_its_path() {
    let check = |pointer: &str, value: i64, expected: &str| {
        let mut object = service();
        *object.pointer_mut(pointer).unwrap() = value.into();
        let theirs: core::Service = serde_json::from_value(object).unwrap();
        let error = Service::try_from(theirs).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        "/spec/ports/1/port",
        70_000,
        "spec.ports[1].port: 70000 is not in the range 0-65535",
    );
    check(
        "/spec/ports/0/nodePort",
        -1,
        "spec.ports[0].nodePort: -1 is not in the range 0-65535",
    );
    check(
        "/spec/healthCheckNodePort",
        65_536,
        "spec.healthCheckNodePort: 65536 is not in the range 0-65535",
    );
    check(
        "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
        -5,
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: -5 is not in the range 0-2147483647",
    );
}

#[test]
fn an_invalid_time_is_an_error_with_its_path() {
    let mut slice = EndpointSlice::default();
    slice.metadata.creation_timestamp = Some("yesterday".to_owned());
    let error = discovery::EndpointSlice::try_from(slice).unwrap_err();
    assert_eq!(error.path, "metadata.creationTimestamp");
}

proptest! {
    #[test]
    fn objects_survive_a_conversion_and_its_reverse(seed in any::<u64>()) {
        let mut dice = Dice::from_seed(seed);
        let mut service = dice.service();
        // A mode of an ingress point without an address has no meaning.
        for ingress in &mut service.status.load_balancer.ingress {
            if ingress.ip.is_empty() {
                ingress.ip_mode = Default::default();
            }
        }
        if let Ok(theirs) = core::Service::try_from(service.clone()) {
            prop_assert_eq!(Service::try_from(theirs), Ok(service));
        }
        let mut slice = dice.slice();
        for port in &mut slice.ports {
            port.name.get_or_insert_default();
        }
        if let Ok(theirs) = discovery::EndpointSlice::try_from(slice.clone()) {
            prop_assert_eq!(EndpointSlice::from(theirs), slice);
        }
        let (node, cidr) = (dice.node(), dice.service_cidr());
        if let Ok(theirs) = core::Node::try_from(node.clone()) {
            prop_assert_eq!(Node::from(theirs), node);
        }
        if let Ok(theirs) = networking::ServiceCIDR::try_from(cidr.clone()) {
            prop_assert_eq!(ServiceCidr::from(theirs), cidr);
        }
    }
}
