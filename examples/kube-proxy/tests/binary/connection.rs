//! Connections to the API server through HTTP proxies and with credentials of exec
//! plugins.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{ApiServer, Disconnect};
use ipnet::IpNet;
use testkit::link;
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};
use testkit::silence::silence_connections;

use crate::cluster::{Cluster, node, service_with_endpoints};
use crate::health::get_in;
use crate::stage::wait_until;

/// An address of the API server. It is not a loopback address, because those never use
/// an HTTP proxy.
pub(crate) const ADDRESS: [u8; 4] = [10, 9, 9, 9];

const HEALTH: u16 = 10256;

/// Returns a cluster whose API server listens on [`ADDRESS`].
pub(crate) fn cluster() -> Cluster {
    cluster_at(ADDRESS.into())
}

/// Returns a cluster whose API server listens on an address.
pub(crate) fn cluster_at(address: IpAddr) -> Cluster {
    let netns = Netns::new().unwrap();
    // Duplicate address detection takes time, and until then the server cannot bind.
    let added = netns.run(|| link::add_address("lo", IpNet::from(address)));
    added.unwrap();
    let server = netns.run(|| ApiServer::start_at((address, 0).into()));
    let folder = Directory::new().unwrap();
    let cluster = Cluster {
        server,
        netns,
        folder,
    };
    fs::write(cluster.kubeconfig(), cluster.server.kubeconfig()).unwrap();
    cluster.server.apply(node("10.0.0.1", "10.244.1.0/24"));
    cluster
        .server
        .apply_all(service_with_endpoints("web", "10.96.0.10", 1));
    cluster
}

/// An HTTP proxy that supports only CONNECT.
pub(crate) struct ConnectProxy {
    pub(crate) address: SocketAddr,
    /// The request lines and credentials of all requests.
    requests: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (listener, seen) = cluster.netns.run(|| {
            let listener = TcpListener::bind(SocketAddr::from((ADDRESS, 0))).unwrap();
            let (accepting, seen) = (listener.try_clone().unwrap(), Arc::clone(&requests));
            // The thread ends with the process of the test.
            thread::spawn(move || {
                for stream in accepting.incoming().flatten() {
                    let seen = Arc::clone(&seen);
                    thread::spawn(move || tunnel(stream, &seen));
                }
            });
            (listener, Arc::clone(&requests))
        });
        Self {
            address: listener.local_addr().unwrap(),
            requests: seen,
        }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Handles one client connection.
fn tunnel(client: TcpStream, requests: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let target = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
    head.retain(|line| {
        line.starts_with("CONNECT") || line.to_lowercase().starts_with("proxy-authorization")
    });
    requests.lock().unwrap().push(head.join("; "));
    let server = TcpStream::connect(target)?;
    (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut to));
    io::copy(&mut reader, &mut &server)?;
    Ok(())
}

pub(crate) fn start(cluster: &Cluster, environment: &[(&str, String)]) -> Process {
    let mut command = cluster.command("");
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let process = Process::start(&cluster.netns, &mut command).unwrap();
    wait_until("the first sync", || process.output().contains("synced"));
    wait_until("four watches", || cluster.watches() == 4);
    process
}

#[test]
fn the_proxy_of_the_environment_is_used_for_the_api() {
    let cluster = cluster();
    let proxy = ConnectProxy::start(&cluster);
    let connect = format!("CONNECT {} HTTP/1.1", cluster.server.address());
    for (variable, url, authorization) in [
        (
            "HTTPS_PROXY",
            "http://user:p%40ss@",
            "; Proxy-Authorization: Basic dXNlcjpwQHNz",
        ),
        ("https_proxy", "", ""),
    ] {
        let before = proxy.requests().len();
        let url = format!("{url}{}", proxy.address);
        let process = start(&cluster, &[(variable, url)]);
        let requests = proxy.requests().split_off(before);
        assert!(!requests.is_empty(), "{variable}");
        for request in requests {
            assert_eq!(request, format!("{connect}{authorization}"));
        }
        assert!(process.terminate().unwrap().success());
    }
}

#[test]
fn servers_in_no_proxy_are_reached_directly() {
    let cluster = cluster();
    let proxy = ConnectProxy::start(&cluster);
    for exceptions in ["*", "example.com,10.9.9.0/24,"] {
        let process = start(
            &cluster,
            &[
                ("HTTPS_PROXY", proxy.address.to_string()),
                ("NO_PROXY", exceptions.to_owned()),
            ],
        );
        assert_eq!(proxy.requests(), [""; 0], "{exceptions}");
        assert!(process.terminate().unwrap().success());
    }
}

