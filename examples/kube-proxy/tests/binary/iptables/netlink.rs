//! Mode iptables without programs.

use std::fs;

use super::{Node, lines, web};
use crate::stage::wait_until;

/// The programs that a proxy could run.
const PROGRAMS: [&str; 4] = [
    "iptables-save",
    "iptables-restore",
    "ip6tables-save",
    "ip6tables-restore",
];

#[test]
fn no_process_is_started_and_a_restart_commits_nothing() {
    let node = Node::web("netlink");
    for name in PROGRAMS {
        node.script(name, "echo $0 $* >> $folder/runs; exit 1\n");
    }
    let generation = || {
        let mut client = node.netns().run(vipline_nftables::Client::open).unwrap();
        client.generation().unwrap().0
    };
    let proxy = node.stage.start();
    wait_until("both families", || {
        proxy.output().matches(" synced ").count() == 2
    });
    assert!(
        proxy.output().contains("backend=netlink"),
        "{}",
        proxy.output()
    );
    assert!(proxy.terminate().unwrap().success());
    let before = generation();

    let proxy = node.stage.start_with("--v 2");
    wait_until("both families", || {
        proxy.output().matches("edits=0 ").count() == 2
    });
    assert_eq!(generation(), before, "{}", proxy.output());
    node.stage.write("web.yaml", &web(4));
    wait_until("the report", || {
        proxy.output().matches(" synced ").count() >= 3
    });
    assert_eq!(generation(), before + 1, "{}", proxy.output());
    assert!(proxy.terminate().unwrap().success());
    assert_eq!(node.stage.oneshot()["edits"], 0);
    assert_eq!(node.stage.run("diff").stdout, "");
    assert_eq!(node.stage.run("--cleanup").code, 0);
    assert_eq!(lines(&node.stage.folder.path().join("runs")), 0);
    fs::remove_dir_all(node.programs()).unwrap();
    assert!(!node.shell("iptables-nft-save").contains("KUBE-SVC-"));
}

#[test]
fn a_node_without_programs_is_served_over_netlink() {
    let node = Node::web("auto");
    let hidden = "mount -t tmpfs none /usr/sbin && PATH=/nonexistent exec \"$@\"";
    let shell = ["unshare", "--mount", "sh", "-c", hidden, "sh"];
    let outcome = node.stage.run_through(&shell, "--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(node.rules().contains("10.244.1.3:8080"), "{}", node.rules());
}

#[test]
fn the_first_sync_is_one_commit_for_each_family() {
    let node = Node::web("netlink");
    node.stage.oneshot();
    let mut client = node.netns().run(vipline_nftables::Client::open).unwrap();
    assert_eq!(client.generation().unwrap().0, 3);
}
