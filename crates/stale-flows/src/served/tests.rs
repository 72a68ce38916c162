//! Tests of stale flows and of the searches that changes need.

use vipline_conntrack::Tuple;
use vipline_service_model::{Route, Timestamp, Transport};

use super::*;

const CLUSTER_IP: &str = "10.96.0.10:53";
const NODE: &str = "192.0.2.10:30053";

fn name(service: &str) -> Arc<PortName> {
    Arc::new(PortName {
        namespace: "kube-system".into(),
        service: service.into(),
        port: "dns".into(),
        protocol: Transport::Udp,
        created: None,
    })
}

/// Returns a Service with all kinds of addresses and the endpoints 10.1.0.N.
fn dns(service: &str, serving: &[u8]) -> ServicePort {
    let endpoint = |last: &u8| Endpoint {
        addr: [10, 1, 0, *last].into(),
        port: 5353,
        is_local: false,
    };
    let name = name(service);
    ServicePort {
        node_port: Some(30053),
        external_ips: Arc::new([[203, 0, 113, 1].into()]),
        load_balancer_ips: Arc::new([[203, 0, 113, 2].into()]),
        internal: Route::Cluster,
        external: Route::Cluster,
        is_exposed: true,
        serving: serving.iter().map(endpoint).collect(),
        ..ServicePort::new(name, [10, 96, 0, 10].into(), 53)
    }
}

fn served(serving: &[u8]) -> Served {
    let mut served = Served::default();
    served.set_node(Family::V4, [[192, 0, 2, 10].into()]);
    served.set(&dns("dns", serving).into());
    served
}

/// Returns a flow of a client to an address, translated to a server.
fn flow(protocol: Protocol, to: &str, server: &str, status: Status) -> Flow {
    let client = SocketAddr::from(([10, 1, 9, 9], 40000));
    let pair = |at: SocketAddr| (at.ip(), at.port());
    let (client, to, server) = (pair(client), to.parse().unwrap(), server.parse().unwrap());
    let original = Tuple::ports(protocol, client, pair(to));
    let mut flow = Flow::new(original, Tuple::ports(protocol, pair(server), client));
    flow.status = status;
    flow
}

/// Forgets the removed frontends of a family, as after a search.
fn forget_removed(served: &mut Served, family: Family) {
    let searched = served.take_changed(family);
    served.forget_removed(&searched, &Targets::default());
}

fn is_stale(served: &Served, to: &str, server: &str) -> bool {
    served.is_stale(&flow(Protocol::UDP, to, server, Status::SEEN_REPLY))
}

#[test]
fn flows_to_endpoints_that_serve_stay_and_others_are_stale() {
    let served = served(&[1, 2]);
    for to in [CLUSTER_IP, "203.0.113.1:53", "203.0.113.2:53", NODE] {
        for (server, expected) in [
            ("10.1.0.1:5353", false),
            ("10.1.0.2:5353", false),
            ("10.1.0.3:5353", true),
            ("10.1.0.1:5354", true),
            // The flow is older than its Service.
            (to, true),
        ] {
            assert_eq!(is_stale(&served, to, server), expected, "{to} {server}");
        }
    }
}

#[test]
fn flows_to_unknown_frontends_are_never_stale() {
    let served = served(&[1]);
    for to in [
        "10.96.0.10:54",
        "10.96.0.11:53",
        // Node ports of another node, and an address without node ports.
        "192.0.2.11:30053",
        "192.0.2.10:53",
    ] {
        assert!(!is_stale(&served, to, "10.1.0.3:5353"), "{to}");
        assert!(!is_stale(&served, to, to), "{to}");
    }
    let localhost = "127.0.0.1:30053";
    assert!(!is_stale(&served, localhost, localhost));
    assert!(is_stale(&served, localhost, "10.1.0.3:5353"));
    let port = ServicePort {
        family: Family::V6,
        ..dns("dns", &[])
    };
    let mut v6 = Served::default();
    v6.set(&port.into());
    let link_local = "[fe80::1]:30053";
    assert!(!is_stale(&v6, link_local, link_local));
    assert!(is_stale(&v6, link_local, "[fd00::1]:5353"));
    let mut zoned = flow(Protocol::UDP, CLUSTER_IP, "10.1.0.3:5353", Status::empty());
    assert!(served.is_stale(&zoned));
    zoned.zone = Some(7);
    assert!(!served.is_stale(&zoned));
    let tcp = flow(Protocol::TCP, CLUSTER_IP, "10.1.0.3:5353", Status::empty());
    assert!(!served.is_stale(&tcp), "the Service is of UDP");
}

