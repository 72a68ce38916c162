//! Tests of objects in the JSON of API servers and the YAML of manifests.

use serde_json::json;
use vipline_service_model::api::{
    AddressType, Affinity, EndpointSlice, IpFamily, IpMode, Node, Service, ServiceCidr,
    ServiceType, TrafficPolicy, TransportProtocol,
};
use vipline_service_model::{Config, Event, NodeView, Store};

/// A Service of type LoadBalancer with all fields that an API server adds.
const SERVICE: &str = r#"{
  "kind": "Service",
  "apiVersion": "v1",
  "metadata": {
    "name": "ingress", "namespace": "edge", "uid": "2f1c5c1e-9d0a-4a57-8a53-0c7f4b4ac001",
    "resourceVersion": "812345", "creationTimestamp": "2026-03-04T05:06:07Z",
    "labels": {"app": "ingress"},
    "annotations": {"example.com/balancer": "internal"},
    "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
    "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
  },
  "spec": {
    "ports": [
      {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http", "nodePort": 31080},
      {"name": "quic", "protocol": "UDP", "appProtocol": "quic", "port": 443, "targetPort": 8443}
    ],
    "selector": {"app": "ingress"},
    "clusterIP": "10.96.12.34", "clusterIPs": ["10.96.12.34", "fd00:96::c22"],
    "type": "LoadBalancer",
    "sessionAffinity": "ClientIP",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
    "externalIPs": ["192.0.2.80"],
    "loadBalancerSourceRanges": ["198.51.100.0/24"],
    "externalTrafficPolicy": "Local", "healthCheckNodePort": 32123,
    "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
    "allocateLoadBalancerNodePorts": true, "internalTrafficPolicy": "Cluster",
    "trafficDistribution": "PreferClose"
  },
  "status": {"loadBalancer": {"ingress": [
    {"ip": "203.0.113.7", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]},
    {"hostname": "lb.example"}
  ]}}
}"#;

const SLICE: &str = r#"{
  "kind": "EndpointSlice",
  "apiVersion": "discovery.k8s.io/v1",
  "metadata": {
    "name": "ingress-x7k2p", "generateName": "ingress-", "namespace": "edge",
    "labels": {
      "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
      "kubernetes.io/service-name": "ingress"
    },
    "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-03-04T05:07:08Z"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "ingress",
      "uid": "2f1c5c1e-9d0a-4a57-8a53-0c7f4b4ac001", "controller": true}]
  },
  "addressType": "IPv4",
  "endpoints": [
    {
      "addresses": ["10.244.1.5"],
      "conditions": {"ready": true, "serving": true, "terminating": false},
      "targetRef": {"kind": "Pod", "namespace": "edge", "name": "ingress-0"},
      "nodeName": "node-1", "zone": "eu-1a",
      "hints": {"forZones": [{"name": "eu-1a"}], "forNodes": [{"name": "node-1"}]}
    },
    {"addresses": ["10.244.2.9"], "conditions": {"ready": null}, "hints": null, "nodeName": "node-2"}
  ],
  "ports": [
    {"name": "http", "protocol": "TCP", "port": 8080},
    {"name": "quic", "protocol": "UDP", "port": 8443, "appProtocol": "quic"}
  ]
}"#;

#[test]
fn a_service_of_an_api_server_is_deserialized() {
    let service: Service = serde_json::from_str(SERVICE).unwrap();
    let spec = &service.spec;
    assert_eq!(service.metadata.object_name().to_string(), "edge/ingress");
    assert_eq!(
        service.metadata.creation_timestamp.as_deref(),
        Some("2026-03-04T05:06:07Z")
    );
    assert_eq!(spec.kind, ServiceType::LoadBalancer);
    assert_eq!(spec.cluster_ip, "10.96.12.34");
    assert_eq!(spec.cluster_ips, ["10.96.12.34", "fd00:96::c22"]);
    assert_eq!(spec.ip_families, [IpFamily::V4, IpFamily::V6]);
    assert_eq!((spec.ports[0].port, spec.ports[0].node_port), (80, 31_080));
    assert_eq!(
        (&spec.ports[1].protocol, spec.ports[1].node_port),
        (&TransportProtocol::Udp, 0)
    );
    assert_eq!(spec.session_affinity, Affinity::ClientIp);
    let config = spec.session_affinity_config.as_ref().unwrap();
    assert_eq!(
        config.client_ip.as_ref().unwrap().timeout_seconds,
        Some(600)
    );
    assert_eq!(spec.external_ips, ["192.0.2.80"]);
    assert_eq!(spec.load_balancer_source_ranges, ["198.51.100.0/24"]);
    assert_eq!(spec.external_traffic_policy, TrafficPolicy::Local);
    assert_eq!(spec.internal_traffic_policy, TrafficPolicy::Cluster);
    assert_eq!(spec.health_check_node_port, 32_123);
    let ingress = &service.status.load_balancer.ingress;
    assert_eq!(
        (&*ingress[0].ip, &ingress[0].ip_mode),
        ("203.0.113.7", &IpMode::Vip)
    );
    assert_eq!(ingress[1].ip, "");
}

