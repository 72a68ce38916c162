//! Results that a mode gives differently than the others, and typical sources.

use super::{CLUSTER, MODES, explain, json};
use crate::stage::{service, slice};

/// Services at the edges of the rules:
///
/// - `guarded`: source ranges and no endpoints;
/// - `old`: the address and the node port of `young` as external address, without endpoints;
/// - `own`: an external IP that is the address of the node, and a node port there;
/// - `inner`: internal policy Local without an endpoint on the node, not served outside.
const EDGES: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.0.5}]}
---
apiVersion: v1
kind: Service
metadata: {name: guarded, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 10.96.1.1
  loadBalancerSourceRanges: [198.51.100.0/24]
  ports: [{port: 80}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: old, namespace: shop, creationTimestamp: \"2020-01-01T00:00:00Z\"}
spec:
  clusterIP: 10.96.1.2
  externalIPs: [192.168.0.5]
  ports: [{port: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: young, namespace: shop}
spec:
  type: NodePort
  clusterIP: 10.96.1.3
  ports: [{port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: young, namespace: shop, labels: {kubernetes.io/service-name: young}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.3]}]
---
apiVersion: v1
kind: Service
metadata: {name: own, namespace: shop}
spec:
  type: NodePort
  clusterIP: 10.96.1.4
  externalIPs: [192.168.0.5]
  ports: [{port: 30100, nodePort: 30200}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: own, namespace: shop, labels: {kubernetes.io/service-name: own}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.4]}]
---
apiVersion: v1
kind: Service
metadata: {name: inner, namespace: shop}
spec:
  clusterIP: 10.96.1.5
  internalTrafficPolicy: Local
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: inner, namespace: shop, labels: {kubernetes.io/service-name: inner}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.5], nodeName: node-2}]
";

/// Explains a line in a mode, and returns outcome and field. Objects and plan agree.
fn result(mode: &str, manifests: &str, line: &str) -> (String, Option<String>) {
    let answer = json(&explain(mode, manifests, &format!("{line} -o json")));
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(
        !sentence.contains("contradicts"),
        "{mode} {line}: {sentence}"
    );
    let text = |name: &str| answer[name].as_str().map(str::to_owned);
    (text("outcome").unwrap(), text("field"))
}

#[test]
fn each_mode_is_explained_with_its_differences() {
    let ranges = Some("spec.loadBalancerSourceRanges");
    for (line, expected) in [
        // Mode iptables refuses without endpoints, from each source.
        (
            "tcp 203.0.113.1:80 --from 192.0.2.7",
            [
                ("dropped", ranges),
                ("refused", Some("endpoints")),
                ("dropped", ranges),
            ],
        ),
        // Mode iptables has no rule for packets of the node, and IPVS precedes the rules.
        (
            "tcp 203.0.113.1:80 --from-node",
            [
                ("dropped", ranges),
                ("dropped", Some("endpoints")),
                ("refused", Some("endpoints")),
            ],
        ),
        // IPVS has one virtual server per address and port.
        (
            "tcp 192.168.0.5:30080 --from 198.51.100.7",
            [
                ("reachable", None),
                ("reachable", None),
                ("refused", Some("endpoints")),
            ],
        ),
        (
            "tcp 192.168.0.5:30100 --from 198.51.100.7",
            [("reachable", None); 3],
        ),
        // The address is not one of kube-ipvs0, where other ports are rejected.
        (
            "tcp 192.168.0.5:30200 --from 198.51.100.7",
            [("reachable", None); 3],
        ),
        // A virtual server without endpoints rejects.
        (
            "tcp 10.96.1.5:80 --from 10.244.1.5",
            [
                ("dropped", Some("spec.internalTrafficPolicy")),
                ("dropped", Some("spec.internalTrafficPolicy")),
                ("refused", Some("spec.internalTrafficPolicy")),
            ],
        ),
    ] {
        for (mode, (outcome, field)) in MODES.into_iter().zip(expected) {
            let expected = (outcome.to_owned(), field.map(str::to_owned));
            assert_eq!(result(mode, EDGES, line), expected, "{mode} {line}");
        }
    }
}

#[test]
fn a_process_of_the_node_uses_the_address_of_a_service_as_its_source_in_mode_ipvs() {
    for (mode, source) in MODES
        .into_iter()
        .zip(["192.168.0.5", "192.168.0.5", "203.0.113.9"])
    {
        let line = "tcp 203.0.113.9:80 --from-node -o json";
        let answer = json(&explain(mode, CLUSTER, line));
        assert_eq!(answer["question"]["source"], source, "{mode}");
        assert_eq!(answer["question"]["from"], "node", "{mode}");
        assert_eq!(answer["outcome"], "dropped", "{mode}: {answer:#}");
    }
}

#[test]
fn node_ports_on_loopback_addresses_are_served_without_a_kernel() {
    let line = "tcp 127.0.0.1:30080 --from-node --nodeport-addresses 127.0.0.0/8";
    let expected = ("reachable".to_owned(), None);
    assert_eq!(result("iptables", EDGES, line), expected);
}

#[test]
fn the_typical_pod_is_no_endpoint() {
    // The fifth address of the pod network is an endpoint.
    let objects = service("web", "10.96.0.10") + &slice("web", 0, 7);
    let answer = json(&explain("nftables", &objects, "tcp 10.96.0.10:80 -o json"));
    assert_eq!(answer["question"]["source"], "10.244.0.8", "{answer:#}");
    assert_eq!(answer["masquerade"], "never");
}
