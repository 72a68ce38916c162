//! Tests of the limits of one Service.

mod objects;

use std::net::Ipv4Addr;
use std::sync::Arc;

use objects::{resolve, synced, web};
use vipline_service_model::{
    Event, Family, Limit, MAX_ADDRESS_PORT_PAIRS, MAX_SOURCE_CHECKS, Problem, ServicePort, Store,
    Transport, UnservedReason, api,
};

/// Returns the address 203.0.113.0 + `number`.
fn address(number: u32) -> String {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(203, 0, 113, 0)) + number).to_string()
}

/// Returns Service `default/web` with ports from 1000 on, named in descending order.
fn with_ports(count: u16) -> api::Service {
    let mut service = web();
    let of = service.spec.ports[0].clone();
    let ports = (0..count).map(|number| api::ServicePortSpec {
        name: format!("p{:05}", 60_000 - number),
        port: 1000 + number,
        ..of.clone()
    });
    service.spec.ports = ports.collect();
    service
}

fn with_external_ips(mut service: api::Service, count: u32) -> api::Service {
    service.spec.external_ips = (0..count).map(address).collect();
    service
}

fn with_load_balancer_ips(mut service: api::Service, count: u32) -> api::Service {
    service.spec.kind = api::ServiceType::LoadBalancer;
    let ingress = (0..count).map(|number| api::Ingress {
        ip: address(number),
        ..api::Ingress::default()
    });
    service.status.load_balancer.ingress = ingress.collect();
    service
}

fn resolved(service: api::Service) -> (Vec<Arc<ServicePort>>, Store) {
    let mut store = synced([service.into()]);
    resolve(&mut store);
    let ports = store.ports().cloned().collect();
    (ports, store)
}

