//! Tests of the metrics of mode ipvs.

use proxy_core::backend::ipvs::Planner;

use super::*;

fn stage() -> Stage {
    Stage::in_mode::<Planner>(Mode::Ipvs, Duration::from_secs(30))
}

#[test]
fn the_ipvs_page_equals_the_golden_file() {
    compare_with_golden(stage(), "metrics-ipvs.txt");
}

#[test]
fn failures_are_counted_under_upstreams_name() {
    let mut stage = stage();
    let name = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total";
    let failures = |stage: &Stage| stage.value(&format!("{name}{{ip_family=\"IPv4\"}}"));
    stage.sync();
    assert_eq!(failures(&stage), Some(0.0));
    stage.refuse(true);
    stage.service("front", 0, NODE);
    stage.sync();
    assert_eq!(failures(&stage), Some(1.0));
}

#[test]
fn services_without_local_endpoints_are_counted_in_mode_ipvs_and_ports_in_others() {
    let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    let others = Stage::new(Duration::from_secs(30));
    for (mut stage, expected) in [(stage(), 1.0), (others, 2.0)] {
        let ports = json!([
            { "name": "http", "port": 80, "nodePort": 30080 },
            { "name": "https", "port": 443, "nodePort": 30443 },
        ]);
        let service = json!({
            "metadata": { "namespace": "shop", "name": "front" },
            "spec": {
                "type": "NodePort", "clusterIP": "10.96.0.10", "ports": ports,
                "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local",
            },
        });
        let slice = json!({
            "metadata": {
                "namespace": "shop", "name": "front",
                "labels": { "kubernetes.io/service-name": "front" },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080 }, { "name": "https", "port": 8443 }],
            "endpoints": [{ "addresses": ["10.1.0.1"], "nodeName": "node-2" }],
        });
        let service: api::Service = serde_json::from_value(service).unwrap();
        let slice: api::EndpointSlice = serde_json::from_value(slice).unwrap();
        stage.apply(service.into());
        stage.apply(slice.into());
        stage.sync();
        for policy in ["internal", "external"] {
            let labels = format!("{{ip_family=\"IPv4\",traffic_policy=\"{policy}\"}}");
            assert_eq!(stage.value(&format!("{name}{labels}")), Some(expected));
        }
    }
}
