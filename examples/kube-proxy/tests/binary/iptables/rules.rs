//! Rules that are added, kept and removed.

use std::fs;

use super::{BACKENDS, Node, VARIANTS, lines, web};
use crate::stage::{service, slice, wait_until};

/// The match that counts packets with conntrack state INVALID.
const COUNTED: &str = " -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts";

#[test]
fn rules_follow_changes_and_stay_after_the_exit() {
    for variant in BACKENDS {
        let node = Node::web(variant);
        let proxy = node.stage.start();
        assert!(!node.rules().contains("10.244.1.4:8080"), "{variant}");
        node.stage.write("web.yaml", &web(4));
        wait_until("the endpoint", || node.rules().contains("10.244.1.4:8080"));
        fs::remove_file(node.stage.manifests().join("web.yaml")).unwrap();
        wait_until("no Service", || !node.rules().contains("10.96.0.10"));
        assert!(!node.rules().contains("KUBE-SVC-"), "{}", node.rules());
        node.stage.write("web.yaml", &web(2));
        wait_until("the Service", || node.rules().contains("10.244.1.2:8080"));
        let rules = node.rules();
        assert!(proxy.terminate().unwrap().success());
        assert_eq!(node.rules(), rules, "{variant}");
    }
}

#[test]
fn a_restart_writes_nothing_and_a_change_is_written_once() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        // A start also runs the programs with `--test`, which writes nothing.
        let script = "case \"$*\" in *--test*) ;; *--noflush*) echo >> $folder/restores;; esac\n\
                      exec $real \"$@\"\n";
        for family in ["iptables", "ip6tables"] {
            node.script(&format!("{family}-restore"), script);
        }
        let restores = || lines(&node.stage.folder.path().join("restores"));
        let proxy = node.stage.start();
        wait_until("both families", || restores() == 2);
        assert!(proxy.terminate().unwrap().success());
        let rules = node.shell("iptables-save -c; ip6tables-save -c | grep -v ^#");

        let proxy = node.stage.start_with("--v 2");
        wait_until("both families", || {
            proxy.output().matches("edits=0 ").count() == 2
        });
        assert_eq!(restores(), 2, "{variant}: {}", proxy.output());
        let again = node.shell("iptables-save -c; ip6tables-save -c | grep -v ^#");
        let without_time = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(without_time(&again), without_time(&rules));

        node.stage.write("web.yaml", &web(4));
        wait_until("the endpoint", || node.rules().contains("10.244.1.4:8080"));
        wait_until("the report", || {
            proxy.output().matches(" synced ").count() >= 3
        });
        assert_eq!(restores(), 3, "{variant}: {}", proxy.output());
        assert!(proxy.terminate().unwrap().success());
        assert_eq!(node.stage.oneshot()["edits"], 0);
        assert_eq!(restores(), 3);
    }
}

#[test]
fn the_difference_is_empty_after_it_is_applied() {
    for variant in BACKENDS {
        let node = Node::web(variant);
        for round in 0..2 {
            let outcome = node.stage.run("diff");
            assert_eq!((outcome.code, &*outcome.stderr), (1, ""), "{variant}");
            let mut documents = 0;
            for document in outcome.stdout.split("# ").skip(1) {
                let (program, text) = document.split_once('\n').unwrap();
                node.shell(&format!("{program} <<'END'\n{text}END"));
                documents += 1;
            }
            assert_eq!(documents, 2 - round, "{}", outcome.stdout);
            let nothing = node.stage.run("diff");
            assert_eq!((nothing.code, &*nothing.stdout), (0, ""), "{nothing:?}");
            assert_eq!(node.stage.oneshot()["edits"], 0, "{variant}");
            node.stage.write("web.yaml", &web(4));
        }
        assert!(node.rules().contains("10.244.1.4:8080"), "{}", node.rules());
    }
}

#[test]
fn rendered_rules_match_the_programmed_rules() {
    for variant in BACKENDS {
        let (rendered, programmed) = (Node::web(variant), Node::web(variant));
        let outcome = rendered.stage.run("render");
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{outcome:?}");
        assert_eq!(rendered.stage.run("render").stdout, outcome.stdout);
        // Some kernels lack the nfacct match, and the others need existing counters.
        let counts = |text: &str| text.replace(COUNTED, "");
        for document in counts(&outcome.stdout).split("# ").skip(1) {
            let (program, text) = document.split_once('\n').unwrap();
            rendered.shell(&format!("{program} <<'END'\n{text}END"));
        }
        programmed.stage.oneshot();
        let programmed = programmed.sorted_rules();
        let programmed: Vec<_> = programmed.iter().map(|line| counts(line)).collect();
        assert_eq!(rendered.sorted_rules(), programmed, "{variant}");
    }
}

#[test]
fn foreign_changes_are_repaired() {
    for variant in BACKENDS {
        let node = Node::web(variant);
        let proxy = node.stage.start_with("--iptables-sync-period 1s");
        let all = node.sorted_rules();
        let flush = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-PROXY-CANARY - [0:0]\n\
                     -X KUBE-PROXY-CANARY\nCOMMIT\n*mangle\n:KUBE-PROXY-CANARY - [0:0]\n\
                     -X KUBE-PROXY-CANARY\nCOMMIT\n";
        node.shell(&format!("iptables-restore --noflush <<'END'\n{flush}END"));
        let message = "repaired changes by another program: ";
        wait_until(message, || proxy.output().contains(message));
        wait_until("all rules", || node.sorted_rules() == all);
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn cleanup_keeps_foreign_rules() {
    for variant in BACKENDS {
        let node = Node::web(variant);
        let mine = "*nat\n:MINE - [0:0]\n-A OUTPUT -d 192.0.2.1/32 -j MINE\nCOMMIT\n\
                    *filter\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n";
        node.shell(&format!("iptables-restore --noflush <<'END'\n{mine}END"));
        let more = service("more", "10.96.0.11") + &slice("more", 2, 2);
        node.stage.write("more.yaml", &more);
        node.stage.oneshot();
        let outcome = node.stage.run("--cleanup");
        assert_eq!(outcome.code, 0, "{variant}: {outcome:?}");
        let rules = node.rules();
        for kept in [
            ":MINE -\n",
            "-A OUTPUT -d 192.0.2.1/32 -j MINE\n",
            "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n",
            ":KUBE-FIREWALL -\n",
        ] {
            assert!(rules.contains(kept), "{variant} {kept}: {rules}");
        }
        let left = rules.lines().filter(|line| line.contains("KUBE-"));
        let left: Vec<_> = left
            .filter(|line| !line.contains("KUBE-FIREWALL"))
            .collect();
        assert_eq!(left, [""; 0], "{variant}");
    }
}
