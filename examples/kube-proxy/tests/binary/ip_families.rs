//! Configurations that do not match the IP families of the node.

use crate::cluster::{Cluster, code, node};
use crate::iptables::ip;
use crate::stage::{Outcome, Stage, service, slice};

/// Returns the manifest of the Node with these pod CIDRs.
fn object(pod_cidrs: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: node-1}}\n\
         spec: {{podCIDRs: [{pod_cidrs}]}}\n\
         status: {{addresses: [{{type: InternalIP, address: 192.0.2.7}}]}}\n"
    )
}

fn stage(mode: &'static str) -> Stage {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 1);
    let node = object("10.244.1.0/24");
    let stage = Stage::with(&[("web.yaml", &web), ("node.yaml", &node)]);
    ip(&stage.netns, "address add 192.0.2.7/24 dev lo");
    stage.in_mode(mode, std::env::var("PATH").unwrap())
}

/// Disables IPv6 in the namespace of a stage.
fn disable_ipv6(stage: &Stage) {
    let mut command = stage.command("sh");
    let off = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6";
    command.args(["-c", off]);
    assert!(stage.netns.run(|| command.status()).unwrap().success());
}

/// Returns the log lines of a level that contain `words`.
fn lines<'a>(outcome: &'a Outcome, level: &str, words: &str) -> Vec<&'a str> {
    let lines = outcome.stderr.lines().filter(|line| line.contains(level));
    lines.filter(|line| line.contains(words)).collect()
}

#[test]
fn only_starts_warn_about_node_ports_on_all_addresses() {
    let (iptables, nftables) = (stage("iptables"), stage("nftables"));
    let words = "nodePortAddresses";
    let outcome = iptables.run("--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(lines(&outcome, "WARN", words).len(), 1, "{outcome:?}");
    assert!(
        outcome.stderr.contains("--nodeport-addresses primary"),
        "{outcome:?}"
    );
    for command in ["render", "diff"] {
        let outcome = iptables.run(command);
        assert_eq!(
            (outcome.code, &*outcome.stderr),
            (0, ""),
            "{command}: {outcome:?}"
        );
    }
    let outcome = iptables.run("--oneshot --nodeport-addresses primary");
    assert_eq!(lines(&outcome, "WARN", words), [""; 0]);
    let outcome = nftables.run("--oneshot");
    assert_eq!(lines(&outcome, "WARN", words), [""; 0]);
    let outcome = nftables.run("--oneshot --nodeport-addresses fd00::/8");
    assert_eq!(
        lines(&outcome, "WARN", "all local IPv4 addresses").len(),
        1,
        "{outcome:?}"
    );
}

#[test]
fn cluster_cidrs_of_the_wrong_family_are_fatal_only_without_ipv6() {
    let stage = stage("nftables");
    // The last flag takes effect, and the stage adds its own.
    let last = "exec \"$@\" --cluster-cidr fd00:244::/56";
    let shell = ["sh", "-c", last, "sh"];
    let words = "clusterCIDR has IPv6 networks only";
    let outcome = stage.run_through(&shell, "--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(lines(&outcome, "WARN", words).len(), 1, "{outcome:?}");
    let rules = stage.ruleset();
    disable_ipv6(&stage);
    let outcome = stage.run_through(&shell, "--oneshot");
    assert_eq!((outcome.code, &*outcome.stdout), (1, ""), "{outcome:?}");
    assert_eq!(lines(&outcome, "ERROR", words).len(), 1, "{outcome:?}");
    assert_eq!(stage.ruleset(), rules);
}

#[test]
fn pod_cidrs_of_the_wrong_family_end_a_proxy_that_detects_local_traffic_by_them() {
    let words = "podCIDRs of the Node has IPv6 networks only";
    let cluster = Cluster::with([]);
    cluster.server.apply(node("10.0.0.1", "fd00:244:1::/64"));
    let mut proxy = cluster.start_unsynced("--detect-local-mode NodeCIDR");
    assert_eq!(code(&mut proxy), 1, "{}", proxy.output());
    assert!(proxy.output().contains(words), "{}", proxy.output());
    assert_eq!(cluster.ruleset(), "");
    let outcome = cluster.run("--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(lines(&outcome, "WARN", words).len(), 1, "{outcome:?}");
}
