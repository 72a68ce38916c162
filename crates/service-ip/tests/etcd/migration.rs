//! Tests of a missing key and of a key with another range.

use std::net::IpAddr;

use vipline_service_ip::{
    AddressRange, Allocator, Envelope, Error, Etcd, EtcdCluster, InvalidValue, NodePorts, OwnerRef,
    Pool, PortRange, Range, RangeAllocation, Registry, Repair, RepairReason, ServiceItems,
    ServicePort, ServiceType, Transport,
};

use crate::server::{KEY, Server, owner, random};

/// Key of node ports.
const PORTS: &str = EtcdCluster::SERVICE_NODE_PORTS;

/// Stores the allocation of a range in the encoding of an API server.
fn store<R: Range>(server: &Server, key: &str, range: &str, taken: &[R::Item]) {
    let range: R = range.parse().unwrap();
    let mut allocator = Allocator::new(range);
    for item in taken {
        allocator.reserve(*item).unwrap();
    }
    let allocation = RangeAllocation::of(&allocator).unwrap();
    server.put(key, Some(&Envelope::new().encode(&allocation)));
}

/// Returns the stored range and the allocated items.
fn stored<R: Range>(server: &Server, key: &str) -> (String, Vec<R::Item>) {
    let (_, allocation) = Envelope::decode(&server.get(key).unwrap()).unwrap();
    let range: R = allocation.range.parse().unwrap();
    let allocator = allocation.allocator(range).unwrap();
    (allocation.range.into(), allocator.items().collect())
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_missing_key_requires_a_repair_pass_before_allocation() {
    let server = Server::start();
    let (mut one, mut other) = (server.registry(), server.registry());
    let ip: IpAddr = "10.0.0.9".parse().unwrap();
    server.inside(|| {
        one.refresh().unwrap();
        // A new cluster, or a restored etcd without the key.
        server.put(KEY, None);
        for registry in [&mut one, &mut other] {
            let errors = [
                registry.allocate(&owner(), &mut random(1)).map(drop),
                registry.reserve(ip, &owner()),
                registry.release(ip, &owner()).map(drop),
            ];
            for error in errors {
                let reason = RepairReason::Uninitialized { object: KEY.into() };
                assert!(matches!(&error, Err(Error::RepairRequired(found)) if *found == reason));
            }
        }
        assert_eq!(server.get(KEY), None);
        let services = [ServiceItems::parse(owner(), ["010.0.0.9"])];
        let list = || services.to_vec();
        let found = Repair::new().pass(&mut other, list).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        let refused = one.reserve(ip, &owner()).unwrap_err();
        assert!(matches!(&refused, Error::Allocation(error) if error.is_allocated()));
        one.allocate(&owner(), &mut random(1)).unwrap();
    });
    assert_eq!(stored::<AddressRange>(&server, KEY).1.len(), 2);
}

#[test]
fn repair_moves_addresses_to_a_larger_range() {
    let server = Server::start();
    let taken = ips(&["10.0.0.1", "10.0.0.200"]);
    store::<AddressRange>(&server, KEY, "10.0.0.0/24", &taken);
    let range = "10.0.0.0/16".parse::<AddressRange>().unwrap();
    let mut registry = Registry::new(Etcd::new(&server.cluster(), KEY, range).unwrap());
    let web = OwnerRef::service("default", "web");
    let services = [ServiceItems::parse(web, ["10.0.0.1", "10.0.9.9"])];
    let list = || services.to_vec();
    server.inside(|| {
        let error = registry.allocate(&owner(), &mut random(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{KEY} has the range 10.0.0.0/24, not 10.0.0.0/16: a repair pass is required first"
            )
        );
        let found = Repair::new().pass(&mut registry, list).unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                format!("{KEY} has the range 10.0.0.0/24, not 10.0.0.0/16; written by repair"),
                "Service default/web has 10.0.9.9, which was not allocated: it is now".into(),
                "10.0.0.200 may have leaked: no Service has it in 1 of 3 passes".into(),
            ]
        );
    });
    let expected = ips(&["10.0.0.1", "10.0.0.200", "10.0.9.9"]);
    assert_eq!(
        stored::<AddressRange>(&server, KEY),
        ("10.0.0.0/16".into(), expected)
    );
    server.inside(|| registry.allocate(&owner(), &mut random(1)).unwrap());
}

#[test]
fn repair_moves_node_ports_to_a_smaller_range() {
    let server = Server::start();
    store::<PortRange>(&server, PORTS, "30000-32767", &[30_007, 32_700]);
    let range = PortRange::new(30_000, 31_000).unwrap();
    let mut registry = Registry::new(Etcd::new(&server.cluster(), PORTS, range).unwrap());
    let port = |port, node_port| ServicePort {
        name: format!("p{port}").into(),
        protocol: Transport::Tcp,
        port,
        node_port: Some(node_port),
    };
    let service = NodePorts {
        kind: ServiceType::NodePort,
        allocate_load_balancer_node_ports: true,
        external_policy_local: false,
        ports: vec![port(80, 30_007), port(81, 32_700)],
        health_check_node_port: None,
    };
    let list = || vec![service.service_items(owner())];
    server.inside(|| {
        let error = registry.reserve(30_008, &owner()).unwrap_err();
        assert!(matches!(
            error,
            Error::RepairRequired(RepairReason::OtherRange { .. })
        ));
        let found = Repair::new().pass(&mut registry, list).unwrap();
        let labels: Vec<_> = found.iter().filter_map(|finding| finding.label()).collect();
        assert_eq!(labels, ["outOfRange"], "{found:?}");
        registry.reserve(30_008, &owner()).unwrap();
    });
    let expected = ("30000-31000".into(), vec![30_007, 30_008]);
    assert_eq!(stored::<PortRange>(&server, PORTS), expected);
}

#[test]
fn ipv6_allocation_is_limited_to_the_bitmap_of_an_api_server() {
    let server = Server::start();
    let large = "fd00::/64".parse::<AddressRange>().unwrap();
    let refused = Etcd::new(&server.cluster(), KEY, large)
        .map(drop)
        .unwrap_err();
    assert!(matches!(
        refused,
        InvalidValue::TooLarge { longest: 108, .. }
    ));
    let range = "fd00::/108".parse::<AddressRange>().unwrap();
    assert_eq!(range.len(), (1 << 20) - 1);
    let mut registry = Registry::new(Etcd::new(&server.cluster(), KEY, range).unwrap());
    server.inside(|| {
        server.put(KEY, None);
        let no_services = || Vec::new();
        Repair::new().pass(&mut registry, no_services).unwrap();
        let [last, beyond] = ["fd00::ffff", "fd00::1:0"].map(|text| text.parse().unwrap());
        registry.reserve(last, &owner()).unwrap();
        let refused = registry.reserve(beyond, &owner()).unwrap_err();
        assert!(matches!(refused, Error::Allocation(_)), "{refused}");
        assert_eq!(registry.refresh().unwrap().pool.free(), 65_534);
    });
    let stored = server.get(KEY).unwrap();
    let (_, allocation) = Envelope::decode(&stored).unwrap();
    assert_eq!(
        (&*allocation.range, allocation.data.len()),
        ("fd00::/108", 8192)
    );
}