/// Returns the number of pairs of an address and a port.
fn pairs(ports: &[Arc<ServicePort>]) -> usize {
    let of = |port: &Arc<ServicePort>| {
        let addresses = [&port.external_ips, &port.load_balancer_ips];
        let mut addresses: Vec<_> = addresses.into_iter().flat_map(|it| it.iter()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.retain(|&&addr| addr != port.cluster_ip);
        1 + addresses.len() + usize::from(port.node_port.is_some())
    };
    ports.iter().map(of).sum()
}

/// Returns protocol, port and node port of the ports beyond the limit.
fn ports_beyond(store: &Store) -> Vec<(Transport, u16, Option<u16>)> {
    let ports = store.ports_over_limit().flat_map(|(_, ports)| ports);
    ports
        .map(|it| (it.protocol, it.port, it.node_port))
        .collect()
}

fn texts(store: &Store) -> Vec<String> {
    let beyond = store.over_limit();
    beyond
        .map(|(name, it)| format!("{name}: {}: {it}", it.field))
        .collect()
}

#[test]
fn a_thousand_external_ips_at_a_thousand_ports_are_cut_to_whole_addresses() {
    let (ports, store) = resolved(with_external_ips(with_ports(1000), 1000));
    assert_eq!((ports.len(), pairs(&ports)), (1000, 16_000));
    let served: Vec<_> = (0..15).map(address).collect();
    for port in &ports {
        let external_ips = port.external_ips.iter().map(ToString::to_string);
        assert_eq!(external_ips.collect::<Vec<_>>(), served);
        assert!(Arc::ptr_eq(&port.external_ips, &ports[0].external_ips));
    }
    assert_eq!(
        texts(&store),
        [
            "default/web: spec.externalIPs: 985 IPv4 addresses from 203.0.113.15 on are not \
             served: a Service gets at most 16384 pairs of an address and a port in each IP \
             family; use several Services"
        ]
    );
    let reasons = store.unserved().map(|(_, it)| it.reason);
    let reasons: Vec<_> = reasons.collect();
    let expected = UnservedReason::OverLimit {
        field: "spec.externalIPs",
        limit: Limit::AddressPortPairs,
    };
    assert_eq!(reasons, [expected; 985]);
    assert_eq!(ports_beyond(&store), []);
}

#[test]
fn one_port_gets_as_many_addresses_as_the_limit_has_pairs() {
    let few = u32::try_from(MAX_ADDRESS_PORT_PAIRS).unwrap() - 1;
    let (ports, store) = resolved(with_external_ips(web(), few));
    assert_eq!(pairs(&ports), MAX_ADDRESS_PORT_PAIRS);
    assert_eq!(texts(&store), [""; 0]);
    let (ports, store) = resolved(with_external_ips(web(), few + 1));
    assert_eq!(pairs(&ports), MAX_ADDRESS_PORT_PAIRS);
    let text = "default/web: spec.externalIPs: address 203.0.176.255 is not served";
    assert!(texts(&store)[0].starts_with(text), "{:?}", texts(&store));
}

#[test]
fn ports_at_the_cluster_ip_come_first_in_the_order_of_the_service() {
    let mut service = with_external_ips(with_ports(17_000), 1);
    service.spec.kind = api::ServiceType::NodePort;
    for (port, node_port) in service.spec.ports.iter_mut().zip(30_000..30_010) {
        port.node_port = node_port;
    }
    let (ports, store) = resolved(service);
    assert_eq!((ports.len(), pairs(&ports)), (16_374, 16_384));
    let last = ports.iter().map(|port| port.port).max();
    assert_eq!(last, Some(1000 + 16_374 - 1));
    assert!(ports.iter().all(|port| port.external_ips.is_empty()));
    let texts = texts(&store);
    let text = "default/web: spec.ports: 626 ports from 17374/TCP on are not served in IPv4";
    assert!(texts[0].starts_with(text), "{texts:?}");
    let text = "default/web: spec.externalIPs: address 203.0.113.0 is not served";
    assert!(texts[1].starts_with(text), "{texts:?}");
    let beyond = ports_beyond(&store);
    assert_eq!(beyond.len(), 626);
    assert_eq!(beyond[0], (Transport::Tcp, 17_374, None));
    assert_eq!(beyond[625], (Transport::Tcp, 17_999, None));
}

#[test]
fn load_balancer_ips_come_before_external_ips_and_an_address_of_both_counts_once() {
    let service = with_load_balancer_ips(with_ports(1000), 10);
    // The first ten are the load balancer IPs, and the cluster IP costs nothing, either.
    let mut service = with_external_ips(service, 1000);
    service.spec.external_ips.push("10.96.0.10".into());
    let (ports, store) = resolved(service);
    assert_eq!(pairs(&ports), 16_000);
    let port = &ports[0];
    assert_eq!(port.load_balancer_ips.len(), 10);
    assert_eq!(port.external_ips.len(), 15 + 1);
    assert_eq!(port.external_ips.last(), Some(&port.cluster_ip));
    assert_eq!(store.over_limit().count(), 1);
}

#[test]
fn a_load_balancer_ip_with_too_many_source_ranges_is_not_served_to_anybody() {
    let mut service = with_load_balancer_ips(with_ports(10), 3);
    let ranges = (0..3000).map(|number| format!("{}/32", address(1_000_000 + number)));
    service.spec.load_balancer_source_ranges = ranges.collect();
    // As an external IP the address would be open to all clients.
    let service = with_external_ips(service, 3);
    let (ports, store) = resolved(service);
    let port = &ports[0];
    assert!(10 * 3000 * port.load_balancer_ips.len() <= MAX_SOURCE_CHECKS);
    assert_eq!(port.load_balancer_ips.len(), 2);
    assert_eq!(port.external_ips, port.load_balancer_ips);
    let texts = texts(&store);
    let text = "default/web: status.loadBalancer.ingress: address 203.0.113.2 is not served: \
                addresses x ports x source ranges";
    assert!(texts.len() == 1 && texts[0].starts_with(text), "{texts:?}");
}

#[test]
fn each_ip_family_has_a_limit_of_its_own() {
    let mut service = with_external_ips(with_ports(1000), 1000);
    service.spec.cluster_ips = vec!["10.96.0.10".into(), "fd00::10".into()];
    service.spec.ip_families = vec![api::IpFamily::V4, api::IpFamily::V6];
    let more = (0..20).map(|number| format!("2001:db8::{number}"));
    service.spec.external_ips.extend(more);
    let (ports, store) = resolved(service);
    for family in Family::ALL {
        let ports = ports.iter().filter(|port| port.family == family);
        let ports: Vec<_> = ports.cloned().collect();
        assert_eq!(pairs(&ports), 16_000, "{family}");
    }
    let beyond = store.over_limit().map(|(_, it)| (it.family, it.count));
    let beyond: Vec<_> = beyond.collect();
    assert_eq!(beyond, [(Family::V4, 985), (Family::V6, 5)]);
}

#[test]
fn the_warning_is_not_hidden_by_other_problems_and_ends_with_the_service() {
    let mut service = with_external_ips(with_ports(1000), 1000);
    let bad = (0..100).map(|number| format!("not an address {number}"));
    service.spec.external_ips.extend(bad);
    let mut store = synced([]);
    let warnings = store.apply(service.clone().into());
    let is_over_limit = |it: &&_| matches!(it, &&Problem::OverLimit(_));
    let problems = warnings.iter().map(|it| &it.problem);
    assert_eq!(problems.filter(is_over_limit).count(), 1, "{warnings:?}");
    assert_eq!(store.over_limit().count(), 1);
    service.spec.external_ips.truncate(10);
    assert_eq!(store.apply(service.into()), []);
    assert_eq!(store.over_limit().count(), 0);
    store.apply(with_external_ips(with_ports(1000), 1000).into());
    let (name, _) = store.over_limit().next().unwrap();
    let name = name.clone();
    store.apply(Event::ServiceDeleted(name));
    assert_eq!(store.over_limit().count(), 0);
}

#[test]
fn ports_of_all_protocols_count() {
    let mut service = with_ports(20_000);
    for (port, protocol) in service
        .spec
        .ports
        .iter_mut()
        .zip(["UDP", "TCP"].into_iter().cycle())
    {
        port.protocol = protocol.into();
    }
    let (ports, _) = resolved(service);
    let of = |protocol| ports.iter().filter(|it| it.protocol == protocol).count();
    assert_eq!((of(Transport::Udp), of(Transport::Tcp)), (8192, 8192));
}
