//! Invalid flags and configuration files.

use testkit::scoped::Directory;

use crate::stage::outcome;

#[test]
fn invalid_flags_end_the_program_with_their_name() {
    for (flags, words) in [
        ("--zone a..b", "zone: "),
        ("--ttl 3601", "--ttl"),
        ("--ttl=-1", "--ttl"),
        ("--pods verified", "--pods verified"),
        ("--listen here", "\"here\" must be ADDRESS:PORT"),
        ("--listen 127.0.0.1:99999", "127.0.0.1:99999"),
        ("--listen 127.0.0.1,127.0.0.1:53", "occurs twice"),
        ("--listen 127.0.0.1:0", "listen: 127.0.0.1:0 has the port 0"),
        ("--listen :0", "listen: [::]:0 has the port 0"),
        ("--forward there", "forward.to: "),
        ("--stub corp.example", "--stub corp.example"),
        ("--stub corp.example=nowhere", "stubs: "),
        (
            "--stub corp.Cluster.local=192.0.2.1",
            "stubs: corp.Cluster.local is in the zone cluster.local.",
        ),
        (
            "--stub a.example=192.0.2.1 --stub a.example=192.0.2.2",
            "stubs: a.example occurs twice",
        ),
        ("--metrics 127.0.0.1", "metrics: "),
        ("--lame-duck 5", "--lame-duck"),
        ("--threads 0", "--threads"),
        ("--logging-format xml", "--logging-format xml"),
        ("--node-local fe80::1", "nodeLocal.addresses: "),
        ("--node-local-interface dns0", "--node-local"),
        ("--kubeconfig /nowhere", "--kubeconfig"),
        ("--unknown", "--unknown"),
    ] {
        let (code, text) = outcome(&format!("--manifests /dev/null {flags}"));
        assert_eq!(code, Some(2), "{flags}: {text}");
        assert!(text.contains(words), "{flags}: {text}");
        assert!(!text.contains("panicked"), "{flags}: {text}");
    }
}

#[test]
fn invalid_configuration_files_are_reported_with_line_and_field() {
    for (config, line, words) in [
        ("zone: a.example\n\nttl: [5]\n", 3, "ttl"),
        ("cache: {stale: long}\n", 1, "stale"),
        ("tcp:\n  maxConnections: -1\n", 2, "maxConnections"),
        ("stubs:\n- domain: a.example\n", 2, "to"),
        ("stubs:\n- to: [192.0.2.1]\n", 2, "domain"),
        ("forward:\n  to: 192.0.2.1\n", 2, "to"),
        ("logging: {format: xml}\n", 1, "xml"),
        ("zone: a\nzone: b\n", 2, "zone"),
        ("zone: a\n---\nzone: b\n", 3, "single document"),
        ("zone: [\n", 1, ""),
        ("- zone\n", 1, ""),
    ] {
        let files = Directory::new().unwrap();
        files.write("config.yaml", config).unwrap();
        let path = files.path().join("config.yaml");
        let flags = format!("--manifests /dev/null --config {}", path.display());
        let (code, text) = outcome(&flags);
        assert_eq!(code, Some(2), "{config:?}: {text}");
        let at = format!("config.yaml:{line}:");
        assert!(text.contains(&at), "{config:?}: {text}");
        assert!(text.contains(words), "{config:?}: {text}");
    }
}

#[test]
fn an_unreadable_configuration_file_is_reported_with_its_path() {
    let (code, text) = outcome("--manifests /dev/null --config /nowhere/config.yaml");
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("/nowhere/config.yaml: No such file"),
        "{text}"
    );
}

#[test]
fn all_invalid_fields_are_reported_at_once() {
    let files = Directory::new().unwrap();
    let config = "ttl: 9999\nudpPayloadSize: 100\nmetrics: here\nthreads: 257\n";
    files.write("config.yaml", config).unwrap();
    let path = files.path().join("config.yaml");
    let (code, text) = outcome(&format!("--config {}", path.display()));
    assert_eq!(code, Some(2), "{text}");
    for field in ["ttl: ", "udpPayloadSize: ", "metrics: ", "threads: "] {
        assert!(text.contains(field), "{field}: {text}");
    }
}
