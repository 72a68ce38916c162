//! Matches that the programs lack, and base rules that the kernel refuses.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{Node, VARIANTS};
use crate::stage::wait_until;

/// Folder of the libraries of the programs.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu/xtables";

/// Creates a folder with all libraries except one, and returns the command prefix that makes the
/// programs use it.
fn without_library(node: &Node, name: &str) -> [String; 2] {
    let folder = node.stage.folder.path().join("libraries");
    fs::create_dir(&folder).unwrap();
    for file in fs::read_dir(LIBRARIES).unwrap() {
        let file = file.unwrap().path();
        let file_name = file.file_name().unwrap();
        if file_name != name {
            symlink(&file, folder.join(file_name)).unwrap();
        }
    }
    assert!(Path::new(LIBRARIES).join(name).exists(), "{name}");
    [
        "env".to_owned(),
        format!("XTABLES_LIBDIR={}", folder.display()),
    ]
}

#[test]
fn services_are_served_without_the_library_of_match_nfacct() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        let prefix = without_library(&node, "libxt_nfacct.so");
        let prefix: Vec<_> = prefix.iter().map(String::as_str).collect();
        let outcome = node.stage.run_through(&prefix, "--oneshot");
        assert_eq!(outcome.code, 0, "{variant}: {outcome:?}");
        let rules = node.rules();
        assert!(rules.contains("10.244.1.3:8080"), "{variant}: {rules}");
        let drop = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP";
        assert!(rules.contains(drop), "{variant}: {rules}");
        let outcome = node.stage.run_through(&prefix, "diff");
        assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{variant}");
    }
}

#[test]
fn a_match_without_library_that_all_services_need_ends_the_program() {
    for variant in VARIANTS {
        let node = Node::web(variant);
        let prefix = without_library(&node, "libxt_statistic.so");
        let prefix: Vec<_> = prefix.iter().map(String::as_str).collect();
        for line in ["", "--oneshot", "--init-only"] {
            let outcome = node.stage.run_through(&prefix, line);
            assert_eq!(outcome.code, 1, "{variant} {line}: {outcome:?}");
            let errors = outcome.stderr.lines().filter(|line| line.contains("ERROR"));
            let errors: Vec<_> = errors.collect();
            assert_eq!(errors.len(), 1, "{variant} {line}: {outcome:?}");
            assert!(
                errors[0].contains("Couldn't load match `statistic'"),
                "{outcome:?}"
            );
        }
    }
}

/// A restore program that refuses rules in KUBE-FORWARD while a file exists, with the message of
/// the nft variant.
const REFUSE: &str = "cat >$folder/document.$$
line=$(grep -n '^-A KUBE-FORWARD -m conntrack' $folder/document.$$ | head -n 1 | cut -d: -f1)
case \"$*\" in *--test*) line=;; esac
if [ -e $folder/refuses ] && [ -n \"$line\" ]; then
  echo \"iptables-restore v1.8.9 (nf_tables): \" >&2
  echo \"line $line: RULE_APPEND failed (No such file or directory): rule in chain KUBE-FORWARD\" >&2
  exit 4
fi
exec $real \"$@\" <$folder/document.$$
";

#[test]
fn a_refused_rule_of_all_services_does_not_take_the_services_with_it() {
    let node = Node::web("nft");
    fs::write(node.stage.folder.path().join("refuses"), "").unwrap();
    for name in ["iptables-restore", "ip6tables-restore"] {
        node.script(name, REFUSE);
    }
    let proxy = node.stage.start();
    wait_until("the Service", || node.rules().contains("10.244.1.3:8080"));
    let warning = "for all Services: -t filter -N KUBE-FORWARD: ";
    wait_until("the warning", || proxy.output().contains(warning));
    let rules = node.rules();
    assert!(!rules.contains("KUBE-FORWARD"), "{rules}");
    for rule in [
        "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES",
        "-A KUBE-POSTROUTING -m mark",
        "-A KUBE-FIREWALL ! -s 127.0.0.0/8",
    ] {
        assert!(rules.contains(rule), "{rule}: {rules}");
    }
    assert!(
        !proxy.output().contains("sync failed"),
        "{}",
        proxy.output()
    );

    // The rule is sent again, and the jump to its chain.
    fs::remove_file(node.stage.folder.path().join("refuses")).unwrap();
    wait_until("the rule", || {
        let rules = node.rules();
        rules.contains("-A KUBE-FORWARD -m conntrack") && rules.contains("-j KUBE-FORWARD")
    });
    assert!(proxy.terminate().unwrap().success());
    assert_eq!(node.stage.run("diff").code, 0);
}