#[test]
fn tcp_and_sctp_flows_are_stale_only_without_a_reply() {
    for (protocol, of_service) in [
        (Protocol::TCP, Transport::Tcp),
        (Protocol::SCTP, Transport::Sctp),
    ] {
        let mut served = Served::default();
        served.set(&Arc::new(ServicePort {
            protocol: of_service,
            ..dns("dns", &[1])
        }));
        let judge = |server, status| {
            let flow = flow(protocol, CLUSTER_IP, server, status);
            served.is_stale(&flow)
        };
        assert!(judge("10.1.0.3:5353", Status::empty()));
        assert!(judge(CLUSTER_IP, Status::empty()));
        assert!(!judge("10.1.0.1:5353", Status::empty()));
        assert!(!judge("10.1.0.3:5353", Status::SEEN_REPLY));
        assert!(!judge(
            "10.1.0.3:5353",
            Status::SEEN_REPLY | Status::ASSURED
        ));
    }
}

#[test]
fn flows_of_removed_endpoints_and_frontends_are_stale() {
    let mut served = served(&[1]);
    assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
    served.set(&dns("dns", &[]).into());
    for to in [CLUSTER_IP, NODE] {
        assert!(is_stale(&served, to, "10.1.0.1:5353"));
    }
    served.set(&dns("dns", &[1, 2]).into());
    assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
    // Only current addresses count, not former ones.
    served.set(&Arc::new(ServicePort {
        external_ips: Arc::default(),
        ..dns("dns", &[1, 2])
    }));
    assert!(is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
    forget_removed(&mut served, Family::V6);
    assert!(is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
    forget_removed(&mut served, Family::V4);
    assert!(!is_stale(&served, "203.0.113.1:53", "10.1.0.1:5353"));
    served.remove(&name("dns"), Family::V4);
    assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
    forget_removed(&mut served, Family::V4);
    assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
    assert!(served.frontends.is_empty() && served.protocols(Family::V4).is_empty());
}

/// Returns a Service with the addresses of `dns`, created on a day of January 2026.
fn created(service: &str, day: u8, serving: &[u8]) -> ServicePort {
    let port = dns(service, serving);
    let created = Timestamp::parse(&format!("2026-01-{day:02}T00:00:00Z"));
    let name = PortName::clone(&port.name);
    let name = Arc::new(PortName { created, ..name });
    ServicePort { name, ..port }
}

#[test]
fn flows_of_a_contested_address_are_stale_unless_they_lead_to_its_owner() {
    let older = Arc::new(created("older", 1, &[1]));
    let younger = Arc::new(created("younger", 2, &[2]));
    for ports in [[&older, &younger], [&younger, &older]] {
        let mut served = Served::default();
        ports.into_iter().for_each(|port| served.set(port));
        for (server, expected) in [
            ("10.1.0.1:5353", false),
            ("10.1.0.2:5353", true),
            ("10.1.0.3:5353", true),
        ] {
            assert_eq!(is_stale(&served, CLUSTER_IP, server), expected);
        }
        served.remove(&older.name, Family::V4);
        assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
    }
}

#[test]
fn flows_to_a_cluster_ip_that_an_older_service_has_as_its_external_ip_are_stale() {
    let webhook = Arc::new(created("webhook", 2, &[2]));
    let mut evil = created("evil", 1, &[1]);
    evil.cluster_ip = [10, 96, 0, 99].into();
    evil.external_ips = Arc::new([webhook.cluster_ip]);
    let evil = Arc::new(evil);
    for ports in [[&webhook, &evil], [&evil, &webhook]] {
        let mut served = Served::default();
        ports.into_iter().for_each(|port| served.set(port));
        assert!(is_stale(&served, CLUSTER_IP, "10.1.0.1:5353"));
        assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_cost_of_an_address_does_not_grow_with_their_number() {
    let growth = testkit::cpu::growth_per_item(250, 16_000, |count| {
        let address = |number: u32| IpAddr::V4((0x0b00_0000 + number).into());
        let mut port = dns("dns", &[1]);
        port.external_ips = (0..count).map(address).collect();
        port.load_balancer_ips = (count / 2..count + count / 2).map(address).collect();
        let mut served = Served::default();
        served.set(&Arc::new(port));
        assert_eq!(served.frontends.len(), 2 + (count + count / 2) as usize);
    });
    assert!(growth < 3.0, "{growth:.2} times as much per address");
}

/// Returns the flows that a change may make stale, after the first change.
fn changed(served: &mut Served, change: impl FnOnce(&mut Served)) -> Targets {
    served.take_changed(Family::V4);
    change(served);
    served.take_changed(Family::V4)
}

/// Returns a Service with all kinds of addresses over TCP.
fn web(serving: &[u8]) -> ServicePort {
    ServicePort {
        protocol: Transport::Tcp,
        ..dns("web", serving)
    }
}

#[test]
fn added_endpoints_make_no_flow_stale() {
    for of in [web, |serving: &[u8]| dns("dns", serving)] {
        let mut served = Served::default();
        served.set(&of(&[1]).into());
        let changed = changed(&mut served, |served| served.set(&of(&[1, 2, 3]).into()));
        assert_eq!(changed, Targets::default());
    }
    let mut tcp = Served::default();
    tcp.set(&web(&[]).into());
    let first = changed(&mut tcp, |served| served.set(&web(&[1]).into()));
    assert_eq!(first, Targets::default());
}

#[test]
fn the_first_endpoint_of_a_udp_service_makes_flows_of_its_frontends_stale() {
    let mut served = Served::default();
    served.set(&dns("dns", &[]).into());
    let first = changed(&mut served, |served| served.set(&dns("dns", &[1]).into()));
    assert_eq!((first.frontends.len(), first.servers.len()), (4, 0));
}

#[test]
fn an_endpoint_that_left_makes_its_flows_stale() {
    let mut served = Served::default();
    served.set(&web(&[1, 2, 3]).into());
    let left = changed(&mut served, |served| served.set(&web(&[1, 3, 4]).into()));
    let server = Server::new(Protocol::TCP, [10, 1, 0, 2].into(), 5353);
    assert_eq!(left.servers, HashSet::from([server]));
    assert!(left.frontends.is_empty() && !left.all);
    // Four frontends are fewer than five endpoints.
    let many: Vec<_> = (1..=5).collect();
    served.set(&web(&many).into());
    let left = changed(&mut served, |served| served.set(&web(&[]).into()));
    assert_eq!((left.frontends.len(), left.servers.len()), (4, 0));
}

#[test]
fn new_and_removed_frontends_and_new_node_addresses_make_flows_stale() {
    let mut served = served(&[1]);
    let without_external_ip = || ServicePort {
        external_ips: Arc::default(),
        ..dns("dns", &[1])
    };
    let external = Frontend::Address(Protocol::UDP, [203, 0, 113, 1].into(), 53);
    for port in [without_external_ip(), dns("dns", &[1])] {
        let changed = changed(&mut served, |served| served.set(&port.into()));
        assert_eq!(changed.frontends, HashSet::from([external]));
    }
    let node = |last| IpAddr::from([192, 0, 2, last]);
    for (addresses, expected) in [
        (&[10][..], false),
        (&[10, 11], true),
        (&[11], false),
        (&[12], true),
    ] {
        let addresses = addresses.iter().copied().map(node);
        let changed = changed(&mut served, |it| it.set_node(Family::V4, addresses));
        assert_eq!(changed.all, expected);
    }
    let removed = changed(&mut served, |it| it.remove(&name("dns"), Family::V4));
    assert_eq!(removed.frontends.len(), 4);
    // Without node ports, addresses of the node do not matter.
    let addresses = [node(13)];
    let changed = changed(&mut served, |it| it.set_node(Family::V4, addresses));
    assert!(changed.is_empty());
}

#[test]
fn a_frontend_that_was_removed_again_during_a_search_is_not_forgotten() {
    let mut served = served(&[1]);
    served.take_changed(Family::V4);
    served.remove(&name("dns"), Family::V4);
    let searched = served.take_changed(Family::V4);
    served.set(&dns("dns", &[2]).into());
    served.remove(&name("dns"), Family::V4);
    served.forget_removed(&searched, &Targets::default());
    assert!(is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
    let later = served.take_changed(Family::V4);
    served.forget_removed(&searched, &later);
    assert!(is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
    served.forget_removed(&later, &Targets::default());
    assert!(!is_stale(&served, CLUSTER_IP, "10.1.0.2:5353"));
    assert!(served.protocols(Family::V4).is_empty());
}
