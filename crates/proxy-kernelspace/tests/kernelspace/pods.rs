//! Pods that start while the proxy runs.

use proxy_engine::Family;
use vipline_hcn::{Endpoint, Version};

use crate::node::{Node, SharedHns, l2bridge, settings};
use crate::script::{service, slice};

#[test]
fn a_pod_that_starts_on_the_node_is_reached_at_once() {
    let (network, version) = (l2bridge(), Version::new(15, 4));
    let hns = SharedHns::new(version, &network);
    let mut node = Node::new(&hns, &[Family::V4], &settings(&network, version));
    node.engine
        .apply(service("svc1", &["cluster=10.20.30.41", "port=80"]));
    node.engine
        .apply(slice("svc1", &["port=80", "192.168.2.3@elsewhere/ready"]));
    node.sync();
    // The CNI plugin makes an endpoint for the pod before the pod is ready.
    hns.create_endpoint(&Endpoint::local("192.168.4.4".parse().unwrap()));
    let words = [
        "port=80",
        "192.168.2.3@elsewhere/ready",
        "192.168.4.4@here/ready",
    ];
    node.engine.apply(slice("svc1", &words));
    let report = node.change();
    let outcome = report.families[0].outcome.as_ref().unwrap();
    assert!(!outcome.dumped, "the state of HNS is known");
    let hns = hns.get();
    let balancer = hns.all_load_balancers().next().unwrap();
    assert_eq!(balancer.endpoints.len(), 2, "{balancer:?}");
}
