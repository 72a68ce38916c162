//! Changes by other processes to the rules while the proxy runs.

use std::time::{Duration, Instant};

use testkit::commits::CommitMonitor;

use crate::stage::{Stage, service, slice, wait_until};

/// Maximum repair time on an idle machine.
const MAX_REPAIR_TIME: Duration = Duration::from_millis(100);

/// Time without a commit after which the repair counts as complete.
const QUIET_PERIOD: Duration = Duration::from_millis(200);

fn stage() -> Stage {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 3);
    Stage::with(&[("web.yaml", &web)])
}

#[test]
fn foreign_changes_are_repaired_within_100_milliseconds() {
    let stage = stage();
    let proxy = stage.start();
    let list = || ["ip", "ip6"].map(|family| stage.nft(&["list", "table", family, "kube-proxy"]));
    let rules = list().map(|outcome| outcome.stdout);
    let commits = CommitMonitor::open(&stage.netns).unwrap();
    for (words, changes) in [
        ("delete table ip kube-proxy", None),
        ("flush chain ip kube-proxy nat-prerouting", Some(2)),
        (
            "delete element ip kube-proxy active-cluster-ips { 10.96.0.10 }",
            Some(1),
        ),
        ("flush ruleset", None),
    ] {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let begin = Instant::now();
            let outcome = stage.nft(&[words]);
            assert_eq!(outcome.code, 0, "{outcome:?}");
            let last = commits
                .last_commit(begin + 100 * MAX_REPAIR_TIME, QUIET_PERIOD)
                .unwrap();
            best = best.min(last.expect("nft committed") - begin);
            let lists = list();
            assert!(lists.map(|outcome| outcome.stdout) == rules, "{words}");
        }
        println!("repaired {best:?} after nft was started: {words}");
        assert!(best < MAX_REPAIR_TIME, "{words}: {best:?}");
        let count = changes.map(|changes| format!("{changes} changes by nft"));
        let message =
            "repaired changes by another program: ".to_owned() + &count.unwrap_or_default();
        wait_until(&message, || proxy.output().contains(&message));
    }
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn changes_to_other_tables_are_not_logged() {
    let stage = stage();
    let proxy = stage.start();
    for (line, count) in [(" synced ", 2), (" server started ", 2)] {
        wait_until(line, || proxy.output().matches(line).count() == count);
    }
    let before = proxy.output();
    assert_eq!(stage.nft(&["add table ip other"]).code, 0);
    assert_eq!(stage.nft(&["delete table ip other"]).code, 0);
    // The kernel reports this change last.
    let outcome = stage.nft(&["flush chain ip kube-proxy nat-prerouting"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let message = "repaired changes by another program: 2 changes by nft";
    wait_until(message, || proxy.output().contains(message));
    let output = proxy.output();
    let since = output.strip_prefix(&before).unwrap();
    assert!(since.lines().next().unwrap().contains(message), "{since}");
    assert_eq!(since.matches("another program").count(), 1, "{since}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn own_commits_cause_no_dump_in_a_pid_namespace() {
    let stage = stage();
    let proxy = stage.start_in_pid_namespace("--v 2");
    let lines = || proxy.output().matches(" synced ").count();
    wait_until("both families", || lines() == 2);
    for count in [4, 7, 2] {
        let before = lines();
        let web = service("web", "10.96.0.10") + &slice("web", 1, count);
        stage.write("web.yaml", &web);
        wait_until("the change", || lines() > before);
    }
    let output = proxy.output();
    assert_eq!(output.matches("dumped=true").count(), 2, "{output}");
    assert!(!output.contains("repaired"), "{output}");
    assert_eq!(stage.nft(&["flush chain ip kube-proxy services"]).code, 0);
    let message = "repaired changes by another program: ";
    wait_until(message, || proxy.output().contains(message));
}
