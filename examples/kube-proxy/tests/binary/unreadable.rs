//! API objects that are only partly usable.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::scoped::Process;

use crate::cluster::{Cluster, service, service_with_endpoints, slice};
use crate::health::metric_in;
use crate::stage::wait_until;

const PROBLEMS: &str = "vipline_object_problems_total{kind=\"EndpointSlice\"}";

/// Number of ports and endpoints of the largest slice that API 1.36 accepts.
const LARGEST: (u32, u32) = (20_000, 1_000);

/// Maximum memory in KiB that a giant slice needs more than a usual slice.
const KIB_PER_SLICE: u64 = 1_024;

#[test]
fn the_readable_ports_and_endpoints_of_a_slice_are_used() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    let mut malformed = slice("web", 1, 3);
    malformed["ports"] = json!([
        {"name": "", "protocol": "TCP", "port": 8080},
        {"name": "high", "protocol": "TCP", "port": 70_000},
        {"name": "low", "protocol": "TCP", "port": -1},
    ]);
    cluster.server.apply(malformed.clone());
    wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    let output = proxy.output();
    for warning in [
        "EndpointSlice default/web-1: ports[1].port: not a port number: 70000",
        "EndpointSlice default/web-1: ports[2].port: not a port number: -1",
    ] {
        assert!(output.contains(warning), "{warning}: {output}");
    }
    assert_eq!(metric_in(&cluster.netns, PROBLEMS), Some(2.0));
    malformed["endpoints"][0]["conditions"] = json!({"ready": "yes"});
    malformed["endpoints"][1]["addresses"] = json!("10.244.1.2");
    cluster.server.apply(malformed.clone());
    wait_until("one endpoint less", || {
        !cluster.ruleset().contains("10.244.1.2 ")
    });
    assert!(
        cluster.ruleset().contains("10.244.1.1 "),
        "the endpoint is readable"
    );
    let dropped = "endpoints[0].conditions.ready, endpoints[1].addresses: cannot be read";
    assert!(proxy.output().contains(dropped), "{}", proxy.output());
    malformed["ports"] = json!("none");
    malformed["endpoints"] = json!("none");
    cluster.server.apply(malformed);
    wait_until("no endpoint", || !cluster.ruleset().contains("10.244.1.1 "));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_unreadable_slice_is_removed_when_it_is_deleted() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    let mut malformed = slice("web", 1, 2);
    malformed["metadata"]["labels"]["more"] = json!(7);
    malformed["ports"][0]["port"] = json!("http");
    malformed["ports"][0]["protocol"] = json!(6);
    cluster.server.apply(malformed);
    wait_until("the warning", || proxy.output().contains("cannot be read"));
    cluster.server.delete("EndpointSlice", "default", "web-1");
    wait_until("no endpoint", || !cluster.ruleset().contains("10.244.1.1 "));
    assert!(proxy.terminate().unwrap().success());
}

/// Returns a slice with `ports` ports, of which the Service uses one.
fn giant(service: &str, net: u8, ports: u32, first_host: u32) -> Value {
    let mut slice = slice(service, net, 1);
    let unused = (1..ports).map(|port| json!({"name": format!("p{port}"), "port": port}));
    let used = json!({"name": "", "protocol": "TCP", "port": 8080});
    slice["ports"] = [used].into_iter().chain(unused).collect();
    let endpoint = |host: u32| {
        let address = format!("10.{}.{}.{}", 100 + net, host / 250, host % 250 + 1);
        json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "node-1"})
    };
    let hosts = first_host..first_host + LARGEST.1;
    slice["endpoints"] = hosts.map(endpoint).collect();
    slice
}

/// Returns the resident memory of a process in KiB.
fn resident(proxy: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// The giant slices of half of the Services come first. They fill the buffers of the
/// connection, whose size does not depend on the number of slices.
#[test]
fn the_memory_of_giant_slices_depends_on_the_used_ports() {
    const COUNT: u8 = 10;
    let names: Vec<_> = (1..=2 * COUNT)
        .map(|net| (net, format!("s{net}")))
        .collect();
    let services = names.iter().map(|(net, name)| {
        let mut service = service(name, &format!("10.96.0.{net}"));
        let spec = &mut service["spec"];
        spec["type"] = json!("LoadBalancer");
        spec["externalTrafficPolicy"] = json!("Local");
        spec["healthCheckNodePort"] = json!(31_000 + u32::from(*net));
        service
    });
    let cluster = Cluster::with(services);
    let proxy = cluster.start();
    let measure = |names: &[(u8, String)], ports: u32, first_host: u32| {
        let start = Instant::now();
        let slices = names
            .iter()
            .map(|(net, name)| giant(name, *net, ports, first_host));
        cluster.server.apply_all(slices);
        let last = format!("10.{}.4.{first_host} ", 100 + names.last().unwrap().0);
        wait_until("the last endpoint", || cluster.ruleset().contains(&last));
        (resident(&proxy), start.elapsed())
    };
    let (first, second) = names.split_at(COUNT.into());
    let few = measure(&names, 1, 1);
    let buffers = measure(first, LARGEST.0, 2);
    let many = measure(second, LARGEST.0, 2);
    println!(
        "KiB and time: one port {few:?}, 20,000 in {COUNT} slices {buffers:?}, in all {many:?}"
    );
    let bound = buffers.0 + u64::from(COUNT) * KIB_PER_SLICE;
    assert!(many.0 < bound, "{} KiB, {} before", many.0, buffers.0);
    assert!(proxy.terminate().unwrap().success());
}
