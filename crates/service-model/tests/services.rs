//! Tests of parsed Services.

mod objects;

use std::hash::BuildHasher;
use std::net::IpAddr;

use objects::{HERE, only_port, port, ports, resolve, synced, web};
use vipline_service_model::{
    Config, Event, ExternalIps, Family, PortName, ServicePort, Store, Timestamp, Transport,
    Warning, api,
};

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// Changes the Service `default/web` and returns its IPv4 port and warnings.
fn with(change: impl FnOnce(&mut api::Service)) -> (std::sync::Arc<ServicePort>, Vec<String>) {
    let (mut store, warnings) = changed(change);
    (only_port(&mut store), warnings)
}

/// Changes the Service `default/web`. Returns whether it has no ports, and the warnings.
fn is_unserved_with(change: impl FnOnce(&mut api::Service)) -> (bool, Vec<String>) {
    let (mut store, warnings) = changed(change);
    (resolve(&mut store).is_empty(), warnings)
}

fn changed(change: impl FnOnce(&mut api::Service)) -> (Store, Vec<String>) {
    let mut service = web();
    change(&mut service);
    let mut store = synced([]);
    let warnings = store.apply(service.into());
    (store, warnings.iter().map(Warning::to_string).collect())
}

#[test]
fn a_minimal_service_has_defaults() {
    let (port, warnings) = with(|_| {});
    assert_eq!(port.to_string(), "10.96.0.10:80/TCP");
    assert_eq!(port.name.to_string(), "default/web");
    assert_eq!(port.node_port, None);
    assert_eq!(port.affinity, None);
    assert!(!port.is_external());
    assert!(warnings.is_empty());
}

#[test]
fn services_of_other_proxies_or_without_cluster_ip_have_no_ports_and_no_warnings() {
    let quiet = (true, Vec::new());
    assert_eq!(
        is_unserved_with(|s| s.spec.cluster_ip = String::new()),
        quiet
    );
    assert_eq!(
        is_unserved_with(|s| s.spec.cluster_ip = "None".into()),
        quiet
    );
    assert_eq!(
        is_unserved_with(|s| s.spec.kind = api::ServiceType::ExternalName),
        quiet
    );
    assert_eq!(is_unserved_with(|s| s.spec.ports.clear()), quiet);
    let label = "service.kubernetes.io/service-proxy-name";
    let labeled = |s: &mut api::Service| {
        s.metadata.labels.insert(label.into(), String::new());
    };
    assert_eq!(is_unserved_with(labeled), quiet);
}

#[test]
fn an_ipvs_scheduler_is_read_from_its_annotation() {
    let annotated = |name: &'static str| {
        with(move |s| {
            let key = "service.kubernetes.io/ipvs-scheduler".to_owned();
            s.metadata.annotations.insert(key, name.into());
        })
    };
    let (port, warnings) = annotated("lc");
    assert_eq!(
        port.scheduler.map(|it| it.to_string()).as_deref(),
        Some("lc")
    );
    assert!(warnings.is_empty());
    let (port, warnings) = annotated("fastest");
    assert_eq!((port.scheduler, warnings.len()), (None, 1));
}

#[test]
fn the_name_of_a_port_identifies_it() {
    let (port, _) = with(|_| {});
    let change = |change: fn(&mut PortName)| {
        let mut name = PortName::clone(&port.name);
        change(&mut name);
        name
    };
    let others = [
        change(|it| it.protocol = Transport::Sctp),
        change(|it| it.port = "http".into()),
    ];
    for other in &others {
        assert!(other.is_same_service(&port.name), "{other}");
    }
    let strangers = [
        change(|it| it.service = "api".into()),
        change(|it| it.namespace = "shop".into()),
    ];
    for other in &strangers {
        assert!(!other.is_same_service(&port.name), "{other}");
    }
    let hasher = std::hash::RandomState::new();
    let all = others.iter().chain(&strangers).chain([&*port.name]);
    let hashes: std::collections::HashSet<_> = all.map(|name| hasher.hash_one(name)).collect();
    assert_eq!(hashes.len(), 5);
    let numbers = Transport::ALL.map(Transport::number);
    assert_eq!(numbers, [6, 17, 132]);
}

