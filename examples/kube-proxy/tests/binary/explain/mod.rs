//! `explain`: plans without a kernel, the rules of a kernel, formats and exit codes.

mod edges;

mod foreign;

mod golden;

mod iptables;

pub(crate) mod kernel;

mod page;

mod reasons;

mod situations;

use serde_json::Value;
use testkit::scoped::Directory;

use crate::stage::{BINARY, Outcome, service, slice};

/// Modes whose plans are evaluated.
const MODES: [&str; 3] = ["nftables", "iptables", "ipvs"];

/// Runs `explain` without privileges on a manifest, with flags for a node and a mode.
fn explain(mode: &str, manifests: &str, line: &str) -> Outcome {
    let folder = Directory::new().unwrap();
    folder.write("objects.yaml", manifests).unwrap();
    let path = folder.path().join("objects.yaml");
    let flags = "--hostname-override node-1 --cluster-cidr 10.244.0.0/16,fd00:244::/32";
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"])
        .args(["timeout", "300", BINARY, "explain"])
        .args(line.split_whitespace())
        .args(["--proxy-mode", mode, "--manifests"])
        .arg(path)
        .args(flags.split_whitespace());
    Outcome::from(command.output().unwrap())
}

/// Returns the JSON document of an explanation. Checks that the exit code fits.
fn json(outcome: &Outcome) -> Value {
    let answer: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let expected = match answer["outcome"].as_str() {
        Some("reachable") => 0,
        Some("unknown") => 2,
        _ => 1,
    };
    assert_eq!(outcome.code, expected, "{outcome:?}");
    answer
}

/// A cluster with one Service of each kind.
const CLUSTER: &str = include_str!("cluster.yaml");

#[test]
fn text_has_color_on_a_terminal_only_and_ends_with_the_answer() {
    let line = "tcp 10.96.0.10:80 --from 10.244.1.5";
    let plain = explain("nftables", CLUSTER, line);
    assert_eq!(plain.code, 0, "{plain:?}");
    assert!(!plain.stdout.contains('\x1b'), "{}", plain.stdout);
    let last = plain.stdout.lines().last().unwrap();
    assert_eq!(
        last,
        "Works for the first packet: 10.96.0.10:80 is the cluster IP of shop/web:http, and leads to one of 2 \
         endpoints, each with probability 1/2, source address kept."
    );
    let folder = Directory::new().unwrap();
    folder.write("objects.yaml", CLUSTER).unwrap();
    let path = folder.path().join("objects.yaml");
    let command = format!(
        "{BINARY} explain {line} --plan-only --proxy-mode nftables --manifests {}",
        path.display()
    );
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &command, "/dev/null"]);
    let colored = Outcome::from(script.output().unwrap());
    assert!(colored.stdout.contains("\x1b[1m"), "{colored:?}");
}

#[test]
fn probabilities_of_many_random_rules_have_few_digits() {
    let objects = service("web", "10.96.0.10") + &slice("web", 1, 200);
    let line = "tcp 10.96.0.10:80 --from 10.244.1.5";
    let text = explain("iptables", &objects, line).stdout;
    let longest = text.lines().map(str::len).max();
    assert!(longest < Some(300), "{longest:?}");
    let last = text.lines().last().unwrap();
    let expected = "one of 200 endpoints, each with probability 0.005, ";
    assert!(last.contains(expected), "{last}");
    let answer = json(&explain("iptables", &objects, &format!("{line} -o json")));
    let endpoints = answer["endpoints"].as_array().unwrap();
    let sum: f64 = endpoints
        .iter()
        .map(|it| it["probability"].as_f64().unwrap())
        .sum();
    assert!(endpoints.len() == 200 && (sum - 1.0).abs() < 1e-9, "{sum}");
    let is_short = |it: &Value| it["fraction"].as_str().is_none_or(|text| text.len() < 15);
    assert!(endpoints.iter().all(is_short), "{answer}");
}

#[test]
fn the_picture_has_every_path_and_balanced_braces() {
    let outcome = explain("nftables", CLUSTER, "tcp 10.96.0.10:80 -o dot");
    let dot = &outcome.stdout;
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(dot.starts_with("digraph explain {"), "{dot}");
    for endpoint in ["10.244.1.11:8080", "10.244.2.12:8080"] {
        assert!(dot.contains(&format!("to endpoint {endpoint}")), "{dot}");
    }
    // Braces within quotes belong to elements.
    let outside: String = dot.split('"').step_by(2).collect();
    let count = |brace| outside.matches(brace).count();
    assert_eq!(count('{'), count('}'), "{dot}");
    let is_edge = |line: &&str| line.split('[').next().is_some_and(|it| it.contains("->"));
    let nodes: Vec<_> = dot.lines().filter(|line| !is_edge(line)).collect();
    let edges = dot.lines().filter(is_edge);
    for edge in edges {
        for end in edge.split("[label=").next().unwrap().split("->") {
            let node = format!("{} [", end.trim());
            assert!(
                nodes.iter().any(|it| it.trim_start().starts_with(&node)),
                "{edge}"
            );
        }
    }
}

#[test]
fn invalid_arguments_and_objects_are_errors_with_exit_code_2() {
    for (line, expected) in [
        ("tcp 10.96.0.10", "expected ADDRESS:PORT"),
        ("service web", "expected NAMESPACE/NAME"),
        (
            "service shop/unknown",
            "Service shop/unknown does not exist",
        ),
        ("tcp 10.96.0.10:80 --from fd00::1", "different IP families"),
        (
            "tcp 10.96.0.10:80 --from 10.0.0.1 --from-node",
            "cannot be used with",
        ),
        ("icmp 10.96.0.10:80", "invalid value"),
    ] {
        let outcome = explain("nftables", CLUSTER, line);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (2, ""),
            "{line}: {outcome:?}"
        );
        assert!(outcome.stderr.contains(expected), "{line}: {outcome:?}");
    }
    let outcome = explain("nftables", "kind: [", "tcp 10.96.0.10:80");
    assert_eq!(outcome.code, 2, "{outcome:?}");
}
