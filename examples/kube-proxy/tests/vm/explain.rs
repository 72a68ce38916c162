//! `explain` beside the kernel: modes ipvs and iptables, and recorded clients.

use std::net::SocketAddr;
use std::process::Output;

use serde_json::Value;
use testkit::scoped::Directory;
use testkit::traffic::{Probe, Protocol};

use crate::site::Site;

/// Modes whose affinity the guest's kernel alone supports.
const MODES: [&str; 2] = ["ipvs", "iptables"];

/// Cluster IP of the Service with session affinity.
const STICKY: &str = "10.96.0.20:80";

/// A Service without endpoints, one with source ranges, and one with session affinity.
fn objects(site: &Site) -> String {
    let endpoints = site.lab.backends.iter().map(|backend| {
        let [v4, _] = backend.addresses();
        format!("- {{addresses: ['{v4}']}}\n")
    });
    let endpoints: String = endpoints.collect();
    let slice = |service: &str| {
        format!(
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: IPv4
ports:
- {{port: 8080}}
endpoints:
{endpoints}"
        )
    };
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: empty}}
spec: {{clusterIP: 10.96.0.21, ports: [{{port: 80}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: ranged}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.22
  allocateLoadBalancerNodePorts: false
  loadBalancerSourceRanges: [203.0.113.0/24]
  ports: [{{port: 80}}]
status: {{loadBalancer: {{ingress: [{{ip: 192.0.2.99}}]}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: sticky}}
spec:
  clusterIP: 10.96.0.20
  sessionAffinity: ClientIP
  ports: [{{port: 80}}]
{}{}",
        slice("ranged"),
        slice("sticky")
    )
}

/// Returns a site whose Services have two endpoints.
fn site() -> Site {
    let site = Site::new();
    site.set_backends(&[0, 1]);
    site.write("explained.yaml", &objects(&site));
    site
}

/// Explains a connection on the node.
fn explain(site: &Site, mode: &'static str, destination: &str, from: &str) -> Value {
    let line = format!("explain tcp {destination} --from {from} -o json");
    let Output { stdout, stderr, .. } = site.output(mode, &line);
    serde_json::from_slice(&stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stderr)))
}

fn addresses(side: &Value) -> Vec<&str> {
    let endpoints = side["endpoints"].as_array().unwrap().iter();
    endpoints
        .map(|it| it["address"].as_str().unwrap())
        .collect()
}

/// Returns whether session affinity recorded the client.
fn recorded(answer: &Value) -> bool {
    let mut lines = answer["affinity"].as_array().unwrap().iter();
    lines.any(|line| line.as_str().unwrap().starts_with("recorded: "))
}

#[test]
fn the_kernel_agrees_with_the_plan_and_a_deleted_server_is_a_disagreement() {
    let site = site();
    let proxy = site.start("ipvs", "");
    let [client, _] = site.lab.client.addresses().map(|it| it.to_string());
    for (destination, outcome, field) in [
        ("10.96.0.10:80", "reachable", Value::Null),
        ("10.96.0.21:80", "refused", "endpoints".into()),
        (
            "192.0.2.99:80",
            "dropped",
            "spec.loadBalancerSourceRanges".into(),
        ),
    ] {
        let answer = explain(&site, "ipvs", destination, &client);
        assert_eq!(answer["agrees"], true, "{answer:#}");
        assert_eq!(answer["outcome"], outcome, "{answer:#}");
        assert_eq!(answer["field"], field, "{answer:#}");
        assert_eq!(addresses(&answer["kernel"]), addresses(&answer["plan"]));
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(!sentence.contains("another program"), "{sentence}");
    }
    proxy.stop().unwrap();
    site.shell("ipvsadm -D -t 10.96.0.10:80");
    let broken = explain(&site, "ipvs", "10.96.0.10:80", &client);
    assert_eq!(broken["agrees"], false, "{broken:#}");
    assert_ne!(broken["outcome"], "reachable", "{broken:#}");
    let sentence = broken["sentence"].as_str().unwrap();
    let begin = "Kernel and plan disagree about 10.96.0.10:80: in the kernel ";
    assert!(sentence.starts_with(begin), "{sentence}");
    let repair = "A running proxy repairs such differences with its next sync";
    assert!(sentence.contains(repair), "{sentence}");
}

