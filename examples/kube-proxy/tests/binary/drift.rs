//! Changes by other processes to the rules while the proxy runs.

use std::time::{Duration, Instant};

use std::thread;

use testkit::commits::CommitMonitor;
use testkit::scoped::Process;

use crate::health::metric_in;
use crate::iptables::Node;
use crate::stage::{BINARY, Stage, service, slice, wait_until};

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
    for (words, changes) in [
        ("delete table ip kube-proxy", None),
        (
            "flush chain ip kube-proxy nat-prerouting",
            Some("2 changes"),
        ),
        (
            "delete element ip kube-proxy active-cluster-ips { 10.96.0.10 }",
            Some("1 change"),
        ),
        ("flush ruleset", None),
    ] {
        // A fourth repair of an object would wait.
        let stage = stage();
        let proxy = stage.start();
        let list =
            || ["ip", "ip6"].map(|family| stage.nft(&["list", "table", family, "kube-proxy"]));
        let rules = list().map(|outcome| outcome.stdout);
        let commits = CommitMonitor::open(&stage.netns).unwrap();
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
        let count = changes.map(|changes| format!("{changes} by nft"));
        let message =
            "repaired changes by another program: ".to_owned() + &count.unwrap_or_default();
        wait_until(&message, || proxy.output().contains(&message));
        assert!(proxy.terminate().unwrap().success());
    }
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

/// Lets another proxy with another `--cluster-cidr` program the same namespace, until both
/// notice that they undo each other's repairs. Then the other one stops.
fn two_proxies_become_quiet(stage: &Stage) {
    let proxy = stage.start();
    let mut arguments = stage.arguments("");
    for argument in &mut arguments {
        if argument == "10.244.0.0/16" {
            "10.245.0.0/16".clone_into(argument);
        }
    }
    let other = Process::start(&stage.netns, stage.command(BINARY).args(arguments)).unwrap();
    let both = [&proxy, &other];
    let undoes = |pid: u32| format!("kube-proxy ({pid}) undoes each repair of ");
    wait_until("the conflict", || {
        proxy.output().contains(&undoes(other.pid()))
            && other.output().contains(&undoes(proxy.pid()))
    });
    let name = "vipline_repair_conflicts{ip_family=\"IPv4\"}";
    wait_until(name, || {
        metric_in(&stage.netns, name).is_some_and(|count| count > 0.0)
    });
    thread::sleep(Duration::from_secs(3));
    for proxy in both {
        let output = proxy.output();
        // Three at once and then after 1, 2 and 4 s, and before that the other one's start.
        let repairs = output
            .matches("repaired changes by another program")
            .count();
        assert!((3..=12).contains(&repairs), "{repairs}: {output}");
        assert_eq!(
            output.matches(" undoes each repair of ").count(),
            1,
            "{output}"
        );
    }
    assert!(other.terminate().unwrap().success());
    let end = "repairs are immediate again";
    wait_until(end, || proxy.output().contains(end));
    assert_eq!(metric_in(&stage.netns, name), Some(0.0));
    let difference = stage.run("diff");
    assert_eq!(difference.code, 0, "{difference:?}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn two_proxies_that_undo_each_others_repairs_become_quiet() {
    two_proxies_become_quiet(&stage());
}

#[test]
fn two_proxies_in_mode_iptables_become_quiet() {
    let web = service("web", "10.96.0.10") + &slice("web", 1, 3);
    let node = Node::with("netlink", &[("web.yaml", &web)]);
    two_proxies_become_quiet(node.stage());
}

#[test]
fn other_changes_are_repaired_at_once_during_a_conflict() {
    let stage = stage();
    let proxy = stage.start();
    let flush = |chain: &str| {
        let outcome = stage.nft(&["flush", "chain", "ip", "kube-proxy", chain]);
        assert_eq!(outcome.code, 0, "{outcome:?}");
    };
    let rules = || stage.nft(&["list", "table", "ip", "kube-proxy"]).stdout;
    let before = rules();
    for _ in 0..3 {
        flush("nat-prerouting");
        wait_until("the repair", || rules() == before);
    }
    flush("nat-prerouting");
    let conflict = "undoes each repair of ";
    wait_until(conflict, || proxy.output().contains(conflict));
    assert!(rules() != before, "the chain waits");
    let begin = Instant::now();
    flush("nat-output");
    let count = || rules().matches("hook output priority").count();
    let expected = before.matches("hook output priority").count();
    assert_eq!(count(), expected);
    let output_chain = |rules: &str| {
        let (_, chain) = rules.split_once("chain nat-output {").unwrap();
        chain.split_once('}').unwrap().0.to_owned()
    };
    wait_until("the repair of the other chain", || {
        output_chain(&rules()) == output_chain(&before)
    });
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    wait_until("the repair of the first chain", || rules() == before);
    assert!(proxy.terminate().unwrap().success());
}
