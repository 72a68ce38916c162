//! The rules of a kernel in mode iptables: both variants, and netlink.

use std::env;

use serde_json::Value;

use super::json;
use super::kernel::add_links;
use crate::iptables::{BACKENDS, Node};
use crate::stage::{Stage, service, slice};

/// A Service that works, one without endpoints, and one with source ranges.
fn objects() -> String {
    let ranges = "  type: LoadBalancer\n  allocateLoadBalancerNodePorts: false\n  \
                  loadBalancerSourceRanges: [203.0.113.0/24]\nstatus:\n  loadBalancer:\n    \
                  ingress: [{ip: 192.0.2.99}]\n";
    let (web, ranged) = (
        service("web", "10.96.0.10"),
        service("ranged", "10.96.0.12"),
    );
    let empty = service("empty", "10.96.0.11");
    web + &slice("web", 1, 2) + &empty + &ranged + ranges + &slice("ranged", 2, 1)
}

/// Returns a node whose kernel has the rules.
fn synced(backend: &'static str) -> Node {
    let node = Node::with(backend, &[("objects.yaml", &objects())]);
    add_links(&node.stage().netns);
    let outcome = node.stage().run("--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    node
}

fn answer(node: &Node, destination: &str) -> Value {
    let line = format!("explain tcp {destination} --from 198.51.100.7 -o json");
    json(&node.stage().run(&line))
}

/// Returns the text of the rule that decided in the kernel, and whether it has a handle.
fn decided(answer: &Value) -> (String, bool) {
    let steps = answer["kernel"]["paths"][0]["steps"].as_array().unwrap();
    let is_rule = |step: &&Value| !step["place"].as_str().unwrap().is_empty();
    let step = steps.iter().rfind(is_rule).unwrap();
    let text = step["text"].as_str().unwrap().to_owned();
    (text, step["handle"].is_u64())
}

#[test]
fn the_kernel_agrees_with_the_plan_about_each_result() {
    for backend in BACKENDS {
        let node = synced(backend);
        for (destination, outcome, field, rule) in [
            ("10.96.0.10:80", "reachable", Value::Null, "MASQUERADE"),
            ("10.96.0.11:80", "refused", "endpoints".into(), "-j REJECT"),
            (
                "192.0.2.99:80",
                "dropped",
                "spec.loadBalancerSourceRanges".into(),
                "-j DROP",
            ),
        ] {
            let answer = answer(&node, destination);
            assert_eq!(answer["agrees"], true, "{backend}: {answer:#}");
            assert_eq!(answer["outcome"], outcome, "{backend}: {answer:#}");
            assert_eq!(answer["field"], field, "{backend}: {answer:#}");
            assert_eq!(answer["kernel"]["endpoints"], answer["plan"]["endpoints"]);
            let (text, has_handle) = decided(&answer);
            assert!(text.contains(rule), "{backend}: {text}: {answer:#}");
            assert_eq!(has_handle, node.variant() == "nft", "{backend}: {answer:#}");
            let sentence = answer["sentence"].as_str().unwrap();
            assert!(
                !sentence.contains("another program"),
                "{backend}: {sentence}"
            );
        }
    }
}

#[test]
fn a_saved_kernel_is_explained_like_the_live_one() {
    let in_mode_nftables = Stage::with(&[("objects.yaml", &objects())]);
    let path = env::var("PATH").unwrap();
    let elsewhere = Stage::with(&[("objects.yaml", &objects())]).in_mode("iptables", path);
    for backend in BACKENDS {
        let node = synced(backend);
        let live = answer(&node, "10.96.0.10:80");
        let saved = node.stage().run("save-kernel");
        assert_eq!(saved.code, 0, "{backend}: {saved:?}");
        let file = elsewhere.folder.path().join("kernel");
        std::fs::write(&file, &saved.stdout).unwrap();
        let line = format!(
            "explain tcp 10.96.0.10:80 --from 198.51.100.7 -o json --kernel-dump {}",
            file.display()
        );
        let loaded = json(&elsewhere.run(&line));
        assert_eq!(loaded["agrees"], true, "{backend}: {loaded:#}");
        assert_eq!(loaded["kernel"], live["kernel"], "{backend}");

        // Its rules decide in each mode.
        let other = json(&in_mode_nftables.run(&line));
        assert_eq!(other["kernel"]["endpoints"], live["kernel"]["endpoints"]);
    }
}

#[test]
fn a_deleted_rule_is_a_disagreement_that_a_sync_repairs() {
    for backend in BACKENDS {
        let node = synced(backend);
        let variant = node.variant();
        let rule = node.shell(&format!(
            "iptables-{variant}-save -t nat | grep -- '-A KUBE-SERVICES -d 10.96.0.10/32'"
        ));
        let rule = rule.trim().replacen("-A ", "-D ", 1);
        node.shell(&format!("iptables-{variant} -t nat {rule}"));
        let broken = answer(&node, "10.96.0.10:80");
        assert_eq!(broken["agrees"], false, "{backend}: {broken:#}");
        assert_ne!(broken["outcome"], "reachable", "{backend}: {broken:#}");
        assert_eq!(
            broken["plan"]["outcome"], "reachable",
            "{backend}: {broken:#}"
        );
        let sentence = broken["sentence"].as_str().unwrap();
        assert!(
            sentence.starts_with("Kernel and plan disagree about 10.96.0.10:80: in the kernel "),
            "{backend}: {sentence}"
        );
        assert!(
            sentence.contains("A running proxy repairs such differences with its next sync"),
            "{backend}: {sentence}"
        );
        assert_eq!(node.stage().run("--oneshot").code, 0, "{backend}");
        assert_eq!(answer(&node, "10.96.0.10:80")["agrees"], true, "{backend}");
    }
}

#[test]
fn chains_of_network_policies_are_of_another_program() {
    for backend in BACKENDS {
        let node = synced(backend);
        let variant = node.variant();
        for line in [
            "-N KUBE-ROUTER-FORWARD",
            "-N KUBE-NWPLCY-X",
            "-A KUBE-ROUTER-FORWARD -d 10.244.1.0/24 -j KUBE-NWPLCY-X",
            "-A KUBE-NWPLCY-X -p tcp -j DROP",
            "-I FORWARD -j KUBE-ROUTER-FORWARD",
        ] {
            node.shell(&format!("iptables-{variant} {line}"));
        }
        let answer = answer(&node, "10.96.0.10:80");
        assert_eq!(answer["outcome"], "dropped", "{backend}: {answer:#}");
        let sentence = answer["sentence"].as_str().unwrap();
        let expected = "by a rule of another program, which the proxy does not change: forward \
                        ip filter KUBE-NWPLCY-X";
        assert!(sentence.contains(expected), "{backend}: {sentence}");
    }
}

#[test]
fn targets_of_another_program_are_named_without_a_promise_of_repair() {
    for backend in BACKENDS {
        let node = synced(backend);
        for (table, rule, expected) in [
            (
                "nat",
                "PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.244.1.250:9",
                "leads to 10.244.1.250:9, which is no endpoint of default/web, by a rule of \
                 another program",
            ),
            (
                "nat",
                "POSTROUTING -j MASQUERADE",
                "another program translates the packet: postrouting ip nat POSTROUTING",
            ),
            (
                "mangle",
                "PREROUTING -j MARK --set-xmark 0x4000/0x4000",
                "another program sets the mark: prerouting ip mangle PREROUTING",
            ),
            (
                "raw",
                "PREROUTING -j CT --notrack",
                "another program changes connection tracking: prerouting ip raw PREROUTING",
            ),
        ] {
            let iptables = format!("iptables-{} -t {table}", node.variant());
            node.shell(&format!("{iptables} -I {rule}"));
            let line = "explain tcp 10.96.0.10:80 --from 10.244.1.5 -o json";
            let answer = json(&node.stage().run(line));
            node.shell(&format!("{iptables} -D {rule}"));
            assert_eq!(answer["agrees"], false, "{backend}: {answer:#}");
            let sentence = answer["sentence"].as_str().unwrap();
            assert!(sentence.contains(expected), "{backend}: {sentence}");
            assert!(
                !sentence.contains("A running proxy repairs such differences"),
                "{backend}: {sentence}"
            );
        }
    }
}
