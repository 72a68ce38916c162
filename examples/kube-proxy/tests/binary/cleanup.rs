//! `--cleanup` removes all objects of a kube-proxy and nothing else.

use std::process::{Command, Output};

use testkit::netns::Netns;
use testkit::scoped::Directory;

use crate::stage::{BINARY, Outcome, Stage, service, slice, wait_until};

/// Rules of upstream kube-proxy in mode iptables and of other programs.
const NODE: &str = include_str!(
    "../../../../crates/proxy-core/src/backend/iptables/plan/cleanup/captures/iptables.txt"
);

/// The names of the iptables programs without `-save` and `-restore`.
const KINDS: [&str; 4] = [
    "iptables-legacy",
    "iptables-nft",
    "ip6tables-legacy",
    "ip6tables-nft",
];

/// Sets of upstream for both families.
const SETS: &str = "ipset create KUBE-CLUSTER-IP hash:ip,port\n\
                    ipset add KUBE-CLUSTER-IP 10.96.0.20,tcp:80\n\
                    ipset create KUBE-6-LOOP-BACK hash:ip,port,ip family inet6\n";

/// Rules of upstream kube-proxy in mode ipvs.
const IPVS: &str = "*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-A INPUT -m comment --comment \"kubernetes ipvs access filter\" -j KUBE-IPVS-FILTER
-A INPUT -m comment --comment \"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check rules\" -j KUBE-NODE-PORT
-A FORWARD -m comment --comment \"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A OUTPUT -m comment --comment \"kubernetes ipvs access filter\" -j KUBE-IPVS-OUT-FILTER
-A KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
COMMIT
";

fn shell(netns: &Netns, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]);
    netns.run(|| command.output()).unwrap()
}

