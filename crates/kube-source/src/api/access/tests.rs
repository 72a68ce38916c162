//! Tests of credentials and addresses.

use std::fs;

use testkit::scoped::Directory;

use super::*;
use crate::api::observer::tests::Recorded;

fn access(kubeconfig: Option<&Path>, server: Option<&str>) -> Access {
    Access {
        kubeconfig: kubeconfig.map(Into::into),
        server: server.map(Into::into),
        ..Access::default()
    }
}

fn opener(access: Access) -> Opener {
    Opener {
        access,
        observer: Arc::new(Recorded::default()),
        plugin: RunningPlugin::default(),
    }
}

fn url(access: &Access) -> String {
    let config = opener(access.clone()).config().unwrap();
    config.cluster_url.to_string()
}

const KUBECONFIG: &str = "
clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: true}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
users: [{name: u, user: {client-certificate: missing.crt, client-key: missing.key}}]
";

#[test]
fn the_master_flag_takes_precedence_over_the_kubeconfig() {
    let folder = Directory::new().unwrap();
    let path = folder.path().join("kubeconfig");
    fs::write(&path, KUBECONFIG).unwrap();
    let file = Some(&*path);
    assert_eq!(url(&access(file, None)), "https://10.0.0.1:6443/");
    let given = Some("https://10.0.0.2:1");
    assert_eq!(url(&access(file, given)), "https://10.0.0.2:1/");
    assert_eq!(
        url(&access(file, Some("10.0.0.2:1"))),
        "https://10.0.0.2:1/"
    );
    assert_eq!(url(&access(None, Some("10.0.0.2:1"))), "http://10.0.0.2:1/");
}

#[test]
fn an_unverified_server_needs_no_trust_store() {
    let folder = Directory::new().unwrap();
    let path = folder.path().join("kubeconfig");
    let open = |text: &str| {
        fs::write(&path, text).unwrap();
        opener(access(Some(&path), None)).config().unwrap()
    };
    assert_eq!(open(KUBECONFIG).root_cert, Some(Vec::new()));
    let verified = KUBECONFIG.replace(", insecure-skip-tls-verify: true", "");
    assert_eq!(open(&verified).root_cert, None);
}

#[test]
fn the_host_label_is_host_and_port_of_the_url() {
    for (address, name) in [
        ("https://user:secret@10.0.0.1:6443/path", "10.0.0.1:6443"),
        ("https://[fd00::1]:443", "[fd00::1]:443"),
        ("https://api.example", "api.example"),
    ] {
        assert_eq!(host(&address.parse().unwrap()), name);
    }
}

#[test]
fn an_error_of_credentials_names_the_file() {
    let folder = Directory::new().unwrap();
    let path = folder.path().join("kubeconfig");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let opener = opener(access(Some(&path), None));
    let error = || {
        let opened = opener.config().and_then(|config| opener.open(config));
        opened.err().unwrap()
    };
    let missing = error();
    assert!(
        missing.starts_with(&format!("{}: ", path.display())),
        "{missing}"
    );
    assert!(missing.contains("No such file"), "{missing}");
    fs::write(&path, "current-context: x\nclusters: 7\n").unwrap();
    assert!(
        error().contains("kubeconfig: failed to parse"),
        "{}",
        error()
    );
    fs::write(&path, KUBECONFIG.replace("cluster: c", "cluster: d")).unwrap();
    assert!(
        error().contains("failed to load the cluster of context: d"),
        "{}",
        error()
    );
    fs::write(&path, KUBECONFIG).unwrap();
    let certificate = error();
    assert!(certificate.contains("missing.crt"), "{certificate}");
    assert!(certificate.contains("No such file"), "{certificate}");
    let bad = self::opener(access(None, Some("http://a b")))
        .config()
        .unwrap_err();
    assert!(bad.starts_with("--master: \"http://a b\": "), "{bad}");
}
