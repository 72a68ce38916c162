//! Configurations that do not fit the IP families of the node.

use crate::cluster::{Cluster, code, node};
use crate::iptables::ip;
use crate::stage::{Said, Stage, service, slice};

/// The Node, with networks of its pods.
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

/// Turns IPv6 off in the namespace of a stage.
fn without_ipv6(stage: &Stage) {
    let mut command = stage.command("sh");
    let off = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6";
    command.args(["-c", off]);
    assert!(stage.netns.run(|| command.status()).unwrap().success());
}

/// Returns the lines of a level that contain one of the words.
fn lines<'a>(said: &'a Said, level: &str, words: &str) -> Vec<&'a str> {
    let lines = said.stderr.lines().filter(|line| line.contains(level));
    lines.filter(|line| line.contains(words)).collect()
}

#[test]
fn node_ports_on_all_addresses_are_warned_of_at_each_start_and_by_no_other_command() {
    let (iptables, nftables) = (stage("iptables"), stage("nftables"));
    let words = "nodePortAddresses";
    let said = iptables.say("--oneshot");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(lines(&said, "WARN", words).len(), 1, "{said:?}");
    assert!(
        said.stderr.contains("--nodeport-addresses primary"),
        "{said:?}"
    );
    for command in ["render", "diff"] {
        let said = iptables.say(command);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{command}: {said:?}");
    }
    let said = iptables.say("--oneshot --nodeport-addresses primary");
    assert_eq!(lines(&said, "WARN", words), [""; 0]);
    let said = nftables.say("--oneshot");
    assert_eq!(lines(&said, "WARN", words), [""; 0]);
    let said = nftables.say("--oneshot --nodeport-addresses fd00::/8");
    assert_eq!(
        lines(&said, "WARN", "all local IPv4 addresses").len(),
        1,
        "{said:?}"
    );
}

#[test]
fn cluster_networks_of_the_wrong_family_end_a_start_without_ipv6_alone() {
    let stage = stage("nftables");
    // The last flag counts, and the stage has one of its own.
    let last = "exec \"$@\" --cluster-cidr fd00:244::/56";
    let shell = ["sh", "-c", last, "sh"];
    let words = "clusterCIDR has IPv6 networks only";
    let said = stage.say_through(&shell, "--oneshot");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(lines(&said, "WARN", words).len(), 1, "{said:?}");
    let rules = stage.ruleset();
    without_ipv6(&stage);
    let said = stage.say_through(&shell, "--oneshot");
    assert_eq!((said.code, &*said.stdout), (1, ""), "{said:?}");
    assert_eq!(lines(&said, "ERROR", words).len(), 1, "{said:?}");
    assert_eq!(stage.ruleset(), rules);
}

#[test]
fn pod_networks_of_the_wrong_family_end_a_proxy_that_goes_by_them() {
    let words = "podCIDRs of the Node has IPv6 networks only";
    let cluster = Cluster::with([]);
    cluster.server.apply(node("10.0.0.1", "fd00:244:1::/64"));
    let mut proxy = cluster.start_unsynced("--detect-local-mode NodeCIDR");
    assert_eq!(code(&mut proxy), 1, "{}", proxy.output());
    assert!(proxy.output().contains(words), "{}", proxy.output());
    assert_eq!(cluster.ruleset(), "");
    let said = cluster.say("--oneshot");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(lines(&said, "WARN", words).len(), 1, "{said:?}");
}
