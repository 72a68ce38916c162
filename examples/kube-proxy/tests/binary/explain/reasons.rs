//! The reason and the field of each kind of failure.

use serde_json::{Value, json as value};

use super::{CLUSTER, MODES, explain, json};

/// A question, and the expected outcome, field, and part of the reason.
type Case = (
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
);

const FAILURES: [Case; 15] = [
    (
        "tcp 10.96.0.60:80 --from 10.244.1.5",
        "refused",
        Some("endpoints"),
        "no endpoints",
    ),
    (
        "tcp 10.96.0.30:80 --from 10.244.1.5",
        "refused",
        Some("endpoints[].conditions.ready"),
        "its one endpoint is not ready",
    ),
    (
        "tcp 10.96.0.40:80 --from 10.244.1.5",
        "dropped",
        Some("spec.internalTrafficPolicy"),
        "internalTrafficPolicy is Local",
    ),
    (
        "tcp 192.168.0.5:30040 --from 198.51.100.7",
        "dropped",
        Some("spec.externalTrafficPolicy"),
        "externalTrafficPolicy is Local",
    ),
    (
        "tcp 203.0.113.9:80 --from 192.0.2.7",
        "dropped",
        Some("spec.loadBalancerSourceRanges"),
        "198.51.100.0/24",
    ),
    (
        "tcp [2001:db8:9::9]:80 --from fd00:bad::7",
        "dropped",
        Some("spec.loadBalancerSourceRanges"),
        "2001:db8::/32",
    ),
    (
        "tcp 10.96.0.10:81 --from 10.244.1.5",
        "refused",
        Some("spec.ports"),
        "80/TCP",
    ),
    (
        "udp 10.96.0.10:80 --from-node",
        "refused",
        Some("spec.ports"),
        "shop/web",
    ),
    (
        "service shop/headless",
        "dropped",
        Some("spec.clusterIP"),
        "headless",
    ),
    (
        "tcp 10.96.0.50:80 --from 10.244.1.5",
        "dropped",
        Some("metadata.labels[service.kubernetes.io/service-proxy-name]"),
        "cilium",
    ),
    (
        "service shop/other",
        "dropped",
        Some("metadata.labels[service.kubernetes.io/service-proxy-name]"),
        "cilium",
    ),
    (
        "tcp [2001:db8::77]:80 --from 2001:db8::7",
        "dropped",
        Some("spec.ipFamilies"),
        "no cluster IP in IPv6",
    ),
    (
        "tcp 203.0.113.8:80 --from 198.51.100.7",
        "dropped",
        Some("status.loadBalancer.ingress[].ipMode"),
        "ipMode Proxy",
    ),
    (
        "tcp 10.96.7.7:80 --from 10.244.1.5",
        "dropped",
        Some("spec.clusterIP"),
        "ServiceCIDR",
    ),
    (
        "tcp 192.168.0.5:30099 --from 198.51.100.7",
        "refused",
        Some("spec.ports[].nodePort"),
        "no Service has this node port",
    ),
];

#[test]
fn each_failure_has_its_outcome_its_field_and_a_reason() {
    for mode in MODES {
        for (line, outcome, field, reason) in FAILURES {
            let answer = json(&explain(mode, CLUSTER, &format!("{line} -o json")));
            let outcome = match (mode, field) {
                // Mode iptables has no rule for other ports: packets leave the node.
                ("iptables", Some("spec.ports")) => "dropped",
                // The virtual servers have endpoints elsewhere.
                ("ipvs", Some("spec.internalTrafficPolicy" | "spec.externalTrafficPolicy")) => {
                    continue;
                }
                _ => outcome,
            };
            assert_eq!(answer["outcome"], outcome, "{mode} {line}: {answer:#}");
            assert_eq!(answer["field"], value!(field), "{mode} {line}: {answer:#}");
            let text = answer["reason"].as_str().unwrap();
            assert!(text.contains(reason), "{mode} {line}: {text}");
            assert_eq!(answer["endpoints"], value!([]), "{mode} {line}");
            let sentence = answer["sentence"].as_str().unwrap();
            assert!(
                !sentence.contains("contradicts"),
                "{mode} {line}: {sentence}"
            );
        }
    }
}

