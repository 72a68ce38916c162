//! Services and EndpointSlices of the tests, as objects of the API.

use serde_json::{Value, json};

/// Cluster IPs of Service `web` in namespace `shop`.
pub(crate) const WEB: [&str; 2] = ["10.96.0.20", "fd00:96::20"];

/// Returns the objects that all tests have.
pub(crate) fn shop() -> Vec<Value> {
    vec![
        service("web", WEB[0], Some(WEB[1])),
        headless("db"),
        endpoints(
            "db",
            &[("10.244.1.11", Some("db-0")), ("10.244.1.12", None)],
        ),
        external("docs", "www.example.org"),
    ]
}

/// Returns a Service with a port `http` and cluster IPs.
pub(crate) fn service(name: &str, ipv4: &str, ipv6: Option<&str>) -> Value {
    let mut addresses = vec![ipv4];
    addresses.extend(ipv6);
    let families = &["IPv4", "IPv6"][..addresses.len()];
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": ipv4,
            "clusterIPs": addresses,
            "ipFamilies": families,
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }],
        },
    })
}

/// Returns a headless Service with a port `sql`.
pub(crate) fn headless(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": { "service.kubernetes.io/headless": "" },
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "ipFamilies": ["IPv4"],
            "ports": [{ "name": "sql", "protocol": "TCP", "port": 5432 }],
        },
    })
}

/// Returns an IPv4 EndpointSlice of a Service, with addresses and hostnames.
pub(crate) fn endpoints(service: &str, endpoints: &[(&str, Option<&str>)]) -> Value {
    let endpoints = endpoints.iter().map(|(address, hostname)| {
        let mut endpoint = json!({
            "addresses": [address],
            "conditions": { "ready": true },
        });
        if let Some(hostname) = hostname {
            endpoint["hostname"] = json!(hostname);
        }
        endpoint
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-ipv4"),
            "namespace": "shop",
            "labels": {
                "kubernetes.io/service-name": service,
                "service.kubernetes.io/headless": "",
            },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "sql", "protocol": "TCP", "port": 5432 }],
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

/// Returns a Service of type ExternalName.
fn external(name: &str, target: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "type": "ExternalName", "externalName": target },
    })
}

/// Returns the cluster IP of one of many Services.
pub(crate) fn numbered_address(number: usize) -> String {
    format!("10.97.{}.{}", number / 250, 1 + number % 250)
}

/// Returns objects as a manifest.
pub(crate) fn manifest(objects: &[Value]) -> String {
    let documents = objects.iter().map(|object| format!("---\n{object:#}\n"));
    documents.collect()
}
