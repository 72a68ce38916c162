//! Several load balancers with one frontend.

use proxy_engine::Family;
use vipline_hcn::{
    Call, Distribution, HResult, Id, LoadBalancer, LoadBalancerFlags, PortMapping, Protocol, Query,
    Service, Version,
};

use crate::node::{Node, SharedHns, l2bridge, settings};
use crate::script::{service, slice};

/// Returns a node with a Service, whose load balancer HNS has.
fn synced() -> (SharedHns, Node, LoadBalancer) {
    let (network, version) = (l2bridge(), Version::new(15, 4));
    let hns = SharedHns::new(version, &network);
    let mut node = Node::new(&hns, &[Family::V4], &settings(&network, version));
    node.engine
        .apply(service("svc1", &["cluster=10.20.30.41", "port=80"]));
    node.engine
        .apply(slice("svc1", &["port=80", "192.168.2.3@elsewhere/ready"]));
    node.sync();
    let first = hns.get().all_load_balancers().next().cloned();
    (hns, node, first.expect("the Service has a load balancer"))
}

/// Adds load balancers that HNS enumerates before and after all others.
fn add(hns: &SharedHns, like: &LoadBalancer, ids: [&str; 2]) {
    let mut other = like.clone();
    other.port_mappings =
        vec![PortMapping::new(Protocol::TCP, 80, 8080).with_distribution(Distribution::SOURCE_IP)];
    let mut ipv6 = like.clone();
    ipv6.flags = LoadBalancerFlags::IPV6;
    let added = [other, ipv6].into_iter().zip(ids).map(|(mut added, id)| {
        added.id = Id::new(id);
        added
    });
    let memory = hns.get().clone();
    *hns.get() = memory.with_objects([], [], added);
    hns.get().take_calls();
}

fn load_balancers(hns: &SharedHns) -> Vec<LoadBalancer> {
    let load_balancers = hns.get().load_balancers(&Query::all());
    load_balancers.expect("the query is valid")
}

const BOTH_ENDS: [&str; 2] = ["00000000-0000-0000-0000-000000000000", "F0"];

#[test]
fn surplus_load_balancers_are_deleted_and_the_planned_one_stays() {
    let (hns, mut node, planned) = synced();
    add(&hns, &planned, BOTH_ENDS);
    let report = node.sync();
    assert_eq!(report.families[0].rejected, [], "{report:?}");
    assert_eq!(load_balancers(&hns), [planned]);
    let deletions = [Call::DeleteLoadBalancer; 2];
    assert_eq!(hns.get().take_calls(), deletions);
    node.sync();
    assert_eq!(hns.get().take_calls(), []);
}

#[test]
fn one_load_balancer_is_modified_if_none_is_as_planned() {
    let (hns, mut node, planned) = synced();
    add(&hns, &planned, BOTH_ENDS);
    hns.get().delete_load_balancer(&planned.id).unwrap();
    hns.get().take_calls();
    node.sync();
    let mut expected = planned;
    expected.id = Id::new(BOTH_ENDS[0]);
    assert_eq!(load_balancers(&hns), [expected]);
    let calls = [Call::DeleteLoadBalancer, Call::ModifyLoadBalancer];
    assert_eq!(hns.get().take_calls(), calls);
}

#[test]
fn all_load_balancers_of_a_deleted_service_are_deleted() {
    let (hns, mut node, planned) = synced();
    add(&hns, &planned, BOTH_ENDS);
    let deleted = vipline_service_model::ObjectName::new("ns1", "svc1");
    node.engine
        .apply(proxy_engine::Event::ServiceDeleted(deleted));
    node.sync();
    assert_eq!(load_balancers(&hns), []);
}

#[test]
fn a_surplus_load_balancer_that_hns_keeps_is_a_rejection() {
    let (hns, mut node, planned) = synced();
    add(&hns, &planned, BOTH_ENDS);
    for _ in 0..2 {
        hns.get().reject(Call::DeleteLoadBalancer, HResult::E_FAIL);
    }
    let report = node.sync();
    assert_eq!(report.families[0].rejected.len(), 1, "{report:?}");
    assert!(load_balancers(&hns).len() > 1);
    node.sync();
    assert_eq!(load_balancers(&hns), [planned]);
}