#[test]
fn a_node_port_is_explained_where_it_is_not_served() {
    let line = "tcp 192.168.0.5:30080 --from 198.51.100.7 --nodeport-addresses 10.0.0.0/8 -o json";
    let answer = json(&explain("nftables", CLUSTER, line));
    assert_eq!(answer["outcome"], "refused", "{answer:#}");
    assert_eq!(answer["field"], "--nodeport-addresses");
    assert!(answer["reason"].as_str().unwrap().contains("shop/web:http"));
}

#[test]
fn a_contested_address_is_explained_with_its_owner() {
    let owner = json(&explain(
        "nftables",
        CLUSTER,
        "tcp 203.0.113.10:80 --from 198.51.100.7 -o json",
    ));
    assert_eq!(owner["outcome"], "reachable", "{owner:#}");
    assert_eq!(owner["rivals"], value!(["shop/rival"]));
    let rival = json(&explain("nftables", CLUSTER, "service shop/rival -o json"));
    let answers = rival["answers"].as_array().unwrap();
    let is_contested = |it: &&Value| it["question"]["destination"] == "203.0.113.10:80";
    let contested = answers.iter().find(is_contested).unwrap();
    assert_eq!(contested["field"], "spec.externalIPs", "{contested:#}");
    assert!(
        contested["reason"]
            .as_str()
            .unwrap()
            .contains("shop/web:http")
    );
    assert_ne!(contested["outcome"], "reachable");
}

#[test]
fn endpoints_have_conditions_node_zone_and_probability() {
    let line = "tcp 10.96.0.10:80 --from 10.244.1.5 -o json";
    let answer = json(&explain("nftables", CLUSTER, line));
    assert_eq!(answer["masquerade"], "never", "{answer:#}");
    assert_eq!(answer["field"], Value::Null);
    let endpoint = |address: &str, node: &str, zone: &str, local: bool| {
        value!({
            "address": address, "probability": 0.5, "fraction": "1/2", "ready": true,
            "serving": true, "terminating": false, "node": node, "zone": zone, "local": local,
        })
    };
    let expected = [
        endpoint("10.244.1.11:8080", "node-1", "a", true),
        endpoint("10.244.2.12:8080", "node-2", "b", false),
    ];
    assert_eq!(answer["endpoints"], value!(expected));
    let other = &answer["otherEndpoints"][0];
    assert_eq!(other["address"], "10.244.2.13:8080");
    assert_eq!(
        (&other["ready"], &other["probability"]),
        (&value!(false), &value!(0.0))
    );
    assert_eq!(answer["kernel"], Value::Null);
}

#[test]
fn masquerading_depends_on_the_source() {
    for (line, expected) in [
        ("tcp 10.96.0.10:80 --from 10.244.1.5", "never"),
        ("tcp 10.96.0.10:80 --from 192.0.2.7", "always"),
        ("tcp 10.96.0.10:80 --from-node", "always"),
        ("tcp 10.96.0.10:80 --from 10.244.1.11", "mixed"),
        ("tcp [fd00:96::10]:80 --from fd00:244:1::5", "never"),
        ("tcp [fd00:96::10]:80 --from 2001:db8::7", "always"),
        ("tcp 192.168.0.5:30080 --from 198.51.100.7", "always"),
    ] {
        for mode in MODES {
            let answer = json(&explain(mode, CLUSTER, &format!("{line} -o json")));
            assert_eq!(answer["outcome"], "reachable", "{mode} {line}: {answer:#}");
            assert_eq!(answer["masquerade"], expected, "{mode} {line}: {answer:#}");
        }
    }
}

