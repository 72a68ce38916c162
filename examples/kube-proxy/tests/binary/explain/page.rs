//! `/debug/explain` of a running proxy.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use testkit::link;

use super::kernel::web;
use crate::health::{HEALTH, METRICS, get};
use crate::stage::wait_until;

const QUESTION: &str = "/debug/explain?tcp=10.96.0.10:80&from=198.51.100.7";

#[test]
fn the_metrics_port_explains_and_the_health_port_does_not() {
    let stage = web();
    let proxy = stage.start();
    wait_until("a metrics server", || {
        get(&stage, METRICS, "/healthz").code == 200
    });
    let json = get(&stage, METRICS, &format!("{QUESTION}&output=json"));
    assert_eq!(json.code, 200, "{json:?}");
    let answer: Value = serde_json::from_str(&json.body).unwrap();
    assert_eq!(answer["outcome"], "reachable", "{answer:#}");
    assert_eq!(answer["agrees"], true, "{answer:#}");
    assert_eq!(answer["endpoints"].as_array().map(Vec::len), Some(2));
    let text = get(&stage, METRICS, QUESTION);
    assert!(
        text.body
            .contains("Works for the first packet: 10.96.0.10:80"),
        "{text:?}"
    );
    assert!(!text.body.contains('\x1b'), "{text:?}");
    let service = get(
        &stage,
        METRICS,
        "/debug/explain?service=default/web&output=json",
    );
    let service: Value = serde_json::from_str(&service.body).unwrap();
    assert_eq!(service["service"], "default/web");
    for (path, code) in [
        ("/debug/explain", 400),
        ("/debug/explain?tcp=web", 400),
        ("/debug/explain?tcp=10.96.0.10:80&udp=10.96.0.10:53", 400),
        ("/debug/explain?service=default/unknown", 404),
    ] {
        assert_eq!(get(&stage, METRICS, path).code, code, "{path}");
    }
    assert_eq!(get(&stage, HEALTH, QUESTION).code, 404);
    drop(proxy);
}

#[test]
fn other_hosts_get_explanations_with_profiling_only() {
    let address = IpAddr::from([10, 9, 9, 9]);
    for (flag, code) in [("", 403), ("--profiling", 200)] {
        let stage = web();
        let added = stage.netns.run(|| link::add_address("lo", address.into()));
        added.unwrap();
        let proxy = stage.start_with(&format!("--metrics-bind-address 0.0.0.0:{METRICS} {flag}"));
        wait_until("a metrics server", || {
            get(&stage, METRICS, "/healthz").code == 200
        });
        // A connection to another address of the node has that address as its source, too.
        let request = |path: &str| {
            let server = SocketAddr::new(address, METRICS);
            let answer = stage
                .netns
                .run(|| testkit::http::request(server, &format!("GET {path}")));
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let code: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
            (code, body.to_owned())
        };
        let (found, body) = request(QUESTION);
        assert_eq!(found, code, "{body}");
        assert_eq!(body.contains("10.244.1.2"), code == 200, "{body}");
        assert_eq!(
            body.contains("start kube-proxy with --profiling"),
            code == 403,
            "{body}"
        );
        for path in ["/metrics", "/proxyMode"] {
            assert_eq!(request(path).0, 200, "{path}");
        }
        assert_eq!(
            get(&stage, METRICS, QUESTION).code,
            200,
            "from a loopback address"
        );
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn an_explanation_does_not_delay_or_repeat_a_sync() {
    let stage = web();
    let proxy = stage.start_with("--v 2");
    wait_until("a metrics server", || {
        get(&stage, METRICS, "/healthz").code == 200
    });
    let syncs = |output: String| output.matches("synced").count();
    let before = syncs(proxy.output());
    for _ in 0..3 {
        assert_eq!(get(&stage, METRICS, QUESTION).code, 200);
    }
    assert_eq!(syncs(proxy.output()), before, "{}", proxy.output());
    let changed = crate::stage::service("web", "10.96.0.11") + &crate::stage::slice("web", 1, 2);
    stage.write("web.yaml", &changed);
    wait_until("a sync", || stage.ruleset().contains("10.96.0.11"));
    let moved = QUESTION.replace("10.96.0.10", "10.96.0.11");
    let text = get(&stage, METRICS, &moved);
    assert!(
        text.body
            .contains("Works for the first packet: 10.96.0.11:80"),
        "{text:?}"
    );
}
