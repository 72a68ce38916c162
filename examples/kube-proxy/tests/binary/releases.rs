//! Rules that earlier releases of kube-proxy left: takeover, removal and `--cleanup`.

use crate::iptables::{BACKENDS, Node, web};
use crate::stage::{Stage, wait_until};

/// Rules of earlier releases, beside those of the kubelet and of another program.
pub(crate) const IPTABLES: &str = include_str!("releases/1.23-iptables.txt");
const IPVS: &str = include_str!("releases/1.23-ipvs.txt");
const USERSPACE: &str = include_str!("releases/1.25-userspace.txt");

/// Sets that the rules of mode ipvs match.
const SETS: &str = "ipset create KUBE-LOAD-BALANCER hash:ip,port\n\
                    ipset create KUBE-LOAD-BALANCER-FW hash:ip,port\n\
                    ipset create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535\n";

/// Returns the command that restores rules with the programs of a variant.
pub(crate) fn restore(variant: &str, rules: &str) -> String {
    format!("iptables-{variant}-restore --noflush <<'END'\n{rules}END\n")
}

/// Returns the chains of a kubelet or a kube-proxy in saved rules, with their tables.
fn kube_chains(saved: &str) -> Vec<String> {
    let mut table = "";
    let chains = saved.lines().filter_map(|line| {
        table = line.strip_prefix('*').unwrap_or(table);
        let name = line.strip_prefix(':')?.split(' ').next()?;
        name.starts_with("KUBE-").then(|| format!("{table} {name}"))
    });
    chains.collect()
}

/// Chains that no kube-proxy removes, because the kubelet writes them.
const OF_THE_KUBELET: [&str; 5] = [
    "mangle KUBE-KUBELET-CANARY",
    "filter KUBE-FIREWALL",
    "filter KUBE-KUBELET-CANARY",
    "nat KUBE-KUBELET-CANARY",
    "nat KUBE-MARK-DROP",
];

fn sorted(mut chains: Vec<String>) -> Vec<String> {
    chains.sort_unstable();
    chains
}

/// Checks that rules of other programs are there, and of kube-proxy none.
#[track_caller]
pub(crate) fn assert_only_others_are_left(saved: &str) {
    let left = sorted(kube_chains(saved));
    let kubelets = sorted(OF_THE_KUBELET.map(str::to_owned).to_vec());
    assert!(
        left.iter().all(|chain| kubelets.contains(chain)),
        "{left:?}"
    );
    for rule in [
        "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT",
        "-A MINE -j RETURN",
        "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000",
    ] {
        assert!(saved.contains(rule), "{rule}: {saved}");
    }
}

#[test]
fn a_node_of_1_23_is_taken_over_without_a_remainder() {
    for backend in BACKENDS {
        let node = Node::with(backend, &[("web.yaml", &web(3))]);
        node.shell(&restore(node.variant(), IPTABLES));
        let report = node.stage().oneshot();
        assert_eq!(report["in_sync"], true, "{backend}: {report}");
        assert!(report["families"][0].get("rejected").is_none(), "{report}");
        let outcome = node.stage().run("diff");
        assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{backend}");
        let saved = node.shell("iptables-save");
        assert!(!saved.contains("shop/web"), "{backend}: {saved}");
        assert!(!saved.contains("KUBE-XLB-"), "{backend}: {saved}");
        assert!(saved.contains("10.244.1.3:8080"), "{backend}: {saved}");

        let outcome = node.stage().run("--cleanup");
        assert_eq!(outcome.code, 0, "{backend}: {outcome:?}");
        assert_only_others_are_left(&node.shell("iptables-save"));
    }
}

#[test]
fn cleanup_removes_the_rules_of_all_releases_and_modes() {
    for variant in ["legacy", "nft"] {
        let node = Node::with(variant, &[]);
        let all = [SETS, &restore(variant, IPTABLES), &restore(variant, IPVS)];
        node.shell(&(all.concat() + &restore(variant, USERSPACE)));
        let outcome = node.stage().run("--cleanup");
        assert_eq!(outcome.code, 0, "{variant}: {outcome:?}");
        let saved = node.shell("iptables-save");
        assert_only_others_are_left(&saved);
        assert!(
            !saved.contains("Portal") && !saved.contains("NodePort"),
            "{saved}"
        );
        assert_eq!(node.shell("ipset list -n"), "");
        let again = node.stage().run("--cleanup --dry-run");
        assert_eq!((again.code, &*again.stdout), (0, ""), "{again:?}");
    }
}

#[test]
fn mode_nftables_removes_the_rules_of_a_node_of_1_23() {
    let stage = Stage::with(&[("web.yaml", &web(3))]);
    let all = [
        SETS,
        &restore("nft", IPTABLES),
        &restore("nft", IPVS),
        &restore("nft", USERSPACE),
    ];
    let shell = |script: &str| {
        let mut command = stage.command("sh");
        command.args(["-e", "-c", script]);
        let output = stage.netns.run(|| command.output()).unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    shell(&all.concat());
    let proxy = stage.start();
    let message = "removed leftovers of other modes: ";
    wait_until(message, || proxy.output().contains(message));
    assert_only_others_are_left(&shell("iptables-nft-save"));
    assert!(proxy.terminate().unwrap().success());
}
