//! Bad input: named, and nothing is changed.

use crate::stage::{Stage, service, slice};

/// Runs every command on a manifest that is wrong and returns what is said of it.
fn refused(files: &[(&str, &str)]) -> String {
    let stage = Stage::with(files);
    let mut reasons = Vec::new();
    for command in ["", "--oneshot", "render", "diff"] {
        let said = stage.say(command);
        assert_eq!((said.code, &*said.stdout), (2, ""), "{command}: {said:?}");
        let line = said.stderr.lines().last().unwrap_or_default().to_owned();
        let (_, reason) = line.split_once("ERROR ").unwrap_or_default();
        reasons.push(reason.replace(&format!("{}/", stage.manifests().display()), ""));
    }
    assert_eq!(stage.ruleset(), "");
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

#[test]
fn a_manifest_that_is_no_yaml_is_refused_with_its_place() {
    let broken = service("a", "10.96.0.1") + "---\nkind: [Service\n";
    let said = refused(&[("web.yaml", &broken)]);
    assert!(said.starts_with("web.yaml:1"), "{said}");
    assert!(said.contains(": document 2: "), "{said}");
}

#[test]
fn a_service_with_a_bad_ip_is_refused_with_its_field() {
    let text = service("a", "10.96.0.1") + &service("b", "10.96.0.256");
    let expected = "web.yaml:16:14: document 2: Service default/b: spec.clusterIP: \
                    not an IP address: \"10.96.0.256\"";
    assert_eq!(refused(&[("web.yaml", &text)]), expected);
}

#[test]
fn bad_ports_and_protocols_are_refused_with_their_fields() {
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
        assert_eq!(refused(&[("a.yml", &text)]), format!("a.yml:{expected}"));
    }
}

#[test]
fn the_same_object_twice_is_refused_with_both_places() {
    let text = service("a", "10.96.0.1");
    let said = refused(&[("1.yaml", &text), ("2.yaml", &text)]);
    let expected = "2.yaml:2:1: document 1: Service default/a: the same object exists at \
                    1.yaml:2:1 (document 1)";
    assert_eq!(said, expected);
}

#[test]
fn flags_that_are_wrong_are_refused_together() {
    let stage = Stage::new();
    let said = stage.say("--detect-local-mode x --nodeport-addresses y");
    assert_eq!(said.code, 2);
    for field in ["DetectLocalMode: ", "NodePortAddresses[0]: "] {
        let path = format!("KubeProxyConfiguration.{field}");
        assert!(said.stderr.contains(&path), "{}", said.stderr);
    }
    assert_eq!(stage.say("--no-such-flag").code, 2);
    let mode = stage.say("--proxy-mode= render");
    assert!(mode.code == 2 || mode.stdout.contains("table"), "{mode:?}");
}

#[test]
fn a_path_that_is_not_there_is_refused() {
    let said = Stage::new().say("--manifests /nonexistent/vipline render");
    assert_eq!(said.code, 0, "the last --manifests counts: {said:?}");
    let stage = Stage::new();
    std::fs::remove_dir(stage.manifests()).unwrap();
    let said = stage.say("render");
    assert_eq!(said.code, 2);
    assert!(
        said.stderr.contains("No such file or directory"),
        "{}",
        said.stderr
    );
}

#[test]
fn help_is_no_error() {
    let stage = Stage::new();
    for flag in ["--help", "-h", "render --help"] {
        let said = stage.say(flag);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{flag}");
        assert!(
            said.stdout.contains("kube-proxy"),
            "{flag}: {}",
            said.stdout
        );
    }
}

#[test]
fn the_version_is_printed_as_upstream_prints_it() {
    let stage = Stage::new();
    let version = format!("v1.36.2+vipline.{}", env!("CARGO_PKG_VERSION"));
    for flag in [
        "--version",
        "-V",
        "--version=true",
        "--version --config /nonexistent",
    ] {
        let said = stage.say(flag);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{flag}");
        assert_eq!(said.stdout, format!("Kubernetes {version}\n"), "{flag}");
    }
    let raw = stage.say("--version=raw").stdout;
    assert!(
        raw.starts_with("version.Info{Major:\"1\", Minor:\"36\", "),
        "{raw}"
    );
    assert!(raw.contains(&format!("GitVersion:{version:?}, ")), "{raw}");
    for flag in ["--version=yes", "--version=v1.35.0"] {
        assert_eq!(stage.say(flag).code, 2, "{flag}");
    }
}

#[test]
fn errors_are_json_where_the_log_is() {
    let stage = Stage::with(&[("a.json", "{\"apiVersion\": \"v1\"}")]);
    let said = stage.say("render --logging-format json");
    assert_eq!(said.code, 2);
    let line: serde_json::Value = serde_json::from_str(said.stderr.trim()).unwrap();
    assert!(
        line["message"]
            .as_str()
            .unwrap()
            .ends_with("a.json:1:1: document 1: kind: missing")
    );
}

#[test]
fn slices_of_unknown_services_and_other_kinds_are_no_errors() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n";
    let stage = Stage::with(&[("a.yaml", &slice("nobody", 1, 3)), ("b.yaml", deployment)]);
    let (without, with) = (Stage::new().say("render"), stage.say("render --v 4"));
    assert_eq!((with.code, with.stdout), (0, without.stdout));
    assert!(
        with.stderr.contains("apps/v1 Deployment"),
        "{}",
        with.stderr
    );
}
