//! The example `hns-proxy`.

use proxy_engine::Family;
use serde_json::{Value, json};
use vipline_hcn::{Memory, Network, NetworkType, Protocol, Service, Version};

#[expect(dead_code, reason = "the test does not call `main`")]
#[path = "../../examples/hns-proxy.rs"]
mod hns_proxy;

/// Returns a Service with an endpoint on `node-2`.
fn list() -> Value {
    let name = json!({"name": "web", "namespace": "shop"});
    let slice = json!({
        "name": "web-1",
        "namespace": "shop",
        "labels": {"kubernetes.io/service-name": "web"},
    });
    json!({"items": [
        {"kind": "Service", "metadata": name, "spec": {
            "clusterIP": "10.96.0.10",
            "ports": [{"port": 80, "protocol": "TCP"}],
        }},
        {"kind": "EndpointSlice", "metadata": slice, "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.244.2.7"], "nodeName": "node-2"}],
        },
        {"kind": "Node", "metadata": {"name": "node-1"}},
        {"kind": "Pod"},
    ]})
}

#[test]
fn hns_proxy_creates_the_load_balancers_of_a_list() {
    let hns = hns_proxy::service("cbr0").unwrap();
    let (report, load_balancers) = hns_proxy::run(hns, "cbr0", "node-1", list()).unwrap();
    assert!(hns_proxy::rejections(&report).is_empty());
    let [web] = &*load_balancers else {
        panic!("{load_balancers:?}");
    };
    assert_eq!(web.frontend_vips, ["10.96.0.10"]);
    assert_eq!(web.endpoints.len(), 1);
    let mapping = &web.port_mappings[0];
    assert_eq!((mapping.external_port, mapping.internal_port), (80, 8080));
    assert_eq!(mapping.protocol, Protocol::TCP);
}

#[test]
fn hns_proxy_reports_endpoints_of_its_node_that_hns_lacks() {
    let hns = hns_proxy::service("cbr0").unwrap();
    let (report, load_balancers) = hns_proxy::run(hns, "cbr0", "node-2", list()).unwrap();
    assert_eq!(load_balancers, []);
    let [rejected] = &*hns_proxy::rejections(&report) else {
        panic!("{report:?}");
    };
    assert!(rejected.contains("shop/web"), "{rejected}");
    assert!(
        rejected.contains("HNS has none of the endpoints"),
        "{rejected}"
    );
}

#[test]
fn hns_proxy_rejects_networks_that_it_cannot_serve() {
    let error = |hns, network| {
        let failed = hns_proxy::run(hns, network, "node-1", json!({}));
        failed.unwrap_err().to_string()
    };
    let hns = hns_proxy::service("cbr0").unwrap();
    assert_eq!(error(hns, "other"), "network other: not found");
    let mut hns = Memory::new();
    let overlay = Network::new("vxlan0", NetworkType::Overlay);
    hns.create_network(&overlay).unwrap();
    let expected = "overlay networks need a source VIP, which this program does not set";
    assert_eq!(error(hns, "vxlan0"), expected);
}

#[test]
fn hns_proxy_serves_ipv6_if_hns_supports_dual_stack() {
    for (version, expected) in [
        (Version::new(9, 2), &[Family::V4][..]),
        (Version::new(11, 10), &Family::ALL),
    ] {
        let mut hns = Memory::new().with_version(version);
        let network = Network::new("cbr0", NetworkType::L2Bridge);
        hns.create_network(&network).unwrap();
        let (report, _) = hns_proxy::run(hns, "cbr0", "node-1", list()).unwrap();
        let families: Vec<_> = report.families.iter().map(|it| it.family).collect();
        assert_eq!(families, expected, "{version:?}");
    }
}
