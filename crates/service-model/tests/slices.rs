//! Tests of the endpoints gathered from EndpointSlices.

mod objects;

use objects::{endpoint, endpoint_port, endpoints, only_port, port, ports, slice, synced, web};
use vipline_service_model::{Family, Store, Warning, api};

fn slice_of(name: &str, words: &[&str]) -> api::EndpointSlice {
    slice(name, words.iter().map(|words| endpoint(words)).collect())
}

fn store(slices: Vec<api::EndpointSlice>) -> Store {
    let slices = slices.into_iter().map(Into::into);
    synced(std::iter::once(web().into()).chain(slices))
}

fn cluster(slices: Vec<api::EndpointSlice>) -> String {
    endpoints(&only_port(&mut store(slices)).cluster)
}

fn warnings(slice: api::EndpointSlice) -> Vec<String> {
    store(vec![])
        .apply(slice.into())
        .iter()
        .map(Warning::to_string)
        .collect()
}

#[test]
fn endpoints_of_all_slices_are_sorted_numerically() {
    let slices = vec![
        slice_of("web-2", &["10.0.0.2", "10.0.0.100"]),
        slice_of("web-1", &["10.0.0.10", "9.0.0.1"]),
    ];
    let expected = "9.0.0.1:8080 10.0.0.2:8080 10.0.0.10:8080 10.0.0.100:8080";
    assert_eq!(cluster(slices), expected);
}

#[test]
fn endpoint_counts_include_unused_endpoints() {
    let mut store = store(vec![
        slice_of("web-1", &["10.0.0.1", "10.0.0.2 unready"]),
        slice_of("web-2", &["10.0.0.2 unready", "10.0.0.3 unready"]),
    ]);
    let port = only_port(&mut store);
    assert_eq!(endpoints(&port.cluster), "10.0.0.1:8080");
    assert_eq!(port.endpoint_count, 3);
    assert_eq!(store.endpoints(Family::V4), 3);
    assert_eq!(store.endpoints(Family::V6), 0);
}

#[test]
fn slices_of_other_services_and_namespaces_and_headless_slices_are_ignored() {
    let ours = || slice_of("web-1", &["10.0.0.1"]);
    let mut other_service = slice_of("web-2", &["10.0.0.2"]);
    other_service
        .metadata
        .labels
        .insert("kubernetes.io/service-name".into(), "api".into());
    let mut headless = slice_of("web-3", &["10.0.0.3"]);
    headless
        .metadata
        .labels
        .insert("service.kubernetes.io/headless".into(), String::new());
    let mut unlabeled = slice_of("web-4", &["10.0.0.4"]);
    unlabeled.metadata.labels.clear();
    let mut elsewhere = slice_of("web-5", &["10.0.0.5"]);
    elsewhere.metadata.namespace = "other".into();
    let mut nameless = slice_of("web-6", &["10.0.0.6"]);
    nameless
        .metadata
        .labels
        .insert("kubernetes.io/service-name".into(), String::new());
    for slice in [other_service, headless, unlabeled, elsewhere, nameless] {
        assert_eq!(warnings(slice.clone()), [""; 0]);
        assert_eq!(cluster(vec![ours(), slice]), "10.0.0.1:8080");
    }
}

#[test]
fn slices_of_unknown_address_types_are_reported() {
    let mut slice = slice_of("web-1", &["10.0.0.1"]);
    slice.address_type = api::AddressType::Fqdn;
    let expected = r#"EndpointSlice default/web-1: addressType: unknown: "FQDN""#;
    assert_eq!(warnings(slice.clone()), [expected]);
    assert_eq!(cluster(vec![slice]), "");
}

#[test]
fn ports_match_by_name_and_protocol_and_keep_the_number_of_the_slice() {
    let mut service = web();
    service.spec.ports = vec![
        port("a", "TCP", 80),
        port("a", "UDP", 80),
        port("b", "TCP", 81),
    ];
    let mut first = slice_of("web-1", &["10.0.0.1"]);
    first.ports = vec![
        endpoint_port("b", "TCP", 81),
        endpoint_port("a", "TCP", 8080),
    ];
    let mut second = slice_of("web-2", &["10.0.0.2"]);
    second.ports = vec![
        endpoint_port("a", "TCP", 9090),
        endpoint_port("c", "TCP", 1),
    ];
    let mut store = synced([service.into(), first.into(), second.into()]);
    let lists: Vec<_> = ports(&mut store, Family::V4)
        .iter()
        .map(|port| format!("{port} {}", endpoints(&port.cluster)))
        .collect();
    let expected = [
        "10.96.0.10:80/TCP 10.0.0.1:8080 10.0.0.2:9090",
        "10.96.0.10:80/UDP ",
        "10.96.0.10:81/TCP 10.0.0.1:81",
    ];
    assert_eq!(lists, expected);
}

#[test]
fn ports_without_name_number_or_known_protocol_are_left_out() {
    let mut slice = slice_of("web-1", &["10.0.0.1"]);
    slice.ports = vec![
        api::EndpointPort {
            name: None,
            ..endpoint_port("", "TCP", 1)
        },
        api::EndpointPort {
            port: None,
            ..endpoint_port("", "TCP", 2)
        },
        endpoint_port("", "TCP", 0),
        endpoint_port("", "DCCP", 4),
        endpoint_port("", "TCP", 5),
    ];
    assert_eq!(cluster(vec![slice.clone()]), "10.0.0.1:5");
    let expected = [
        "EndpointSlice default/web-1: ports[0].name: missing",
        "EndpointSlice default/web-1: ports[1].port: missing",
        "EndpointSlice default/web-1: ports[2].port: must not be zero",
        r#"EndpointSlice default/web-1: ports[3].protocol: unknown: "DCCP""#,
    ];
    assert_eq!(warnings(slice), expected);
}

