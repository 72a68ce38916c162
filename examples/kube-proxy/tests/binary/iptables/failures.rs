//! Failing iptables programs, and a killed proxy.

use std::thread;
use std::time::Instant;

use super::{Node, VARIANTS, web};
use crate::stage::{service, slice, wait_until};

/// Times of the kills, as fractions of the duration of a first sync.
const KILLS: [f64; 5] = [0.3, 0.5, 0.7, 0.8, 0.9];

#[test]
fn a_failed_sync_is_retried_until_it_succeeds() {
    // The program fails, is killed, is killed after half of its work, or fails after
    // all of its work.
    for fault in [
        "echo no >&2; exit 1",
        "kill -9 $$",
        "head -n 6 | $real \"$@\" 2>/dev/null; kill -9 $$",
        "$real \"$@\"; exit 2",
    ] {
        for variant in VARIANTS {
            let node = Node::web(variant);
            let proxy = node.stage.start_with("--iptables-sync-period 500ms");
            let broken =
                format!("case \"$*\" in *--noflush*) {fault};; *) exec $real \"$@\";; esac\n");
            node.script("iptables-restore", &broken);
            node.stage.write("web.yaml", &web(4));
            wait_until("a failure", || proxy.output().contains("sync failed"));
            node.script("iptables-restore", "exec $real \"$@\"\n");
            wait_until("the endpoint", || node.rules().contains("10.244.1.4:8080"));
            wait_until("the report", || {
                let output = proxy.output();
                let failed = output.rfind("sync failed").unwrap();
                output[failed..].contains(" synced ")
            });
            assert!(proxy.terminate().unwrap().success());
            let outcome = node.stage.run("diff");
            assert_eq!(
                (outcome.code, &*outcome.stdout),
                (0, ""),
                "{variant} {fault}"
            );
        }
    }
}

#[test]
fn a_missing_program_or_capability_is_one_error_line() {
    let node = Node::web("legacy");
    let without = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"];
    let outcome = node.stage.run_through(&without, "--oneshot");
    assert_eq!((outcome.code, &*outcome.stdout), (1, ""), "{outcome:?}");
    assert!(outcome.stderr.contains("CAP_NET_RAW"), "{outcome:?}");
    let none = node.stage.folder.path().display().to_string();
    let hidden = format!("mount -t tmpfs none /usr/sbin && PATH={none} exec \"$@\"");
    let shell = ["unshare", "--mount", "sh", "-c", &hidden, "sh"];
    let outcome = node.stage.run_through(&shell, "--oneshot");
    assert_eq!((outcome.code, &*outcome.stdout), (1, ""), "{outcome:?}");
    assert!(
        outcome.stderr.contains("not found: install iptables"),
        "{outcome:?}"
    );
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
}

#[test]
fn a_restart_after_a_kill_at_any_time_reaches_the_plan() {
    let web = |net| {
        let name = format!("web-{net}");
        service(&name, &format!("10.96.0.{net}")) + &slice(&name, net, 20)
    };
    let manifests: String = (1..=20).map(web).collect();
    for variant in VARIANTS {
        let node = Node::with(variant, &[("cluster.yaml", &manifests)]);
        let begin = Instant::now();
        let proxy = node.stage.start();
        let whole = begin.elapsed();
        wait_until("both families", || {
            proxy.output().matches(" synced ").count() == 2
        });
        assert!(proxy.terminate().unwrap().success());
        let all = node.sorted_rules();
        let mut found = Vec::new();
        for part in KILLS {
            assert_eq!(node.stage.run("--cleanup").code, 0);
            let proxy = node.stage.start_unsynced();
            thread::sleep(whole.mul_f64(part));
            drop(proxy);
            let report = node.stage.oneshot();
            assert_eq!(report["in_sync"], true, "{report}");
            assert_eq!(node.sorted_rules(), all, "{variant}, killed after {part}");
            assert_eq!(node.stage.oneshot()["edits"], 0);
            found.push(report["edits"].as_u64().unwrap());
        }
        println!("{variant}: these edits were missing after a kill: {found:?}");
        assert!(found.iter().any(|&missing| missing > 0), "{found:?}");
    }
}