/// Runs a script, which must succeed, and returns its output.
#[track_caller]
fn succeeds(netns: &Netns, script: &str) -> String {
    let output = shell(netns, script);
    assert!(output.status.success(), "{script}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn restore(program: &str, rules: &str) -> String {
    format!("{program}-restore --noflush <<'END'\n{rules}END\n")
}

/// Returns all rules, sets, links and nft tables as the system tools print them.
fn state(netns: &Netns) -> String {
    let mut script = KINDS.map(|kind| format!("{kind}-save\n")).concat();
    script += "ipset save\ncut -d: -f1 /proc/net/dev\nnft list tables\n";
    let output = succeeds(netns, &script);
    let lines = output.lines().filter(|line| !line.starts_with('#'));
    let without_random_part =
        |line: &str| line.split(" initval ").next().unwrap_or(line).to_owned();
    let lines: Vec<_> = lines.map(without_random_part).collect();
    lines.join("\n")
}

/// Returns the lines of [`NODE`] that do not belong to kube-proxy.
fn foreign_rules() -> String {
    let is_of_proxy = |line: &&str| {
        line.contains("KUBE-") && !line.contains("KUBE-FIREWALL") && !is_of_kubelet(line)
    };
    let lines = NODE.lines().filter(|line| !is_of_proxy(line));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn is_of_kubelet(line: &str) -> bool {
    line.contains("KUBE-KUBELET-CANARY") || line.contains("KUBE-IPTABLES-HINT")
}

/// Foreign objects other than iptables rules.
const OTHERS: &str = "ipset create MINE hash:ip\nipset add MINE 192.0.2.1\n\
                      nft add table inet mine\nip link add mine type veth peer name peer\n";

/// A link with the name of the link of mode ipvs. Its type is veth because some kernels
/// lack type dummy.
const LINK: &str = "ip link add kube-ipvs0 type veth peer name other\n";

/// Returns the commands that restore the rules for both families and variants.
fn restore_all(rules: &str) -> String {
    let v6 = rules
        .replace("127.0.0.0/8", "::1/128")
        .replace("10.180.0.0/16", "fd00:1::/64")
        .replace("10.180.0.1:80", "[fd00:1::5]:80")
        .replace("10.180.0.1/32", "fd00:1::5/128")
        .replace("10.96.0.20/32", "fd00:96::20/128")
        .replace("192.0.2.0/24", "2001:db8::/64");
    let rules = KINDS.map(|kind| restore(kind, if kind.starts_with("ip6") { &v6 } else { rules }));
    rules.concat()
}

#[test]
fn objects_of_all_modes_are_listed_and_removed_and_others_are_kept() {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 3);
    let stage = Stage::with(&[("web.yaml", &web)]);
    stage.oneshot();
    let script = [&*restore_all(NODE), SETS, OTHERS, LINK].concat();
    succeeds(&stage.netns, &script);
    let own = || stage.nft(&["list", "table", "ip", "kube-proxy"]).stdout;
    let before = (state(&stage.netns), own());

    let listed = stage.run("--cleanup --dry-run");
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(before == (state(&stage.netns), own()), "changed");
    for part in [
        "nft delete table ip kube-proxy\nnft delete table ip6 kube-proxy\n",
        "ip link delete kube-ipvs0\n",
        "ipset destroy KUBE-6-LOOP-BACK\nipset destroy KUBE-CLUSTER-IP\n",
        "-X KUBE-SVC-XPGD46QRK7WJZT7O\n",
    ] {
        assert!(listed.stdout.contains(part), "{part}{}", listed.stdout);
    }
    for kind in KINDS {
        let tables = listed.stdout.matches(&format!("{kind}-restore ")).count();
        assert_eq!(tables, 3, "{kind}: {}", listed.stdout);
    }

    let elsewhere = Netns::new().unwrap();
    succeeds(
        &elsewhere,
        &[&*restore_all(&foreign_rules()), OTHERS].concat(),
    );
    let removed = stage.run("--cleanup");
    assert_eq!((removed.code, &*removed.stdout), (0, ""), "{removed:?}");
    assert_eq!(state(&stage.netns), state(&elsewhere));

    let again = stage.run("--cleanup");
    assert!(again.stderr.contains("nothing to remove"), "{again:?}");
    let listed = stage.run("--cleanup --dry-run");
    assert_eq!((listed.code, &*listed.stdout, &*listed.stderr), (0, "", ""));
}

#[test]
fn the_dry_run_prints_a_script_that_removes_the_objects() {
    let stage = Stage::new();
    succeeds(
        &stage.netns,
        &[SETS, &restore("iptables-nft", IPVS), OTHERS].concat(),
    );
    let listed = stage.run("--cleanup --dry-run");
    succeeds(&stage.netns, &listed.stdout);
    let left = state(&stage.netns);
    assert!(!left.contains("KUBE-"), "{left}");
    assert!(left.contains("create MINE"), "{left}");
    assert_eq!(stage.run("--cleanup --dry-run").stdout, "");
}

#[test]
fn a_failed_step_is_reported_and_the_others_are_done() {
    let stage = Stage::new();
    let rule = "*filter\n-A INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j DROP\nCOMMIT\n";
    let script = [
        SETS,
        &*restore("iptables-legacy", IPVS),
        &restore("iptables-nft", rule),
    ];
    succeeds(&stage.netns, &script.concat());
    let outcome = stage.run("--cleanup");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let errors: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("ERROR"))
        .collect();
    assert_eq!(errors.len(), 1, "{outcome:?}");
    let start = "removal failed: ipset destroy KUBE-CLUSTER-IP: ";
    assert!(errors[0].contains(start), "{outcome:?}");
    let left = state(&stage.netns);
    assert!(left.contains("create KUBE-CLUSTER-IP"), "{left}");
    assert!(
        !left.contains("KUBE-6-") && !left.contains(":KUBE-"),
        "{left}"
    );
}

#[test]
fn chains_used_by_foreign_rules_are_kept() {
    let stage = Stage::new();
    let mine = "*nat\n:MINE - [0:0]\n-A MINE -j KUBE-MARK-MASQ\nCOMMIT\n";
    let script = [
        SETS,
        &*restore("iptables-nft", IPVS),
        &restore("iptables-nft", mine),
    ];
    succeeds(&stage.netns, &script.concat());
    let outcome = stage.run("--cleanup");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let message = "nat KUBE-MARK-MASQ stays, because a rule that stays jumps to it: -A MINE -j KUBE-MARK-MASQ";
    assert!(outcome.stderr.contains(message), "{outcome:?}");
    let left = state(&stage.netns);
    assert_eq!(left.matches("KUBE-").count(), 2, "{left}");
}