#[test]
fn invalid_port_numbers_do_not_affect_other_ports() {
    let mut slice = slice_of("web-1", &["10.0.0.1"]);
    slice.ports = vec![
        endpoint_port("a", "TCP", 70_000),
        endpoint_port("b", "TCP", -1),
        endpoint_port("c", "TCP", 65_536),
        endpoint_port("", "TCP", 65_535),
    ];
    assert_eq!(cluster(vec![slice.clone()]), "10.0.0.1:65535");
    let expected = [
        "EndpointSlice default/web-1: ports[0].port: not a port number: 70000",
        "EndpointSlice default/web-1: ports[1].port: not a port number: -1",
        "EndpointSlice default/web-1: ports[2].port: not a port number: 65536",
    ];
    assert_eq!(warnings(slice), expected);
}

#[test]
fn only_the_first_address_of_an_endpoint_is_used() {
    let mut slice = slice_of("web-1", &["010.0.0.1", "10.0.0.3"]);
    slice.endpoints[0].addresses.push("10.0.0.2".into());
    slice.endpoints[1].addresses.clear();
    assert_eq!(warnings(slice.clone()), [""; 0]);
    assert_eq!(cluster(vec![slice]), "10.0.0.1:8080");
}

#[test]
fn special_and_invalid_addresses_are_reported() {
    let words = [
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "::ffff:127.0.0.1",
        "fd00::1",
        "odd",
        "10.0.0.1",
    ];
    let slice = slice_of("web-1", &words);
    assert_eq!(cluster(vec![slice.clone()]), "10.0.0.1:8080");
    let problems = [
        "loopback address refused: 127.0.0.1",
        "link-local address refused: 169.254.169.254",
        "multicast address refused: 224.0.0.1",
        "unspecified address refused: 0.0.0.0",
        "broadcast address refused: 255.255.255.255",
        "loopback address refused: 127.0.0.1",
        "not an IPv4 address: fd00::1",
        r#"not an IP address: "odd""#,
    ];
    let expected: Vec<_> = problems
        .iter()
        .enumerate()
        .map(|(index, problem)| {
            format!("EndpointSlice default/web-1: endpoints[{index}].addresses[0]: {problem}")
        })
        .collect();
    assert_eq!(warnings(slice), expected);
}

#[test]
fn ipv6_endpoints_are_separate_and_special_addresses_are_refused() {
    let mut service = web();
    service.spec.cluster_ips = vec!["10.96.0.10".into(), "fd00:96::a".into()];
    let mut v6 = slice_of(
        "web-v6",
        &["FD00::0:2", "fe80::1", "::1", "ff02::1", "fd00::1"],
    );
    v6.address_type = api::AddressType::V6;
    let mut store = synced([
        service.into(),
        slice_of("web-v4", &["10.0.0.1"]).into(),
        v6.clone().into(),
    ]);
    let lists = |store: &mut Store, family| endpoints(&ports(store, family)[0].cluster);
    assert_eq!(lists(&mut store, Family::V4), "10.0.0.1:8080");
    assert_eq!(
        lists(&mut store, Family::V6),
        "[fd00::1]:8080 [fd00::2]:8080"
    );
    assert_eq!(warnings(v6).len(), 3);
}

#[test]
fn an_endpoint_that_is_not_terminating_wins_over_a_terminating_one() {
    let serving_terminating = "10.0.0.1 unready terminating";
    let staying = "10.0.0.1";
    for (first, second) in [
        (serving_terminating, staying),
        (staying, serving_terminating),
    ] {
        let apart = vec![slice_of("web-1", &[first]), slice_of("web-2", &[second])];
        let together = vec![slice_of("web-1", &[first, second])];
        for slices in [apart, together] {
            let port = only_port(&mut store(slices));
            assert_eq!(endpoints(&port.cluster), "10.0.0.1:8080");
            assert_eq!(port.cluster.len(), 1);
        }
    }
}

#[test]
fn duplicate_endpoints_are_resolved_by_the_order_of_slices() {
    // The last endpoint that is not terminating wins, or else the first terminating one.
    let is_local = |first: &str, second: &str| {
        let (first, second) = (slice_of("web-1", &[first]), slice_of("web-2", &[second]));
        let one = only_port(&mut store(vec![first.clone(), second.clone()])).cluster[0].is_local;
        let other = only_port(&mut store(vec![second, first])).cluster[0].is_local;
        assert_eq!(one, other);
        one
    };
    assert!(is_local("10.0.0.1 there", "10.0.0.1 here"));
    assert!(!is_local("10.0.0.1 here", "10.0.0.1 there"));
    let (here, there) = (
        "10.0.0.1 here unready terminating",
        "10.0.0.1 there unready terminating",
    );
    assert!(is_local(here, there));
    assert!(!is_local(there, here));
}

#[test]
fn an_address_with_two_ports_is_two_endpoints() {
    let mut slice = slice_of("web-1", &["10.0.0.1"]);
    slice.ports.push(endpoint_port("", "TCP", 443));
    assert_eq!(cluster(vec![slice]), "10.0.0.1:443 10.0.0.1:8080");
}

#[test]
fn without_a_node_name_no_endpoint_is_local() {
    let mut slice = slice_of("web-1", &["10.0.0.1"]);
    slice.endpoints[0].node_name = Some(String::new());
    let mut store = synced([web().into(), slice.into()]);
    store.resolve(&vipline_service_model::NodeView::new(""));
    assert!(
        store
            .ports()
            .all(|port| port.cluster.iter().all(|endpoint| !endpoint.is_local))
    );
}
