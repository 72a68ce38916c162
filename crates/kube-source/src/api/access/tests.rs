//! Tests of credentials and addresses.

use std::fs;
use std::path::Path;

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
        error().ends_with("kubeconfig: contexts: there is no cluster \"d\""),
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

/// Certificates and keys are not parsed before the client is created, except those of the CA.
const CA: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

/// A kubeconfig with these fields of cluster and user.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

/// Reads a kubeconfig beside a CA, a key and a certificate.
fn read(text: &str, server: Option<&str>) -> Result<kube::Config, String> {
    let folder = Directory::new().unwrap();
    let path = folder.path().join("kubeconfig");
    for file in ["ca.crt", "client.crt", "client.key"] {
        fs::write(folder.path().join(file), CA).unwrap();
    }
    fs::write(&path, text).unwrap();
    let config = opener(access(Some(&path), server)).config();
    config.map_err(|error| error.replace(&format!("{}: ", path.display()), ""))
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

#[test]
fn fields_that_client_go_refuses_are_refused() {
    let exec = "apiVersion: client.authentication.k8s.io/v1, command: c, interactiveMode: Never";
    let data = BASE64.encode(CA.as_bytes());
    for (cluster, user, expected) in [
        ("", "", "cluster \"c\": server: missing"),
        ("server: ''", "", "cluster \"c\": server: missing"),
        ("server: 'ftp://a'", "", "the scheme must be http or https"),
        (
            &format!("{SERVER}, certificate-authority: ca.crt, insecure-skip-tls-verify: true"),
            "",
            "certificate-authority and insecure-skip-tls-verify are both set",
        ),
        (
            &format!("{SERVER}, certificate-authority: ca.crt, certificate-authority-data: {data}"),
            "",
            "certificate-authority and certificate-authority-data are both set",
        ),
        (
            &format!("{SERVER}, certificate-authority: none.crt"),
            "",
            "No such file or directory",
        ),
        (
            &format!("{SERVER}, certificate-authority-data: bm90IFBFTQ=="),
            "",
            "the certificate authority has no certificate in PEM",
        ),
        (
            &format!("{SERVER}, proxy-url: 'ftp://proxy'"),
            "",
            "proxy-url: unsupported scheme \"ftp\", must be http, https, or socks5",
        ),
        (
            SERVER,
            "client-certificate: client.crt",
            "client-certificate requires client-key or client-key-data",
        ),
        (
            SERVER,
            &format!("client-certificate: a, client-certificate-data: {data}, client-key: b"),
            "client-certificate and client-certificate-data are both set",
        ),
        (
            SERVER,
            &format!("client-certificate: a, client-key: b, client-key-data: {data}"),
            "client-key and client-key-data are both set",
        ),
        (
            SERVER,
            "username: u, password: p, token: t",
            "a token and a password are both set",
        ),
        (
            SERVER,
            "username: u, password: p, tokenFile: t",
            "a token and a password are both set",
        ),
        (
            SERVER,
            "as-groups: [g]",
            "as-groups requires the user to impersonate",
        ),
        (
            SERVER,
            "auth-provider: {name: oidc}",
            "auth-provider is not supported",
        ),
        (
            SERVER,
            "exec: {command: c}",
            "exec: apiVersion: \"\", must be",
        ),
        (
            SERVER,
            &format!("exec: {{{}}}", exec.replace("command: c", "command: ''")),
            "exec: command: missing",
        ),
        (
            SERVER,
            &format!("exec: {{{}}}", exec.replace("Never", "Always")),
            "there is no terminal",
        ),
        (
            SERVER,
            &format!("exec: {{{exec}, env: [{{value: v}}]}}"),
            "exec: env: a variable has no name",
        ),
    ] {
        let error = read(&kubeconfig(cluster, user), None)
            .map(|_| ())
            .unwrap_err();
        assert!(error.contains(expected), "{cluster} {user}: {error}");
    }
    let good = kubeconfig(SERVER, "");
    for (text, expected) in [
        (
            good.replace("current-context: x", ""),
            "current-context: missing",
        ),
        (
            good.replace("current-context: x", "current-context: z"),
            "current-context: there is no context \"z\"",
        ),
        (
            good.replace("cluster: c, user", "cluster: z, user"),
            "there is no cluster \"z\"",
        ),
        (
            good.replace("users: [", "users: [{name: u}, "),
            "users: the name \"u\" occurs twice",
        ),
        (
            format!("kind: Pod\n{good}"),
            "kind: \"Pod\", must be \"Config\"",
        ),
        (
            format!("apiVersion: v2\n{good}"),
            "apiVersion: \"v2\", must be \"v1\"",
        ),
        (String::new(), "current-context: missing"),
    ] {
        let error = read(&text, None).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn fields_that_client_go_accepts_are_accepted() {
    let data = BASE64.encode(CA.as_bytes());
    let (first, rest) = data.split_at(8);
    // Empty fields are absent, and base64 may have line breaks.
    let config = read(
        &kubeconfig(
            &format!(
                "{SERVER}, tls-server-name: '', proxy-url: '', certificate-authority: '', \
                 certificate-authority-data: \"{first}\\n{rest}\\n\", \
                 disable-compression: true, extensions: []"
            ),
            "token: '', tokenFile: '', username: '', password: '', as: '', client-certificate: '', \
             client-key: client.key, client-certificate-data: ''",
        ),
        None,
    )
    .unwrap();
    assert_eq!(
        config.root_cert.map(|certificates| certificates.len()),
        Some(1)
    );
    assert_eq!(
        (
            config.root_cert_file,
            config.proxy_url,
            config.tls_server_name
        ),
        (None, None, None)
    );
    let user = serde_json::to_value(&config.auth_info).unwrap();
    assert_eq!(user, serde_json::json!({}));
    // The CA of a file is read again for new connections.
    let authority = format!("{SERVER}, certificate-authority: ca.crt, tls-server-name: api");
    let text = kubeconfig(&authority, "token: t, username: u");
    let config = read(&text, None).unwrap();
    assert!(config.root_cert_file.unwrap().ends_with("ca.crt"));
    assert_eq!(config.tls_server_name.as_deref(), Some("api"));
    // The name belongs to the server in the file.
    let config = read(&text, Some("10.0.0.2:6443")).unwrap();
    assert_eq!(config.cluster_url.to_string(), "https://10.0.0.2:6443/");
    assert_eq!(config.tls_server_name, None);
    // Users that do not exist have no credentials, and --master needs no context.
    let other = text.replace("user: u", "user: z");
    assert!(read(&other, None).unwrap().auth_info.token.is_none());
    let empty = read("", Some("https://10.0.0.2")).unwrap();
    assert_eq!(empty.cluster_url.to_string(), "https://10.0.0.2/");
}

#[test]
fn credentials_never_travel_in_clear_text() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: c}";
    for user in [
        "token: t",
        "tokenFile: none",
        "username: u, password: p",
        exec,
    ] {
        let text = kubeconfig("server: 'http://10.0.0.1'", &format!("{user}, as: other"));
        let config = read(&text, None).unwrap();
        let user = serde_json::to_value(&config.auth_info).unwrap();
        assert_eq!(user, serde_json::json!({"as": "other"}));
        let secure = kubeconfig(SERVER, "token: t");
        let config = read(&secure, Some("http://10.0.0.1")).unwrap();
        assert!(config.auth_info.token.is_none());
    }
}

#[test]
fn an_exec_plugin_gets_the_cluster_of_the_file() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: c, \
                provideClusterInfo: true}";
    let config = read(&kubeconfig(SERVER, exec), None).unwrap();
    let cluster = config.auth_info.exec.unwrap().cluster.unwrap();
    assert_eq!(cluster.proxy_url, None);
    assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
}

#[test]
fn a_rate_of_zero_is_the_default() {
    let limit = |qps, burst| {
        let mut access = access(None, None);
        (access.qps, access.burst) = (qps, burst);
        access.limit()
    };
    assert_eq!(limit(0.0, 0), (5.0, 10));
    assert_eq!(limit(2.0, 3), (2.0, 3));
    assert_eq!(limit(-1.0, -1), (-1.0, 0));
}
