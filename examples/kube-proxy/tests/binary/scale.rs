//! Many objects of an API server: the requests and the memory of the proxy.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::scoped::Process;

use crate::cluster::{Cluster, service};
use crate::stage::wait_until;

/// The number of Services.
const SERVICES: u16 = 3000;

/// Maximum memory of the process in MiB, besides its program. It takes 12.
const MEMORY: u64 = 20;

/// Returns the Service of a number, and its slice.
fn numbered(number: u16) -> [Value; 2] {
    let [high, low] = number.to_be_bytes();
    let name = format!("s{number}");
    let endpoints = (1..=3_u8).map(|host| {
        let address = format!("10.{}.{high}.{low}", 200 + host);
        json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "node-2"})
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints.collect::<Vec<_>>(),
    });
    [service(&name, &format!("10.96.{high}.{low}")), slice]
}

/// Returns a field of `/proc/PID/status` in MiB.
fn memory(process: &Process, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse::<u64>().unwrap() >> 10
}

#[test]
fn many_objects_are_listed_once_by_a_watch_and_take_little_memory() {
    let cluster = Cluster::with((1..=SERVICES).flat_map(numbered));
    let start = Instant::now();
    let proxy = cluster.start();
    println!(
        "{SERVICES} Services were programmed after {:?}",
        start.elapsed()
    );
    for kind in ["services", "endpointslices", "nodes", "servicecidrs"] {
        assert_eq!(cluster.server.count("list", kind), 0, "{kind}");
        assert_eq!(cluster.server.count("watch", kind), 1, "{kind}");
    }
    // Pages of the program's own file do not count: of an unoptimized program they are half, and
    // the kernel can drop them at any time.
    let [resident, peak, program] =
        ["VmRSS:", "VmHWM:", "RssFile:"].map(|field| memory(&proxy, field));
    let peak = peak - program;
    println!(
        "{} MiB, at most {peak} MiB, and {program} MiB of the program",
        resident - program
    );
    assert!(peak <= MEMORY, "{peak} MiB");
    cluster.assert_in_sync();
    let [_, mut last] = numbered(SERVICES);
    last["endpoints"][0]["addresses"] = json!(["10.210.0.1"]);
    cluster.server.apply(last);
    wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.210.0.1")
    });
    assert!(proxy.terminate().unwrap().success());
}
