//! Invalid input is reported, and nothing changes.

use crate::stage::{Stage, service, slice};

/// Runs every command with invalid manifests. Returns the error, which must be the same
/// for all commands.
fn error_of(files: &[(&str, &str)]) -> String {
    let stage = Stage::with(files);
    let mut reasons = Vec::new();
    for command in ["", "--oneshot", "render", "diff"] {
        let outcome = stage.run(command);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (2, ""),
            "{command}: {outcome:?}"
        );
        let line = outcome.stderr.lines().last().unwrap_or_default().to_owned();
        let (_, reason) = line.split_once("ERROR ").unwrap_or_default();
        reasons.push(reason.replace(&format!("{}/", stage.manifests().display()), ""));
    }
    assert_eq!(stage.ruleset(), "");
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

#[test]
fn invalid_yaml_is_rejected_with_its_position() {
    let broken = service("a", "10.96.0.1") + "---\nkind: [Service\n";
    let outcome = error_of(&[("web.yaml", &broken)]);
    assert!(outcome.starts_with("web.yaml:1"), "{outcome}");
    assert!(outcome.contains(": document 2: "), "{outcome}");
}

#[test]
fn an_invalid_service_ip_is_rejected_with_its_field() {
    let text = service("a", "10.96.0.1") + &service("b", "10.96.0.256");
    let expected = "web.yaml:16:14: document 2: Service default/b: spec.clusterIP: \
                    not an IP address: \"10.96.0.256\"";
    assert_eq!(error_of(&[("web.yaml", &text)]), expected);
}

#[test]
fn invalid_ports_and_protocols_are_rejected_with_their_fields() {
    for (port, expected) in [
        (
            "port: 0",
            "9:11: document 1: Service default/a: spec.ports[0].port: not a port number: 0",
        ),
        (
            "port: http",
            "9:11: document 1: Service default/a: spec.ports[0].port: \
             expected a number from 0 to 65535, found the string \"http\"",
        ),
        (
            "{port: 1, protocol: ICMP}",
            "9:25: document 1: Service default/a: spec.ports[0].protocol: \
             \"ICMP\" is not one of TCP, UDP, SCTP",
        ),
    ] {
        let text = service("a", "10.96.0.1").replace("port: 80", port);
        assert_eq!(error_of(&[("a.yml", &text)]), format!("a.yml:{expected}"));
    }
}

#[test]
fn a_duplicate_object_is_rejected_with_both_positions() {
    let text = service("a", "10.96.0.1");
    let outcome = error_of(&[("1.yaml", &text), ("2.yaml", &text)]);
    let expected = "2.yaml:2:1: document 1: Service default/a: the same object exists at \
                    1.yaml:2:1 (document 1)";
    assert_eq!(outcome, expected);
}

#[test]
fn all_invalid_flags_are_reported_together() {
    let stage = Stage::new();
    let outcome = stage.run("--detect-local-mode x --nodeport-addresses y");
    assert_eq!(outcome.code, 2);
    for field in ["DetectLocalMode: ", "NodePortAddresses[0]: "] {
        let path = format!("KubeProxyConfiguration.{field}");
        assert!(outcome.stderr.contains(&path), "{}", outcome.stderr);
    }
    assert_eq!(stage.run("--no-such-flag").code, 2);
    let mode = stage.run("--proxy-mode= render");
    assert!(mode.code == 2 || mode.stdout.contains("table"), "{mode:?}");
}

#[test]
fn a_missing_path_is_rejected() {
    let outcome = Stage::new().run("--manifests /nonexistent/vipline render");
    assert_eq!(outcome.code, 0, "the last --manifests counts: {outcome:?}");
    let stage = Stage::new();
    std::fs::remove_dir(stage.manifests()).unwrap();
    let outcome = stage.run("render");
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.stderr.contains("No such file or directory"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn help_exits_with_success() {
    let stage = Stage::new();
    for flag in ["--help", "-h", "explain --help", "render --help"] {
        let outcome = stage.run(flag);
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{flag}");
        let has_examples = outcome.stdout.contains("\nExamples:\n");
        assert_eq!(has_examples, flag != "render --help", "{}", outcome.stdout);
        assert!(
            outcome.stdout.contains("kube-proxy"),
            "{flag}: {}",
            outcome.stdout
        );
    }
}

#[test]
fn the_version_has_the_format_of_upstream() {
    let stage = Stage::new();
    let version = format!("v1.36.2+vipline.{}", env!("CARGO_PKG_VERSION"));
    for flag in [
        "--version",
        "-V",
        "--version=true",
        "--version --config /nonexistent",
    ] {
        let outcome = stage.run(flag);
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{flag}");
        assert_eq!(outcome.stdout, format!("Kubernetes {version}\n"), "{flag}");
    }
    let raw = stage.run("--version=raw").stdout;
    assert!(
        raw.starts_with("version.Info{Major:\"1\", Minor:\"36\", "),
        "{raw}"
    );
    assert!(raw.contains(&format!("GitVersion:{version:?}, ")), "{raw}");
    for flag in ["--version=yes", "--version=v1.35.0"] {
        assert_eq!(stage.run(flag).code, 2, "{flag}");
    }
}

#[test]
fn errors_are_json_if_the_log_is_json() {
    let stage = Stage::with(&[("a.json", "{\"apiVersion\": \"v1\"}")]);
    let outcome = stage.run("render --logging-format json");
    assert_eq!(outcome.code, 2);
    let line: serde_json::Value = serde_json::from_str(outcome.stderr.trim()).unwrap();
    assert!(
        line["message"]
            .as_str()
            .unwrap()
            .ends_with("a.json:1:1: document 1: kind: missing")
    );
}

#[test]
fn slices_of_unknown_services_and_other_kinds_are_ignored() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n";
    let stage = Stage::with(&[("a.yaml", &slice("nobody", 1, 3)), ("b.yaml", deployment)]);
    let (without, with) = (Stage::new().run("render"), stage.run("render --v 4"));
    assert_eq!((with.code, with.stdout), (0, without.stdout));
    assert!(
        with.stderr.contains("apps/v1 Deployment"),
        "{}",
        with.stderr
    );
}