#[test]
fn the_endpoint_of_a_recorded_client_is_shown() {
    for mode in MODES {
        let site = site();
        let proxy = site.start(mode, "");
        let [client, _] = site.lab.client.addresses().map(|it| it.to_string());
        let before = explain(&site, mode, STICKY, &client);
        assert_eq!(addresses(&before).len(), 2, "{mode}: {before:#}");
        assert_eq!(before["agrees"], true, "{mode}: {before:#}");
        assert!(!recorded(&before), "{mode}: {before:#}");

        let target: SocketAddr = STICKY.parse().unwrap();
        let probe = Probe::new(Protocol::Tcp, target);
        let answers = probe.times(&site.lab.client.netns, 2);
        assert!(answers.failures.is_empty(), "{mode}: {answers}");
        let servers: Vec<_> = answers.servers.keys().collect();
        let mut backends = site.lab.backends.iter();
        let server = backends.find(|it| servers == [&it.name]).unwrap();
        let [expected, _] = server.addresses().map(|it| format!("{it}:8080"));

        let after = explain(&site, mode, STICKY, &client);
        assert_eq!(addresses(&after), [&*expected], "{mode}: {after:#}");
        assert_eq!(after["endpoints"][0]["probability"], 1.0, "{mode}");
        assert!(recorded(&after), "{mode}: {after:#}");
        assert_eq!(after["agrees"], true, "{mode}: {after:#}");
        let sentence = after["sentence"].as_str().unwrap();
        let recorded_for = format!("endpoint {expected}, which session affinity recorded for");
        assert!(sentence.contains(&recorded_for), "{mode}: {sentence}");
        let saved = site.output(mode, "save-kernel").stdout;
        let folder = Directory::new().unwrap();
        let file = folder.path().join("kernel");
        std::fs::write(&file, saved).unwrap();
        let line = format!(
            "explain tcp {STICKY} --from {client} -o json --kernel-dump {}",
            file.display()
        );
        let loaded: Value = serde_json::from_slice(&site.output(mode, &line).stdout).unwrap();
        assert_eq!(loaded["kernel"], after["kernel"], "{mode}");
        assert_eq!(loaded["sentence"], after["sentence"], "{mode}");

        let other = explain(&site, mode, STICKY, "198.51.100.7");
        assert_eq!(addresses(&other).len(), 2, "{mode}: {other:#}");
        testkit::figures!("{mode}: {}\n{sentence}", after["affinity"]);
        proxy.stop().unwrap();
    }
}

/// Mounts what a container runtime hides, and what kernels without `CONFIG_SCHEDSTATS` lack.
const HIDE_TIMER_LIST: &str = "mount --bind /dev/null /proc/timer_list";
const HIDE_SCHEDSTAT: &str = "mount --bind /dev/null /proc/schedstat";

/// Sysctls of the initial network namespace. A DaemonSet runs there, and the node of the lab has
/// a namespace of its own, without these files.
const SYSCTLS: &str = "/proc/sys/net/ipv4/route";
const FREQUENCY_SYSCTLS: [&str; 4] = [
    "error_cost",
    "error_burst",
    "redirect_load",
    "redirect_silence",
];

#[test]
fn a_recorded_client_is_found_in_a_container_or_the_hidden_files_are_named() {
    let site = site();
    let proxy = site.start("iptables", "");
    let [client, _] = site.lab.client.addresses().map(|it| it.to_string());
    let probe = Probe::new(Protocol::Tcp, STICKY.parse().unwrap());
    let answers = probe.times(&site.lab.client.netns, 1);
    assert!(answers.failures.is_empty(), "{answers}");
    let sysctls = Directory::new().unwrap();
    for name in FREQUENCY_SYSCTLS {
        let text = std::fs::read_to_string(format!("{SYSCTLS}/{name}")).unwrap();
        sysctls.write(name, &text).unwrap();
    }
    let show_sysctls = format!("mount --bind {} {SYSCTLS}", sysctls.path().display());

    let line = format!("explain tcp {STICKY} --from {client} -o json");
    let answer = |script: &[&str]| -> Value {
        let script = script.join("\n");
        let output = site.output_with_mounts("iptables", &line, &script);
        let error = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|it| panic!("{script}: {it}: {error}"))
    };
    for script in [
        &[HIDE_TIMER_LIST][..],
        &[HIDE_TIMER_LIST, HIDE_SCHEDSTAT, &show_sysctls],
    ] {
        let found = answer(script);
        assert_eq!(found["outcome"], "reachable", "{script:?}: {found:#}");
        assert_eq!(
            addresses(&found["kernel"]).len(),
            1,
            "{script:?}: {found:#}"
        );
        assert!(recorded(&found), "{script:?}: {found:#}");
    }
    let unknown = answer(&[HIDE_TIMER_LIST, HIDE_SCHEDSTAT]);
    assert_eq!(unknown["outcome"], "unknown", "{unknown:#}");
    let sentence = unknown["sentence"].as_str().unwrap();
    for part in [
        "whether recent list KUBE-SEP-",
        "/proc/schedstat does not show it, /proc/timer_list does not show it, \
         /proc/sys/net/ipv4/route/error_cost cannot be read (No such file or directory",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    testkit::figures!("{sentence}");
    proxy.stop().unwrap();
}