#[test]
fn cluster_ips_are_assigned_to_families() {
    type Texts = &'static [&'static str];
    type Found = Option<&'static str>;
    let cases: [(&str, Texts, Texts, Found, Found); 9] = [
        ("10.0.0.1", &[], &[], Some("10.0.0.1"), None),
        ("fd00::1", &[], &[], None, Some("fd00::1")),
        ("010.000.0.001", &[], &[], Some("10.0.0.1"), None),
        ("10.0.0.1", &["10.0.0.1"], &["IPv4"], Some("10.0.0.1"), None),
        ("10.0.0.1", &[], &["IPv4"], Some("10.0.0.1"), None),
        (
            "10.0.0.1",
            &["10.0.0.1", "fd00::1"],
            &["IPv4", "IPv6"],
            Some("10.0.0.1"),
            Some("fd00::1"),
        ),
        (
            "fd00::1",
            &["fd00::1", "10.0.0.1"],
            &["IPv6", "IPv4"],
            Some("10.0.0.1"),
            Some("fd00::1"),
        ),
        (
            "10.0.0.1",
            &["10.0.0.1", "fd00::1"],
            &["IPv4"],
            Some("10.0.0.1"),
            None,
        ),
        (
            "10.0.0.1",
            &["10.0.0.1"],
            &["IPv4", "IPv6"],
            Some("10.0.0.1"),
            None,
        ),
    ];
    for (cluster_ip, cluster_ips, families, v4, v6) in cases {
        let (mut store, warnings) = changed(|service| {
            service.spec.cluster_ip = cluster_ip.into();
            service.spec.cluster_ips = cluster_ips.iter().map(|&ip| ip.into()).collect();
            service.spec.ip_families = families.iter().map(|&family| family.into()).collect();
        });
        for (family, expected) in [(Family::V4, v4), (Family::V6, v6)] {
            let ports = ports(&mut store, family);
            let found = ports.first().map(|port| port.cluster_ip);
            let expected = expected.map(|ip| ip.parse::<IpAddr>().unwrap());
            assert_eq!(found, expected, "{cluster_ip} {cluster_ips:?} {families:?}");
        }
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn invalid_cluster_ips_are_reported() {
    let (is_unserved, warnings) = is_unserved_with(|s| s.spec.cluster_ip = "ten.0.0.1".into());
    assert!(is_unserved);
    let expected = r#"Service default/web: spec.clusterIPs[0]: not an IP address: "ten.0.0.1""#;
    assert_eq!(warnings, [expected]);
    let (is_unserved, warnings) =
        is_unserved_with(|s| s.spec.ip_families = vec![api::IpFamily::V6]);
    assert!(is_unserved);
    let expected = "Service default/web: spec.clusterIPs[0]: not an IPv6 address: 10.96.0.10";
    assert_eq!(warnings, [expected]);
}

#[test]
fn ports_are_distinguished_by_name_and_protocol() {
    let (mut store, warnings) = changed(|service| {
        service.spec.ports = vec![
            port("web", "TCP", 443),
            port("dns", "UDP", 53),
            port("dns", "TCP", 53),
            port("dns", "TCP", 54),
            port("dccp", "DCCP", 80),
            port("zero", "SCTP", 0),
            port("sctp", "SCTP", 36_412),
        ];
    });
    let ports = ports(&mut store, Family::V4);
    let lines: Vec<_> = ports
        .iter()
        .map(|port| format!("{} {port}", port.name))
        .collect();
    let expected = [
        "default/web:dns 10.96.0.10:54/TCP",
        "default/web:dns 10.96.0.10:53/UDP",
        "default/web:sctp 10.96.0.10:36412/SCTP",
        "default/web:web 10.96.0.10:443/TCP",
    ];
    assert_eq!(lines, expected);
    assert_eq!(ports[1].protocol, Transport::Udp);
    let expected = [
        "Service default/web: spec.ports[3]: duplicate name and protocol, the last port is used",
        r#"Service default/web: spec.ports[4].protocol: unknown: "DCCP""#,
        "Service default/web: spec.ports[5].port: must not be zero",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn a_node_port_is_used_regardless_of_the_service_type() {
    let (port, _) = with(|service| service.spec.ports[0].node_port = 30_080);
    assert_eq!(port.node_port, Some(30_080));
    assert!(port.is_external());
}

#[test]
fn the_session_affinity_timeout_defaults_to_three_hours() {
    let seconds = |affinity: &str, seconds: Option<Option<u32>>| {
        let (port, warnings) = with(|service| {
            service.spec.session_affinity = affinity.into();
            service.spec.session_affinity_config =
                seconds.map(|timeout_seconds| api::SessionAffinityConfig {
                    client_ip: Some(api::ClientIpConfig { timeout_seconds }),
                });
        });
        (port.affinity, warnings.len())
    };
    assert_eq!(seconds("None", Some(Some(60))), (None, 0));
    assert_eq!(seconds("ClientIP", Some(Some(60))), (Some(60), 0));
    assert_eq!(seconds("ClientIP", Some(None)), (Some(10_800), 0));
    assert_eq!(seconds("ClientIP", None), (Some(10_800), 0));
    assert_eq!(seconds("ClientIP", Some(Some(0))), (Some(10_800), 1));
    assert_eq!(seconds("Cookie", None), (None, 1));
}

#[test]
fn external_ips_are_filtered_by_family_and_special_addresses_are_refused() {
    let (port, warnings) = with(|service| {
        let ips = [
            "192.0.2.9",
            "192.0.2.009",
            "fd00::9",
            "",
            " ",
            "odd",
            "127.0.0.1",
            "192.0.2.10",
        ];
        service.spec.external_ips = ips.map(Into::into).into();
    });
    assert_eq!(texts(&port.external_ips), ["192.0.2.9", "192.0.2.10"]);
    let expected = [
        r#"Service default/web: spec.externalIPs[5]: not an IP address: "odd""#,
        "Service default/web: spec.externalIPs[6]: loopback address refused: 127.0.0.1",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn ignored_external_ips_still_make_a_port_external() {
    let mut service = web();
    service.spec.external_ips = vec!["192.0.2.9".into()];
    service.spec.internal_traffic_policy = api::TrafficPolicy::Local;
    let slice = objects::slice("web-1", vec![objects::endpoint("10.0.0.2 there")]);
    let mut config = Config::new(HERE);
    config.external_ips = ExternalIps::Ignore;
    let mut store = Store::new(config);
    for event in [service.into(), slice.into(), Event::Synced] {
        store.apply(event);
    }
    let port = only_port(&mut store);
    assert!(port.external_ips.is_empty());
    assert!(port.is_exposed && !port.is_external());
    // With internalTrafficPolicy Local, only external ports need the cluster list.
    assert_eq!(objects::endpoints(&port.cluster), "10.0.0.2:8080");
}

#[test]
fn only_load_balancer_ips_in_mode_vip_are_served() {
    let ingress = |ip: &str, mode: &str| api::Ingress {
        ip: ip.into(),
        ip_mode: mode.into(),
    };
    let (port, warnings) = with(|service| {
        service.status.load_balancer.ingress = vec![
            ingress("198.51.100.2", ""),
            ingress("198.51.100.1", "VIP"),
            ingress("198.51.100.3", "Proxy"),
            ingress("198.51.100.2", "VIP"),
            ingress("fd00::1", "VIP"),
            ingress("", "VIP"),
            ingress("odd", "VIP"),
            ingress("::1", "VIP"),
        ];
    });
    assert_eq!(
        texts(&port.load_balancer_ips),
        ["198.51.100.2", "198.51.100.1"]
    );
    let path = "Service default/web: status.loadBalancer.ingress";
    let expected = [
        format!(r#"{path}[6].ip: not an IP address: "odd""#),
        format!("{path}[7].ip: loopback address refused: ::1"),
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn source_ranges_apply_to_their_family_unless_one_allows_all_addresses() {
    let ranges = |ranges: &[&str]| {
        let (port, warnings) = with(|service| {
            let ranges = ranges.iter().map(|&range| range.into());
            service.spec.load_balancer_source_ranges = ranges.collect();
        });
        (texts(&port.source_ranges).join(" "), warnings.len())
    };
    assert_eq!(ranges(&[]), (String::new(), 0));
    assert_eq!(
        ranges(&["192.0.2.0/24", " 10.1.2.3/8 ", "10.0.0.0/8"]),
        ("192.0.2.0/24 10.0.0.0/8".into(), 0)
    );
    assert_eq!(ranges(&["10.0.0.0/8", "0.0.0.0/0"]), (String::new(), 0));
    assert_eq!(ranges(&["10.0.0.0/8", "::/0"]), ("10.0.0.0/8".into(), 0));
    assert_eq!(ranges(&["fd00::/8"]), (String::new(), 0));
    assert_eq!(ranges(&["010.0.0.0/8", "odd"]), ("10.0.0.0/8".into(), 1));
}

#[test]
fn external_policy_local_requires_an_externally_reachable_service() {
    let local = |kind: &str, external_ips: &[&str]| {
        let (port, _) = with(|service| {
            service.spec.kind = kind.into();
            service.spec.external_ips = external_ips.iter().map(|&ip| ip.into()).collect();
            service.spec.external_traffic_policy = api::TrafficPolicy::Local;
        });
        port.external_policy_local
    };
    assert!(local("LoadBalancer", &[]));
    assert!(local("NodePort", &[]));
    assert!(!local("ClusterIP", &[]));
    assert!(local("ClusterIP", &["192.0.2.9"]));
    // An external IP of either family is sufficient.
    assert!(local("ClusterIP", &["fd00::9"]));
    assert!(!local("Odd", &["192.0.2.9"]));
}

#[test]
fn health_check_node_ports_require_a_load_balancer_with_external_policy_local() {
    let node_port = |kind: &str, policy: &str, number: u16| {
        let (port, warnings) = with(|service| {
            service.spec.kind = kind.into();
            service.spec.external_traffic_policy = policy.into();
            service.spec.health_check_node_port = number;
        });
        (port.health_check_node_port, warnings.len())
    };
    assert_eq!(
        node_port("LoadBalancer", "Local", 32_000),
        (Some(32_000), 0)
    );
    assert_eq!(node_port("LoadBalancer", "Cluster", 32_000), (None, 0));
    assert_eq!(node_port("NodePort", "Local", 32_000), (None, 0));
    assert_eq!(node_port("LoadBalancer", "Local", 0), (None, 1));
}

#[test]
fn the_creation_time_of_a_service_is_part_of_its_port_names() {
    let created = |text: &str| {
        let (port, warnings) = with(|service| {
            service.metadata.creation_timestamp = Some(text.into());
        });
        (port.name.created, warnings.len())
    };
    let expected = Timestamp {
        seconds: 1_767_225_600,
        nanos: 0,
    };
    assert_eq!(created("2026-01-01T00:00:00Z"), (Some(expected), 0));
    assert_eq!(created("long ago"), (None, 1));
}
