//! Many objects from an API server: how they are asked for, and what they take.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::leftovers::Process;

use crate::cluster::{Cluster, service};
use crate::stage::until;

/// How many Services there are, a whole number of pages.
const SERVICES: u16 = 3000;

/// How many objects a page has.
const PAGE: usize = 500;

/// What the process may need in MiB; of that a third is the program, for it is
/// not optimized.
const MEMORY: u64 = 50;

/// A Service that its number tells from others, and its slice.
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

/// Returns a line of what the kernel says of a process, in MiB.
fn memory(process: &Process, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse::<u64>().unwrap() >> 10
}

/// Returns how often objects of a kind were listed.
///
/// A server that cannot choose by fields refuses once and is asked without.
fn lists(cluster: &Cluster, kind: &str) -> usize {
    let mut counts = BTreeMap::new();
    for request in cluster.server.requests() {
        if request.verb == "list" && request.resource == kind {
            *counts.entry(request.fields).or_insert(0_usize) += 1;
        }
    }
    counts.into_values().max().unwrap_or_default()
}

#[test]
fn many_objects_are_listed_once_in_pages_and_take_little_memory() {
    let cluster = Cluster::with((1..=SERVICES).flat_map(numbered));
    let began = Instant::now();
    let proxy = cluster.start();
    println!(
        "{SERVICES} Services were programmed after {:?}",
        began.elapsed()
    );
    let pages = usize::from(SERVICES) / PAGE;
    for (kind, pages) in [
        ("services", pages),
        ("endpointslices", pages),
        ("nodes", 1),
        ("servicecidrs", 1),
    ] {
        assert_eq!(lists(&cluster, kind), pages, "{kind}");
        assert_eq!(cluster.server.count("watch", kind), 1, "{kind}");
    }
    let (resident, peak) = (memory(&proxy, "VmRSS:"), memory(&proxy, "VmHWM:"));
    println!("{resident} MiB, at most {peak} MiB");
    assert!(peak <= MEMORY, "{peak} MiB");
    cluster.assert_in_step();
    let [_, mut last] = numbered(SERVICES);
    last["endpoints"][0]["addresses"] = json!(["10.210.0.1"]);
    cluster.server.apply(last);
    until("the new endpoint", || {
        cluster.ruleset().contains("10.210.0.1")
    });
    assert!(proxy.terminate().unwrap().success());
}
