//! A Service with many pairs of an address and a port, and the memory of a process that serves
//! it.

use std::fs;

use serde_json::{Value, json};
use testkit::scoped::Process;

/// Maximum growth of the memory of the process in MiB.
pub(crate) const MEMORY: u64 = 60;

/// Returns a Service with external IPs and ports from 1000 on, and its slice.
pub(crate) fn large(addresses: u16, ports: u16, address: Option<&str>) -> [Value; 2] {
    let external_ips = (0..addresses).map(|number| {
        let [high, low] = number.to_be_bytes();
        format!("203.{high}.{low}.1")
    });
    let of_service = (0..ports).map(
        |number| json!({"name": format!("p{number}"), "protocol": "TCP", "port": 1000 + number}),
    );
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "large"},
        "spec": {
            "clusterIP": "10.96.0.99",
            "clusterIPs": ["10.96.0.99"],
            "externalIPs": external_ips.collect::<Vec<_>>(),
            "ports": of_service.collect::<Vec<_>>(),
        },
    });
    let of_slice = (0..ports)
        .map(|number| json!({"name": format!("p{number}"), "protocol": "TCP", "port": 8080}));
    let endpoint = |address: &str| json!({"addresses": [address], "conditions": {"ready": true}});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "large", "labels": {"kubernetes.io/service-name": "large"}},
        "addressType": "IPv4",
        "ports": of_slice.collect::<Vec<_>>(),
        "endpoints": address.into_iter().map(endpoint).collect::<Vec<_>>(),
    });
    [service, slice]
}

/// Returns the maximum resident memory of a process in MiB.
pub(crate) fn peak(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse::<u64>().unwrap() >> 10
}

/// Returns the numbers of edits of all syncs of IPv4 that a process logged at `--v 2`.
pub(crate) fn edits_of_syncs(process: &Process) -> Vec<usize> {
    let output = process.output();
    let lines = output.lines().filter(|line| line.contains("IPv4"));
    let edits = lines.filter_map(|line| line.split_once("edits=")?.1.split(' ').next());
    edits.map(|number| number.parse().unwrap()).collect()
}
