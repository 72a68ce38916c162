//! Load balancers whose endpoints are gone.

use std::net::IpAddr;

use proxy_engine::Family;
use vipline_hcn::{Endpoint, Id, LoadBalancer, PortMapping, Protocol, Version};

use crate::node::{Node, SharedHns, l2bridge, settings};
use crate::script::{service, slice};

/// Returns a load balancer as HNS enumerates it.
fn installed(id: &str, frontend: IpAddr, endpoints: &[&str]) -> LoadBalancer {
    let mapping = PortMapping::new(Protocol::TCP, 80, 80);
    let endpoints = endpoints.iter().map(|id| Id::new(id));
    let mut installed = LoadBalancer::new(Some(frontend), mapping, endpoints);
    installed.id = Id::new(id);
    installed
}

/// The frontend of the second one is not planned, and the third one belongs to another
/// network.
#[test]
fn a_load_balancer_without_endpoints_gives_its_frontend_to_a_planned_one() {
    let (network, version) = (l2bridge(), Version::new(15, 4));
    let hns = SharedHns::new(version, &network);
    let mut of_another_network = Endpoint::local("192.168.9.1".parse().unwrap());
    of_another_network.id = Id::new("other-endpoint");
    of_another_network.network = Id::new("other-network");
    let planned = "10.20.30.41".parse().unwrap();
    let memory = hns.get().clone();
    *hns.get() = memory.with_objects(
        [],
        [of_another_network],
        [
            installed("orphan", planned, &["gone"]),
            installed("unplanned", "10.20.30.49".parse().unwrap(), &[]),
            installed("other", planned, &["gone", "other-endpoint"]),
        ],
    );
    let mut node = Node::new(&hns, &[Family::V4], &settings(&network, version));
    node.engine
        .apply(service("svc1", &["cluster=10.20.30.41", "port=80"]));
    node.engine
        .apply(slice("svc1", &["port=80", "192.168.2.3@elsewhere/ready"]));
    let report = node.sync();
    assert_eq!(report.families[0].rejected, [], "{report:?}");
    let hns = hns.get();
    let ids: Vec<_> = hns.all_load_balancers().map(|it| &it.id).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(!ids.contains(&&Id::new("orphan")), "{ids:?}");
    for id in ["unplanned", "other"] {
        assert!(ids.contains(&&Id::new(id)), "{ids:?}");
    }
}