#[test]
fn a_start_removes_the_objects_of_other_modes_and_none_of_its_own() {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 3);
    let stage = Stage::with(&[("web.yaml", &web)]);
    let script = [&*restore("iptables-legacy", NODE), SETS].concat();
    succeeds(&stage.netns, &script);
    let proxy = stage.start();
    let message = "removed leftovers of other modes: ";
    wait_until(message, || proxy.output().contains(message));
    let left = state(&stage.netns);
    for gone in ["KUBE-SVC-", "KUBE-CLUSTER-IP"] {
        assert!(!left.contains(gone), "{left}");
    }
    let rules = stage.ruleset();
    assert!(rules.contains("10.244.1.3 "), "{rules}");
    let output = proxy.output();
    let position = |words: &str| output.find(words).unwrap();
    assert!(position("synced") < position(message), "{output}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn objects_that_cannot_be_checked_are_reported() {
    let stage = Stage::new();
    let both = ["iptables-legacy", "iptables-nft"].map(|kind| restore(kind, NODE));
    succeeds(&stage.netns, &(both.concat() + LINK + SETS));
    let without = ["env", "PATH=/nonexistent"];
    let outcome = stage.run_through(&without, "--cleanup --dry-run");
    let end = "ip link delete kube-ipvs0\nipset destroy KUBE-6-LOOP-BACK\n\
               ipset destroy KUBE-CLUSTER-IP\n";
    assert_eq!(outcome.code, 0, "{outcome:?}");
    // Rules of the nft variant are read over netlink.
    let rules = outcome.stdout.strip_suffix(end).expect("the end");
    assert_eq!(rules.matches("iptables-nft-restore ").count(), 3, "{rules}");
    assert_eq!(rules.matches("iptables-legacy").count(), 0, "{rules}");
    let words = ": not checked: iptables-legacy-save is not installed";
    assert!(outcome.stderr.contains(words), "{outcome:?}");
    assert!(!outcome.stderr.contains("of nf_tables"), "{outcome:?}");
    assert!(!outcome.stderr.contains("IPv6"), "{outcome:?}");
}

/// As in a DaemonSet that does not run as root: only root may read which tables exist.
#[test]
fn tables_that_may_exist_and_cannot_be_checked_are_reported() {
    let stage = Stage::new();
    succeeds(&stage.netns, &restore("iptables-legacy", NODE));
    // The build folder may not be readable by the other user.
    let folder = Directory::new().unwrap();
    let program = folder.path().join("kube-proxy");
    testkit::program::copy(BINARY.as_ref(), &program).unwrap();
    succeeds(
        &stage.netns,
        &format!("chmod -R a+rX {}", folder.path().display()),
    );
    let script = format!(
        "setpriv --reuid=65002 --regid=65002 --clear-groups --bounding-set=-all,+net_admin \
         --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin \
         env PATH=/nonexistent {} --cleanup --dry-run",
        program.display()
    );
    let outcome = Outcome::from(shell(&stage.netns, &script));
    assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{outcome:?}");
    let warning = "legacy IPv4 iptables tables, of which it is unknown whether they exist \
                   (/proc/thread-self/net/ip_tables_names cannot be read: Permission denied (os \
                   error 13)): not checked: iptables-legacy-save is not installed; rules of an \
                   earlier kube-proxy there stay and decide about packets";
    assert!(outcome.stderr.contains(warning), "{outcome:?}");
}

#[test]
fn init_only_probes_the_kernel_and_changes_nothing() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let outcome = stage.run("--init-only");
    assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{outcome:?}");
    assert_eq!(
        outcome
            .stderr
            .matches("the kernel supports the mode")
            .count(),
        2,
        "{outcome:?}"
    );
    assert_eq!(stage.ruleset(), "");
}

#[test]
fn a_missing_capability_is_reported_and_nothing_changes() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    stage.oneshot();
    let rules = stage.ruleset();
    let without = [
        "setpriv",
        "--bounding-set=-net_admin",
        "--inh-caps=-net_admin",
    ];
    for line in ["--init-only", "--cleanup", "--cleanup --dry-run"] {
        let outcome = stage.run_through(&without, line);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (1, ""),
            "{line}: {outcome:?}"
        );
        assert!(
            outcome.stderr.contains("CAP_NET_ADMIN is missing"),
            "{outcome:?}"
        );
    }
    assert_eq!(stage.ruleset(), rules);
}