#[test]
fn a_slice_of_an_api_server_is_deserialized() {
    let slice: EndpointSlice = serde_json::from_str(SLICE).unwrap();
    assert_eq!(slice.address_type, AddressType::V4);
    let [first, second] = &slice.endpoints[..] else {
        panic!("two endpoints")
    };
    assert_eq!(first.addresses, ["10.244.1.5"]);
    assert_eq!(first.conditions.terminating, Some(false));
    assert_eq!(first.node_name.as_deref(), Some("node-1"));
    let hints = first.hints.as_ref().unwrap();
    assert_eq!(
        (&*hints.for_zones[0].name, &*hints.for_nodes[0].name),
        ("eu-1a", "node-1")
    );
    assert_eq!((second.conditions.ready, &second.hints), (None, &None));
    assert_eq!(slice.ports[1].name.as_deref(), Some("quic"));
    assert_eq!(slice.ports[1].port, Some(8443));
}

#[test]
fn deserialized_objects_resolve() {
    let mut store = Store::new(Config::new("node-1"));
    let service: Service = serde_json::from_str(SERVICE).unwrap();
    let slice: EndpointSlice = serde_json::from_str(SLICE).unwrap();
    for event in [service.into(), slice.into(), Event::Synced] {
        assert!(store.apply(event).is_empty());
    }
    let ports = store.resolve(&NodeView::new("node-1"));
    let names: Vec<_> = ports
        .iter()
        .map(|port| format!("{} {}", port.name, port.family))
        .collect();
    let expected = [
        "edge/ingress:http IPv4",
        "edge/ingress:quic IPv4",
        "edge/ingress:http IPv6",
        "edge/ingress:quic IPv6",
    ];
    assert_eq!(names, expected);
}

#[test]
fn missing_null_and_empty_fields_have_the_defaults_of_the_api() {
    let bare = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let nulls = json!({
        "metadata": {"name": "web", "namespace": null, "labels": null, "creationTimestamp": null},
        "spec": {
            "type": null, "clusterIP": null, "clusterIPs": null, "ipFamilies": null,
            "ports": [{"name": null, "protocol": null, "port": 80, "nodePort": null}],
            "sessionAffinity": null, "sessionAffinityConfig": null, "externalIPs": null,
            "externalTrafficPolicy": null, "internalTrafficPolicy": null,
            "healthCheckNodePort": null
        },
        "status": null
    });
    let empty = json!({
        "metadata": {"name": "web"},
        "spec": {
            "type": "", "ports": [{"name": "", "protocol": "", "port": 80}],
            "sessionAffinity": "", "externalTrafficPolicy": "", "internalTrafficPolicy": ""
        },
        "status": {"loadBalancer": {}}
    });
    let bare: Service = serde_json::from_value(bare).unwrap();
    assert_eq!(bare.spec.kind, ServiceType::ClusterIp);
    assert_eq!(bare.spec.ports[0].protocol, TransportProtocol::Tcp);
    assert_eq!(bare, serde_json::from_value(nulls).unwrap());
    assert_eq!(bare, serde_json::from_value(empty).unwrap());
}