#[test]
fn all_addresses_of_a_service_are_explained_from_typical_sources() {
    let answer = json(&explain("nftables", CLUSTER, "service shop/web -o json"));
    assert_eq!(answer["families"], value!(["IPv4", "IPv6"]));
    let answers = answer["answers"].as_array().unwrap();
    let question = |it: &Value| {
        let question = &it["question"];
        format!("{} from {}", question["destination"], question["from"]).replace('"', "")
    };
    let questions: Vec<_> = answers.iter().map(question).collect();
    for expected in [
        "10.96.0.10:80 from pod",
        "10.96.0.10:80 from node",
        "10.96.0.10:80 from outside",
        "203.0.113.9:80 from outside",
        "203.0.113.10:80 from outside",
        "192.168.0.5:30080 from outside",
        "[fd00:96::10]:80 from pod",
        "[2001:db8:9::9]:80 from outside",
    ] {
        assert!(
            questions.iter().any(|it| it == expected),
            "{expected}: {questions:?}"
        );
    }
}

#[test]
fn the_affinity_that_a_connection_records_is_shown() {
    let line = "tcp 10.96.0.70:80 --from 10.244.1.5 -o json";
    let answer = json(&explain("nftables", CLUSTER, line));
    let affinity = answer["affinity"][0].as_str().unwrap();
    assert!(
        affinity.starts_with("records: ip kube-proxy @clients-"),
        "{affinity}"
    );
    assert!(
        affinity.ends_with(" to endpoint 10.244.1.71:8080"),
        "{affinity}"
    );
    assert_eq!(answer["service"]["affinitySeconds"], 10_800);
    let is_anonymous = answer.to_string().contains("@__set");
    assert!(!is_anonymous, "{answer:#}");
}

#[test]
fn what_is_beyond_the_limit_of_a_service_is_said_to_be() {
    // The 16,384 ports before it have the pairs; the external IP has none.
    let ports = (1..=16_385).map(|port| match port {
        16_385 => value!({ "name": "last", "port": port, "nodePort": 30_001 }),
        port => value!({ "name": format!("p{port}"), "port": port }),
    });
    let addresses = (0..20_000_u32).map(|it| std::net::Ipv4Addr::from(0xc612_0000 + it));
    let named = |name: &str, spec: Value| {
        value!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name, "namespace": "shop" },
            "spec": spec,
        })
    };
    let list = |service: Value| {
        let list = value!({
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": { "name": "node-1" },
                    "status": { "addresses": [{ "type": "InternalIP", "address": "192.168.0.5" }] },
                },
                service,
            ],
        });
        list.to_string()
    };
    let ports = list(named(
        "ports",
        value!({
            "type": "NodePort",
            "clusterIP": "10.96.0.90",
            "externalIPs": ["203.0.113.90"],
            "ports": ports.collect::<Vec<_>>(),
        }),
    ));
    let addresses = list(named(
        "addresses",
        value!({
            "clusterIP": "10.96.0.91",
            "externalIPs": addresses.collect::<Vec<_>>(),
            "ports": [{ "port": 80 }],
        }),
    ));
    let limit = "is not served: a Service gets at most 16384 pairs of an address and a port in \
                 each IP family; use several Services";
    for (manifests, destination, what, field) in [
        (
            &ports,
            "10.96.0.90:16385",
            "port 16385/TCP of Service shop/ports",
            "spec.ports",
        ),
        (
            &ports,
            "192.168.0.5:30001",
            "node port 30001/TCP of Service shop/ports",
            "spec.ports",
        ),
        (
            &ports,
            "203.0.113.90:1",
            "address 203.0.113.90 of Service shop/ports",
            "spec.externalIPs",
        ),
        (
            &addresses,
            "198.18.64.0:80",
            "address 198.18.64.0 of Service shop/addresses",
            "spec.externalIPs",
        ),
    ] {
        let line = format!("tcp {destination} --from 192.0.2.7 -o json");
        let answer = json(&explain("nftables", manifests, &line));
        assert_eq!(answer["reason"], format!("{what} {limit}"), "{answer:#}");
        assert_eq!(answer["field"], field, "{answer:#}");
    }
}
