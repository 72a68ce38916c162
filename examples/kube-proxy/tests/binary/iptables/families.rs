//! A node on which iptables supports one family only.

use serde_json::Value;

use super::{Node, web};
use crate::stage::{Outcome, Stage, wait_until};

/// Scripts with the output of the legacy programs if the kernel lacks table `nat` of a
/// family.
const WITHOUT_TABLE: [(&str, &str); 2] = [
    (
        "restore",
        "echo \"$0 v1.8.9 (legacy): $0: unable to initialize table 'nat'\" >&2\n\
         echo 'Error occurred at line: 1' >&2\nexit 2",
    ),
    (
        "save",
        "echo \"$0 v1.8.9 (legacy): Cannot initialize: Table does not exist (do you need to \
         insmod?)\" >&2\nexit 1",
    ),
];

/// Returns the manifest of the Node with a primary address of a family.
fn object(family: &str) -> String {
    let address = match family {
        "IPv4" => "192.0.2.7",
        _ => "2001:db8::7",
    };
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: node-1}}\n\
         status: {{addresses: [{{type: InternalIP, address: '{address}'}}]}}\n"
    )
}

/// Returns a stage with the programs of one family, and a command that hides all other
/// iptables programs and sets the cluster CIDR.
fn with_programs_of(program: &str, cluster_cidr: &str) -> (Stage, [String; 6]) {
    let stage = Stage::with(&[("web.yaml", &web(3))]);
    let programs = stage.folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let multi = super::program("xtables-nft-multi");
    for end in ["save", "restore"] {
        let path = programs.join(format!("{program}-{end}"));
        testkit::program::copy(&multi, &path).unwrap();
    }
    let hidden = format!(
        "mount -t tmpfs none /usr/sbin && \
         PATH={}:/usr/bin:/bin exec \"$@\" --cluster-cidr {cluster_cidr}",
        programs.display()
    );
    let stage = stage.in_mode("iptables", std::env::var("PATH").unwrap());
    let stage = stage.with_flags("--iptables-backend=programs");
    let shell = ["unshare", "--mount", "sh", "-c", &hidden, "sh"].map(str::to_owned);
    (stage, shell)
}

/// Asserts that a report covers one family, which is in sync, and that a warning names
/// the other family.
#[track_caller]
fn assert_serves(outcome: &Outcome, family: &str, other: &str) {
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let families = report["families"].as_array().unwrap();
    let names: Vec<_> = families.iter().map(|it| it["family"].as_str()).collect();
    assert_eq!(names, [Some(family)], "{report}");
    assert_eq!(report["in_sync"], true, "{report}");
    let mut warnings = outcome
        .stderr
        .lines()
        .filter(|it| it.contains("not served"));
    let warning = warnings.next().unwrap_or_default();
    assert!(warning.contains(&format!("family={other}")), "{outcome:?}");
}

#[test]
fn one_family_is_served_without_the_programs_of_the_other() {
    for (program, cluster_cidr, family, other) in [
        ("iptables", "10.244.0.0/16", "IPv4", "IPv6"),
        ("ip6tables", "fd00:244::/56", "IPv6", "IPv4"),
    ] {
        let (stage, shell) = with_programs_of(program, cluster_cidr);
        let shell: Vec<_> = shell.iter().map(String::as_str).collect();
        stage.write("node.yaml", &object(family));
        assert_serves(
            &stage.run_through(&shell, "--oneshot -o json"),
            family,
            other,
        );
        stage.write("node.yaml", &object(other));
        let outcome = stage.run_through(&shell, "--oneshot");
        assert_eq!((outcome.code, &*outcome.stdout), (1, ""), "{outcome:?}");
        let words = format!("the primary IP family is {other}");
        assert!(outcome.stderr.contains(&words), "{outcome:?}");
    }
}

#[test]
fn ipv4_is_served_without_table_nat_of_ipv6() {
    let node = Node::with(
        "legacy",
        &[("web.yaml", &web(3)), ("node.yaml", &object("IPv4"))],
    );
    for (end, text) in WITHOUT_TABLE {
        let script = format!("case \"$*\" in --version) exec $real \"$@\";; esac\n{text}\n");
        node.script(&format!("ip6tables-{end}"), &script);
    }
    assert_serves(&node.stage.run("--oneshot -o json"), "IPv4", "IPv6");
    let proxy = node.stage.start();
    node.stage.write("web.yaml", &web(5));
    let saved = || node.shell("PATH=$PATH:/usr/sbin; iptables-legacy-save -t nat");
    wait_until("the endpoint", || saved().contains("10.244.1.5:8080"));
    assert!(
        !proxy.output().contains("family=IPv6 edits"),
        "{}",
        proxy.output()
    );
    assert!(proxy.terminate().unwrap().success());
}