#[test]
fn a_slice_without_endpoints_or_names_has_the_defaults_of_the_api() {
    let slice = json!({
        "metadata": {"name": "web-1"}, "addressType": "IPv6",
        "endpoints": null, "ports": [{"port": 80}, {"name": null, "protocol": null, "port": null}]
    });
    let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
    assert!(slice.endpoints.is_empty());
    // The API's default is the empty name. Null stays absent.
    assert_eq!(slice.ports[0].name.as_deref(), Some(""));
    assert_eq!((&slice.ports[1].name, slice.ports[1].port), (&None, None));
    assert_eq!(slice.ports[1].protocol, TransportProtocol::Tcp);
}

#[test]
fn unknown_enumeration_values_are_kept_and_out_of_range_numbers_are_errors() {
    let service = json!({
        "metadata": {"name": "web"}, "spec": {"type": "Telepathy", "ports": [{"port": 80, "protocol": "DCCP"}]}
    });
    let service: Service = serde_json::from_value(service).unwrap();
    assert_eq!(service.spec.kind, ServiceType::Other("Telepathy".into()));
    assert_eq!(service.spec.ports[0].protocol.as_str(), "DCCP");
    let error = |text: &str| {
        serde_json::from_str::<Service>(text)
            .unwrap_err()
            .to_string()
    };
    let port = error(r#"{"metadata": {"name": "web"}, "spec": {"ports": [{"port": 70000}]}}"#);
    assert!(port.contains("70000"), "{port}");
    let name = error(r#"{"metadata": {}}"#);
    assert!(name.contains("`name`"), "{name}");
}

#[test]
fn nodes_and_service_cidrs_are_deserialized() {
    let node = json!({
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": "eu-1a"}},
        "spec": {
            "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244:1::/64"],
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        },
        "status": {
            "capacity": {"cpu": "8"},
            "addresses": [
                {"type": "InternalIP", "address": "192.168.0.11"},
                {"type": "Hostname", "address": "node-1"}
            ]
        }
    });
    let (view, warnings) = NodeView::read(&serde_json::from_value::<Node>(node).unwrap());
    assert_eq!(warnings, []);
    assert_eq!(view.zone.as_deref(), Some("eu-1a"));
    assert_eq!(
        view.addresses,
        ["192.168.0.11".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(view.pod_cidrs.len(), 2);
    assert!(view.eligible);
    let cidr = json!({"metadata": {"name": "main"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
    let cidr: ServiceCidr = serde_json::from_value(cidr).unwrap();
    assert_eq!(cidr.spec.cidrs, ["10.96.0.0/16"]);
}

#[test]
fn serialized_objects_deserialize_to_the_same_objects() {
    let service: Service = serde_json::from_str(SERVICE).unwrap();
    let text = serde_json::to_string(&service).unwrap();
    assert_eq!(serde_json::from_str::<Service>(&text).unwrap(), service);
    let slice: EndpointSlice = serde_json::from_str(SLICE).unwrap();
    let text = serde_json::to_string(&slice).unwrap();
    assert_eq!(serde_json::from_str::<EndpointSlice>(&text).unwrap(), slice);
}

#[test]
fn random_objects_survive_a_serialization_round_trip() {
    use vipline_service_model::arbitrary::Dice;
    for seed in 0..300 {
        let mut dice = Dice::from_seed(seed);
        let (service, slice) = (dice.service(), dice.slice());
        let (node, cidr) = (dice.node(), dice.service_cidr());
        let text = serde_json::to_string(&(&service, &slice, &node, &cidr)).unwrap();
        let read: (Service, EndpointSlice, Node, ServiceCidr) =
            serde_json::from_str(&text).unwrap();
        assert_eq!(read, (service, slice, node, cidr));
    }
}

#[test]
fn manifests_in_yaml_are_deserialized() {
    let manifest = "
apiVersion: v1
kind: Service
metadata:
  name: web
  creationTimestamp: null
spec:
  clusterIP: 10.96.0.10
  ports:
    - port: 80
      targetPort: 8080
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports:
  - port: 8080
endpoints:
  - addresses: [10.244.1.5]
    conditions: {ready: true}
    nodeName: node-1
";
    let (service, slice) = manifest.split_once("---").unwrap();
    let service: Service = serde_saphyr::from_str(service).unwrap();
    let slice: EndpointSlice = serde_saphyr::from_str(slice).unwrap();
    assert_eq!(service.spec.ports[0].port, 80);
    assert_eq!(slice.endpoints[0].addresses, ["10.244.1.5"]);
    assert_eq!(slice.ports[0].name.as_deref(), Some(""));
}
