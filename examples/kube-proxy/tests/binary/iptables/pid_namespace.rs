//! A proxy in a PID namespace. The process IDs that the kernel reports do not match its
//! own.

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use testkit::scoped::Process;

use super::{Node, VARIANTS, lines, web};
use crate::stage::{Stage, wait_until};

/// Flags with a line for each sync, and a period of polls and resyncs that no test exceeds.
const FLAGS: &str = "--v 2 --iptables-sync-period 3600s";

/// The process IDs of the first programs in a PID namespace.
const PORT_IDS: RangeInclusive<u32> = 2..=500;

/// Opens a netfilter socket with a port ID.
fn with_port_id(port_id: u32) -> OwnedFd {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(NETFILTER)).unwrap();
    bind(&socket, &SocketAddrNetlink::new(port_id, 0)).unwrap();
    socket
}

/// Starts the binary in a PID namespace, and waits until it has synced both families.
fn start(stage: &Stage) -> Process {
    let process = stage.start_in_pid_namespace(FLAGS);
    wait_until("the first sync", || {
        process.output().matches(" synced ").count() == 2
    });
    process
}

/// Makes changes and waits until each is programmed.
fn change(stage: &Stage, proxy: &Process, mut is_programmed: impl FnMut(u8) -> bool) {
    for count in [4, 7, 2, 5] {
        let before = proxy.output().matches(" synced ").count();
        stage.write("web.yaml", &web(count));
        wait_until("the change", || is_programmed(count));
        wait_until("the report", || {
            proxy.output().matches(" synced ").count() > before
        });
    }
}

/// Returns the number of dumps after the first sync.
fn dumps(proxy: &Process) -> usize {
    proxy.output().matches("dumped=true").count() - 2
}

/// Returns a node whose save programs count their runs.
fn counting(variant: &'static str) -> Node {
    let node = Node::web(variant);
    for family in ["iptables", "ip6tables"] {
        let script = "echo >> $folder/saves\nexec $real \"$@\"\n";
        node.script(&format!("{family}-save"), script);
    }
    node
}

fn saves(node: &Node) -> usize {
    lines(&node.stage.folder.path().join("saves"))
}

/// Returns whether the rules have exactly `count` endpoints. Does not run the save
/// programs of the proxy.
fn has_endpoints(node: &Node, count: u8) -> bool {
    let variant = node.variant;
    let rules = node.shell(&format!("PATH=$PATH:/usr/sbin; iptables-{variant}-save"));
    rules.matches(" --to-destination 10.244.1.").count() == usize::from(count)
}

#[test]
fn own_commits_cause_no_save_in_a_pid_namespace() {
    for variant in VARIANTS {
        let node = counting(variant);
        let proxy = start(&node.stage);
        // The legacy variant checks its canary once, after the first sync.
        let checks = if variant == "legacy" { 2 } else { 0 };
        wait_until("the canary", || saves(&node) >= 6 + checks);
        let before = saves(&node);
        change(&node.stage, &proxy, |count| has_endpoints(&node, count));
        assert_eq!(saves(&node), before, "{variant}: {}", proxy.output());
        assert_eq!(dumps(&proxy), 0, "{variant}: {}", proxy.output());
        assert!(!proxy.output().contains("repaired"), "{}", proxy.output());
    }
}

#[test]
fn own_commits_cause_no_save_if_other_sockets_have_the_port_ids() {
    let node = counting("nft");
    let sockets: Vec<_> = node.netns().run(|| PORT_IDS.map(with_port_id).collect());
    let proxy = start(&node.stage);
    wait_until("the first dumps", || saves(&node) == 6);
    change(&node.stage, &proxy, |count| has_endpoints(&node, count));
    assert_eq!(saves(&node), 6, "{}", proxy.output());
    assert!(!proxy.output().contains("repaired"), "{}", proxy.output());
    drop(sockets);
}

/// Asserts that the proxy repairs a chain that another program flushes, once, while a
/// restore program of the proxy runs.
///
/// `script` calls the shell function `foreign` and runs the real program.
fn assert_repaired(script: &str) {
    let node = Node::web("nft");
    let proxy = start(&node.stage);
    let foreign = "PATH=$PATH:/usr/sbin iptables-nft -t nat -F KUBE-POSTROUTING";
    let once = format!(
        "foreign() {{ mkdir $folder/done 2>/dev/null && {foreign}; }}\n\
         case \"$*\" in *--noflush*) ;; *) exec $real \"$@\";; esac\n{script}"
    );
    node.script("iptables-restore", &once);
    change(&node.stage, &proxy, |count| has_endpoints(&node, count));
    wait_until("the warning", || {
        proxy
            .output()
            .contains("repaired changes by another program")
    });
    let rules = node.rules();
    assert!(rules.contains("-A KUBE-POSTROUTING "), "{rules}");
    assert_eq!(node.stage.run("diff").code, 0);
}

#[test]
fn a_foreign_change_during_an_own_commit_is_repaired_in_a_pid_namespace() {
    assert_repaired("foreign\nexec $real \"$@\"");
    assert_repaired("$real \"$@\"\ncode=$?\nforeign\nexit $code");
}

#[test]
fn a_foreign_change_between_own_commits_is_repaired_in_a_pid_namespace() {
    let node = Node::web("nft");
    let proxy = start(&node.stage);
    let rules = node.sorted_rules();
    node.shell("iptables-nft -t nat -F KUBE-POSTROUTING");
    wait_until("the warning", || {
        proxy
            .output()
            .contains("repaired changes by another program")
    });
    assert_eq!(node.sorted_rules(), rules);
}