#[test]
fn the_proxy_of_the_kubeconfig_overrides_the_environment() {
    let cluster = cluster();
    let proxy = ConnectProxy::start(&cluster);
    let line = format!("    proxy-url: http://{}\n    server: ", proxy.address);
    let text = cluster.server.kubeconfig().replace("    server: ", &line);
    fs::write(cluster.kubeconfig(), text).unwrap();
    let environment = [
        ("HTTPS_PROXY", "http://192.0.2.1:1".to_owned()),
        ("NO_PROXY", "*".to_owned()),
    ];
    let process = start(&cluster, &environment);
    assert!(!proxy.requests().is_empty());
    assert!(process.terminate().unwrap().success());
}

#[test]
fn health_is_answered_within_a_second_while_an_exec_plugin_hangs() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let token = cluster.server.kubeconfig_with_token();
    let token = token
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "));
    let folder = cluster.folder.path();
    let (runs, plugin) = (folder.join("runs"), folder.join("plugin"));
    let script = format!(
        "#!/bin/sh\n[ -e {runs} ] && echo $$ >> {runs} && exec sleep 1000\ntouch {runs}\n\
         echo '{{\"status\": {{\"token\": \"{token}\"}}}}'\n",
        runs = runs.display(),
        token = token.unwrap(),
    );
    fs::write(&plugin, script).unwrap();
    let outcome = Command::new("chmod").arg("+x").arg(&plugin).status();
    assert!(outcome.unwrap().success());
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}",
        plugin.display()
    );
    let text = cluster.server.kubeconfig_with_token();
    let text = text.replace(&format!("token: {}", token.unwrap()), &user);
    fs::write(cluster.kubeconfig(), text).unwrap();
    let process = cluster.start();
    // Credentials are reloaded at most every five seconds.
    let hung = || fs::read_to_string(&runs).unwrap();
    wait_until("a plugin that hangs", || {
        cluster.server.set_token("another");
        cluster.server.cut_connections(Disconnect::Close);
        hung().ends_with('\n')
    });
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        let asked = Instant::now();
        let answer = get_in(&cluster.netns, HEALTH, "/livez");
        assert!(answer.body.contains("lastUpdated"), "{answer:?}");
        assert!(asked.elapsed() < Duration::from_secs(1), "{answer:?}");
        thread::sleep(Duration::from_millis(50));
    }
    let hung = hung();
    assert_eq!(hung.lines().count(), 1, "one plugin runs at a time");
    assert!(process.terminate().unwrap().success());
    let file = format!("/proc/{}/comm", hung.trim());
    wait_until("the end of the plugin", || {
        fs::read_to_string(&file).is_ok_and(|name| name.trim() != "sleep")
            || fs::metadata(&file).is_err()
    });
}

/// Resources that the proxy watches.
const WATCHED: [&str; 4] = ["services", "endpointslices", "nodes", "servicecidrs"];

#[test]
fn a_silently_dead_connection_is_replaced_within_half_a_minute() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let process = cluster.start();
    let begun = WATCHED.map(|kind| cluster.server.count("watch", kind));
    let port = cluster.server.address().port();
    let silenced = cluster.netns.run(|| silence_connections(port));
    assert!(silenced >= WATCHED.len(), "{silenced} connections");
    let start = Instant::now();
    let is_replaced = cluster
        .server
        .wait_until(Duration::from_secs(30), |server| {
            let mut watches = WATCHED.iter().zip(begun);
            watches.all(|(kind, before)| server.count("watch", kind) > before)
        });
    let output = process.output();
    assert!(is_replaced, "after {:?}: {output}", start.elapsed());
    assert!(output.contains("timed out"), "{output}");
    let more = service_with_endpoints("more", "10.96.0.11", 2);
    cluster.server.apply_all(more);
    let has_rules = || cluster.ruleset().contains("10.96.0.11");
    wait_until("the new Service", has_rules);
    assert!(process.terminate().unwrap().success());
}

/// Returns a kubeconfig of the cluster with another line in place of that of the token, and
/// the token.
fn with_user(cluster: &Cluster, line: impl FnOnce(&str) -> String) -> (String, String) {
    let text = cluster.server.kubeconfig_with_token();
    let lines = text.lines();
    let mut tokens = lines.filter_map(|line| line.trim().strip_prefix("token: "));
    let token = tokens.next().unwrap().to_owned();
    let text = text.replace(&format!("token: {token}"), &line(&token));
    (text, token)
}

#[test]
fn tokens_of_files_and_editors_are_accepted() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let file = cluster.folder.path().join("token");
    for ending in ["", "\n", "\r\n", " \n\n"] {
        // A relative path begins at the folder of the kubeconfig.
        let (text, token) = with_user(&cluster, |_| "tokenFile: token".to_owned());
        fs::write(&file, token + ending).unwrap();
        fs::write(cluster.kubeconfig(), text).unwrap();
        let outcome = cluster.run("--oneshot");
        assert_eq!(outcome.code, 0, "{ending:?}: {outcome:?}");
    }
    for line in [
        |token: &str| format!("token: \"{token}\\n\""),
        |token: &str| format!("token: \"{token}\\r\\n\""),
        |token: &str| format!("token: |\n      {token}"),
        |token: &str| format!("token: {token}\n    tokenFile: none"),
        |token: &str| format!("token: {token}\n    username: ''\n    client-certificate: ''"),
    ] {
        let (text, _) = with_user(&cluster, line);
        fs::write(cluster.kubeconfig(), &text).unwrap();
        let outcome = cluster.run("--oneshot");
        assert_eq!(outcome.code, 0, "{text}: {outcome:?}");
    }
}

