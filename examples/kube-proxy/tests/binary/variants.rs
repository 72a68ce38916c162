//! Rules that another kube-proxy wrote in the variant of iptables that the proxy does not use.

use std::process::Command;

use testkit::scoped::Process;

use crate::explain::kernel::add_links;
use crate::iptables::{Node, web};
use crate::releases::{IPTABLES, assert_only_others_are_left, restore};
use crate::stage::{BINARY, wait_until};

/// Backends of the proxy, each with the variant that it does not use.
const OTHERS: [(&str, &str); 3] = [("legacy", "nft"), ("nft", "legacy"), ("netlink", "legacy")];

/// An entry of a log, and a comment of `diff`, about rules of the other variant.
const REMOVED: &str = "removed leftovers of other modes: ";
const LEFT: &str = "# left by another kube-proxy, removed after the next start: ";

#[test]
fn rules_in_the_other_variant_are_removed_after_the_first_sync() {
    for (backend, other) in OTHERS {
        let node = Node::with(backend, &[("web.yaml", &web(3))]);
        node.shell(&restore(other, IPTABLES));
        let elsewhere = || node.shell(&format!("iptables-{other}-save"));
        assert!(elsewhere().contains("10.1.0.5:8080"), "{backend}");

        // A sync that ends does not remove them, and `diff` says so.
        node.stage().oneshot();
        let own = node.sorted_rules();
        let outcome = node.stage().run("diff");
        assert_eq!(outcome.code, 1, "{backend}: {outcome:?}");
        let lines: Vec<_> = outcome.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "one line for each table: {outcome:?}");
        assert!(lines.iter().all(|line| line.starts_with(LEFT)), "{lines:?}");
        assert!(
            outcome
                .stdout
                .contains(&format!("table nat of iptables-{other}"))
        );

        let proxy = node.stage().start();
        wait_until(REMOVED, || proxy.output().contains(REMOVED));
        let output = proxy.output();
        let position = |words: &str| output.find(words).unwrap();
        assert!(position("synced") < position(REMOVED), "{output}");
        assert_only_others_are_left(&elsewhere());
        assert_eq!(node.sorted_rules(), own, "{backend}");
        let outcome = node.stage().run("diff");
        assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{backend}");
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn rules_in_the_other_variant_that_cannot_be_read_are_reported() {
    let node = Node::with("netlink", &[("web.yaml", &web(3))]);
    node.shell(&restore("legacy", IPTABLES));
    let reported = "legacy IPv4 iptables tables mangle, filter, nat: not checked: \
                    iptables-legacy-save is not installed; rules of an earlier kube-proxy there \
                    stay and decide about packets";
    node.stage().oneshot();
    let hidden = ["env", "PATH=/nonexistent"];
    let outcome = node.stage().run_through(&hidden, "diff");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let line = format!("# leftovers of another kube-proxy: {reported}\n");
    assert_eq!(outcome.stdout, line);

    // The legacy variant needs CAP_NET_RAW.
    let without = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"];
    let outcome = node.stage().run_through(&without, "diff");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let begin = "# leftovers of another kube-proxy: iptables-legacy-save: ";
    assert!(outcome.stdout.starts_with(begin), "{outcome:?}");
    assert!(outcome.stdout.contains("CAP_NET_RAW"), "{outcome:?}");

    let mut command = Command::new(BINARY);
    command.args(node.stage().arguments(""));
    command.env("PATH", "/nonexistent");
    let proxy = Process::start(&node.stage().netns, &mut command).unwrap();
    let is_warning = |line: &str| line.contains("WARN") && line.contains(reported);
    wait_until("the warning", || proxy.output().lines().any(is_warning));
    assert!(proxy.terminate().unwrap().success());
    assert!(node.shell("iptables-legacy-save").contains("10.1.0.5:8080"));
}

#[test]
fn explain_says_that_no_sync_repairs_rules_of_the_other_variant() {
    for (backend, other) in OTHERS {
        let node = Node::with(backend, &[("web.yaml", &web(3))]);
        node.stage().oneshot();
        node.shell(&restore(other, IPTABLES));
        add_links(&node.stage().netns);
        // A Service that was deleted. Its old address still leads to its old pods.
        let line = "explain tcp 10.96.0.20:80 --from 10.244.1.7";
        let outcome = node.stage().run(line);
        let sentence = "Another kube-proxy left this rule";
        assert!(outcome.stdout.contains(sentence), "{backend}: {outcome:?}");
        assert!(
            outcome.stdout.contains("No sync repairs it."),
            "{outcome:?}"
        );
        assert!(
            !outcome.stdout.contains("with its next sync"),
            "{outcome:?}"
        );
        assert_eq!(outcome.code, 1, "{backend}: {outcome:?}");
    }
}
