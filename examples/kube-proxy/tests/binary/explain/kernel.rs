//! The rules of a kernel: agreement, drift, and rules of other programs.

use std::process::Command;

use serde_json::Value;
use testkit::link;
use testkit::netns::Netns;

use crate::stage::{Stage, service, slice};

use super::json;

/// Returns a node with an uplink and a network of pods, and a Service with two endpoints.
pub(super) fn web() -> Stage {
    node(&(service("web", "10.96.0.10") + &slice("web", 1, 2)))
}

/// Changes the links, addresses or routes of a node.
pub(super) fn ip(stage: &Stage, line: &str) {
    ip_in(&stage.netns, line);
}

fn ip_in(netns: &Netns, line: &str) {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    let status = netns.run(|| command.status()).unwrap();
    assert!(status.success(), "ip {line}");
}

/// Returns a node with an uplink and a network of pods, and objects.
fn node(objects: &str) -> Stage {
    let stage = Stage::with(&[("web.yaml", objects)]);
    add_links(&stage.netns);
    stage
}

/// Adds an uplink and a network of pods.
pub(crate) fn add_links(netns: &Netns) {
    let ip = |line: &str| ip_in(netns, line);
    ip("link add eth0 type veth peer name eth0-peer");
    ip("link add pods type veth peer name pods-peer");
    for (link, address) in [("eth0", "192.168.0.5/24"), ("pods", "10.244.1.254/24")] {
        ip(&format!("address add {address} dev {link}"));
        ip(&format!("link set {link} up"));
        ip(&format!("link set {link}-peer up"));
    }
    ip("route add default via 192.168.0.1");
    let forward = || link::set_sysctl("ipv4/ip_forward", "1");
    netns.run(forward).unwrap();
}

/// Sets a value under `/proc/sys/net`.
pub(super) fn set(stage: &Stage, path: &str, value: &str) {
    stage.netns.run(|| link::set_sysctl(path, value)).unwrap();
}

const LINE: &str = "explain tcp 10.96.0.10:80 --from 198.51.100.7 -o json";

fn answer(stage: &Stage) -> Value {
    json(&stage.run(LINE))
}

#[test]
fn a_kernel_without_rules_of_the_proxy_is_not_evaluated() {
    let stage = web();
    let answer = answer(&stage);
    assert_eq!(answer["kernel"], Value::Null, "{answer:#}");
    let note = answer["kernelNote"].as_str().unwrap();
    assert!(
        note.contains("no rules of a kube-proxy in mode nftables"),
        "{note}"
    );
}

#[test]
fn kernel_and_plan_agree_after_a_sync() {
    let stage = web();
    stage.oneshot();
    let answer = answer(&stage);
    assert_eq!(answer["agrees"], true, "{answer:#}");
    assert_eq!(answer["kernel"]["endpoints"], answer["plan"]["endpoints"]);
    assert_eq!(answer["outcome"], "reachable");
    assert_eq!(answer["masquerade"], "always");
    let handles = answer["kernel"]["paths"][0]["steps"].as_array().unwrap();
    assert!(
        handles.iter().any(|step| step["handle"].is_u64()),
        "{answer:#}"
    );
    let text = stage.run(LINE.trim_end_matches(" -o json")).stdout;
    assert!(
        text.contains("\n  = prerouting ip kube-proxy services handle"),
        "{text}"
    );
    assert!(!text.contains("\n  < "), "{text}");
}

#[test]
fn the_endpoint_of_a_recorded_client_is_no_disagreement() {
    let service = service("web", "10.96.0.10") + "  sessionAffinity: ClientIP\n";
    let stage = node(&(service + &slice("web", 1, 2)));
    stage.oneshot();
    let first = answer(&stage);
    assert_eq!(first["endpoints"].as_array().unwrap().len(), 2);
    let lines = first["affinity"].as_array().unwrap().iter();
    let mut lines = lines.map(|line| line.as_str().unwrap());
    let line = lines.find(|line| line.ends_with(" to endpoint 10.244.1.2:8080"));
    let (_, records) = line.unwrap().split_once('@').unwrap();
    let (element, _) = records.rsplit_once(" for ").unwrap();
    let record = |client: &str| {
        let element = element.replace("198.51.100.7", client);
        stage.load(&format!("add element ip kube-proxy {element}\n"));
    };
    record("198.51.100.8");
    assert_eq!(answer(&stage)["endpoints"], first["endpoints"]);
    record("198.51.100.7");
    let second = answer(&stage);
    let sentence = "Works for the first packet: 10.96.0.10:80 is the cluster IP of default/web, and leads to endpoint \
                    10.244.1.2:8080, which session affinity recorded for this client, source \
                    address masqueraded.";
    assert_eq!(second["sentence"], sentence, "{second:#}");
    assert_eq!(second["agrees"], true);
}