#[test]
fn credentials_that_client_go_refuses_are_errors() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    fs::write(cluster.folder.path().join("empty"), "\n").unwrap();
    let insecure = |text: String| {
        text.replace(
            "    server:",
            "    insecure-skip-tls-verify: true\n    server:",
        )
    };
    let user = |line: &'static str| with_user(&cluster, |_| line.to_owned()).0;
    for (text, expected) in [
        (user("tokenFile: empty"), "/empty: the token is empty"),
        (user("tokenFile: none"), "/none: No such file or directory"),
        (
            user(r#"token: "a\nb""#),
            "token: the token contains a line break",
        ),
        (
            user("token: x\n    username: u\n    password: p"),
            "a token and a password are both set",
        ),
        (
            insecure(cluster.server.kubeconfig()),
            "certificate-authority-data and insecure-skip-tls-verify are both set",
        ),
    ] {
        fs::write(cluster.kubeconfig(), &text).unwrap();
        for command in ["", "--oneshot"] {
            let outcome = cluster.run(command);
            assert_eq!(outcome.code, 2, "{expected}: {outcome:?}");
            assert!(outcome.stderr.contains(expected), "{expected}: {outcome:?}");
            assert!(outcome.stderr.contains("/kubeconfig: "), "{outcome:?}");
        }
    }
}

#[test]
fn a_renewed_token_file_is_used() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let file = cluster.folder.path().join("token");
    let (text, token) = with_user(&cluster, |_| "tokenFile: token".to_owned());
    fs::write(&file, token + "\n").unwrap();
    fs::write(cluster.kubeconfig(), text).unwrap();
    let process = cluster.start();
    cluster.server.set_token("another");
    fs::write(&file, "another\r\n").unwrap();
    cluster.server.cut_connections(Disconnect::Close);
    cluster
        .server
        .apply_all(service_with_endpoints("more", "10.96.0.11", 2));
    wait_until("the new Service", || {
        cluster.ruleset().contains("10.96.0.11")
    });
    assert!(process.terminate().unwrap().success());
}

#[test]
fn errors_of_requests_name_the_server_and_what_to_do() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let url = cluster.server.url();
    let (plain, closed) = cluster.netns.run(|| {
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        (bind(), bind().local_addr().unwrap())
    });
    let address = plain.local_addr().unwrap();
    // A server without TLS, such as the former insecure port of API servers.
    thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    for (server, expected) in [
        (
            format!("https://{closed}"),
            "Connection refused (os error 111)",
        ),
        (
            format!("https://{address}"),
            "the server does not speak TLS on this port; use its port for HTTPS, or http://",
        ),
    ] {
        let text = cluster.server.kubeconfig().replace(&url, &server);
        fs::write(cluster.kubeconfig(), text).unwrap();
        let outcome = cluster.run("--oneshot");
        assert_eq!(outcome.code, 1, "{outcome:?}");
        let mut logs = vec![outcome.stderr];
        let process = cluster.start_unsynced("");
        wait_until("the warning", || process.output().contains("retrying"));
        logs.push(process.output());
        for log in logs {
            let named = format!(": API server {server}: ");
            assert!(log.contains(&named) && log.contains(expected), "{log}");
            assert!(!log.contains("ServiceError"), "{log}");
        }
        assert!(process.terminate().unwrap().success());
    }
}

#[test]
fn a_missing_node_object_is_reported_at_once() {
    let cluster = Cluster::new();
    cluster
        .server
        .apply_all(service_with_endpoints("web", "10.96.0.10", 1));
    let hint = "if the Node has another name, set --hostname-override to it";
    let process = cluster.start_unsynced("");
    let expected = format!("there is no Node \"node-1\"; the first sync waits for it; {hint}");
    wait_until("the warning", || process.output().contains(&expected));
    assert!(!process.output().contains("synced"));
    // The kubelet creates the Node.
    cluster.server.apply(node("10.0.0.1", "10.244.1.0/24"));
    wait_until("the first sync", || process.output().contains("synced"));
    assert!(process.terminate().unwrap().success());
    cluster.server.delete("Node", "", "node-1");
    let outcome = cluster.run("--oneshot");
    let expected = "there is no Node \"node-1\"; continuing without it: ";
    assert!(outcome.stderr.contains(expected), "{outcome:?}");
    assert!(outcome.stderr.contains(hint), "{outcome:?}");
}