#[test]
fn a_missing_route_is_named() {
    let stage = node(&(service("web", "10.96.0.10") + &slice("web", 1, 0)));
    stage.oneshot();
    assert_eq!(answer(&stage)["outcome"], "refused");
    ip(&stage, "route del default");
    ip(&stage, "route add 198.51.100.0/24 via 192.168.0.1");
    let refused = answer(&stage);
    let sentence = "Does not work: this node has no route to 10.96.0.10:80, and drops the packets \
                    of connections that get no endpoint: the service port has no endpoints.";
    assert_eq!(refused["sentence"], sentence, "{refused:#}");
    assert_eq!(refused["outcome"], "dropped");
    let stage = node(&(service("web", "10.96.0.10") + &slice("web", 9, 1)));
    stage.oneshot();
    ip(&stage, "route del default");
    ip(&stage, "route add 198.51.100.0/24 via 192.168.0.1");
    let away = answer(&stage);
    let sentence = away["sentence"].as_str().unwrap();
    let end = "to which 10.96.0.10:80 leads.";
    assert!(
        sentence.contains("no route to 10.244.9.1:8080"),
        "{sentence}"
    );
    assert!(sentence.ends_with(end), "{sentence}");
}

#[test]
fn a_rule_of_another_program_that_drops_is_named() {
    let stage = web();
    stage.oneshot();
    stage.load(
        "table inet firewall {\nchain forward {\ntype filter hook forward priority 10\n\
         ip daddr 10.244.1.0/24 tcp dport 8080 counter drop\n}\n}\n",
    );
    let answer = answer(&stage);
    assert_eq!(answer["outcome"], "dropped", "{answer:#}");
    let reason = answer["reason"].as_str().unwrap();
    assert!(reason.contains("inet firewall forward handle"), "{reason}");
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(sentence.contains("a rule of another program"), "{sentence}");
    assert!(sentence.contains("drop"), "{sentence}");
    assert_eq!(answer["plan"]["outcome"], "reachable");
}

#[test]
fn a_saved_kernel_is_explained_without_privileges_elsewhere() {
    let stage = web();
    stage.oneshot();
    stage.load(
        "table inet firewall {\nchain forward {\ntype filter hook forward priority 10\n\
         iifname eth0 tcp dport { 8080, 9090 } drop\n}\n}\n",
    );
    let live = answer(&stage);
    let saved = stage.run("save-kernel");
    assert_eq!(saved.code, 0, "{saved:?}");
    let file = stage.folder.path().join("kernel");
    std::fs::write(&file, &saved.stdout).unwrap();
    let other = Stage::with(&[(
        "web.yaml",
        &(service("web", "10.96.0.10") + &slice("web", 1, 2)),
    )]);
    let without = [
        "setpriv",
        "--bounding-set=-net_admin",
        "--inh-caps=-net_admin",
    ];
    let line = format!("{LINE} --kernel-dump {}", file.display());
    let answer = json(&other.run_through(&without, &line));
    assert_eq!(answer["outcome"], "dropped", "{answer:#}");
    assert_eq!(answer["kernel"], live["kernel"]);
    assert_eq!(answer["sentence"], live["sentence"]);
    let incomplete = saved.stdout.strip_suffix("# end\n").unwrap();
    for (text, expected) in [
        ("table ip kube-proxy {", "line 1 is no part"),
        (incomplete, "the kernel state is incomplete"),
    ] {
        std::fs::write(&file, text).unwrap();
        let invalid = other.run_through(&without, &line);
        assert_eq!(invalid.code, 2, "{invalid:?}");
        assert!(invalid.stderr.contains(expected), "{invalid:?}");
    }
}

#[test]
fn a_saved_kernel_without_rules_disagrees() {
    let stage = web();
    let file = stage.folder.path().join("kernel");
    std::fs::write(&file, stage.run("save-kernel").stdout).unwrap();
    let line = format!("{LINE} --kernel-dump {}", file.display());
    let answer = json(&stage.run(&line));
    assert_eq!(answer["outcome"], "dropped", "{answer:#}");
    assert_eq!(answer["agrees"], false, "{answer:#}");
    assert_eq!(answer["plan"]["outcome"], "reachable", "{answer:#}");
}

#[test]
fn connections_that_the_node_cannot_make_are_left_out_of_a_service() {
    // The links have no IPv6 address.
    let objects = "
apiVersion: v1
kind: Service
metadata: {name: dual, namespace: default}
spec: {clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20, 'fd00:96::20'], ports: [{port: 80}]}
";
    let stage = Stage::with(&[("dual.yaml", objects)]);
    add_links(&stage.netns);
    let line = "explain service default/dual --from-node -o json";
    let synced = stage.oneshot();
    let answer = json(&stage.run(line));
    let sentence = answer["sentence"].as_str().unwrap();
    let expected = "Connections are left out: this node has no route to [fd00:96::20]:80";
    assert!(sentence.contains(expected), "{synced:?} {sentence}");
    assert_eq!(answer["answers"].as_array().unwrap().len(), 1, "{answer:#}");
}

#[test]
fn a_deleted_element_is_a_disagreement() {
    let stage = web();
    stage.oneshot();
    stage.load("delete element ip kube-proxy backends-2 { 10.96.0.10 . tcp . 80 . 1 }\n");
    let answer = answer(&stage);
    assert_eq!(answer["agrees"], false, "{answer:#}");
    assert_ne!(answer["outcome"], "reachable", "{answer:#}");
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("Kernel and plan disagree about 10.96.0.10:80"),
        "{sentence}"
    );
    let text = stage.run(LINE.trim_end_matches(" -o json")).stdout;
    assert!(text.contains("\n  > "), "{text}");
    let planned = json(&stage.run(&format!("{LINE} --plan-only")));
    assert_eq!(planned["outcome"], "reachable", "{planned:#}");
}
