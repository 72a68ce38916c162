//! The program for Windows under Wine, with HNS in memory and a Kubernetes API server.
//!
//! `cargo xtask windows` builds the program and runs these tests. Wine has no HNS: the
//! libraries of the crate `hns-dll` are in the folder of the program.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

mod wine;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use serde_json::{Value, json};

use wine::Wine;

/// Maximum time until a change is visible. Wine on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition.
fn wait(what: &str, wine: &Wine, is_met: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_met() {
        let log = || wine.log();
        assert!(Instant::now() < deadline, "{what}: {}", log());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns an API server with a node.
fn server() -> ApiServer {
    let server = ApiServer::start();
    server.apply(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "win-1" },
        "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] },
    }));
    server
}

/// Adds a Service with one endpoint on another node.
fn serve(server: &ApiServer, name: &str, address: &str, endpoint: &str) {
    let metadata = |object: String| {
        json!({
            "name": object,
            "namespace": "default",
            "labels": { "kubernetes.io/service-name": name },
        })
    };
    server.apply(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name.to_owned()),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ports": [{ "protocol": "TCP", "port": 80, "targetPort": 8080 }],
        },
    }));
    server.apply(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata(format!("{name}-1")),
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [endpoint], "nodeName": "node-2" }],
        "ports": [{ "protocol": "TCP", "port": 8080 }],
    }));
}

/// Returns a port that no program uses.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns the flags of a proxy with its port for metrics.
fn flags(wine: &Wine, server: &ApiServer, metrics: u16) -> Vec<String> {
    let kubeconfig = wine.write("kubeconfig", &server.kubeconfig());
    let line = format!(
        "--hostname-override win-1 --network-name cbr0 --iptables-sync-period 1s \
         --healthz-port 0 --metrics-bind-address 127.0.0.1:{metrics} --kubeconfig {kubeconfig}"
    );
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns a page of the metrics server, or nothing if the server does not respond.
fn page(port: u16, path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_string(&mut text);
    }
    text
}

/// One test: an installation of Wine is large.
#[test]
fn the_program_runs_under_wine() {
    let wine = Wine::start();
    commands_without_meaning_on_windows_are_refused(&wine);
    load_balancers_follow_the_objects_of_the_api_server(&wine);
    wine.reset();
    the_service_starts_and_stops_and_logs_to_the_event_log(&wine);
}

fn load_balancers_follow_the_objects_of_the_api_server(wine: &Wine) {
    let server = server();
    serve(&server, "web", "10.96.0.10", "10.244.2.1");
    let metrics = free_port();
    let flags = flags(wine, &server, metrics);
    let proxy = wine.spawn("kube-proxy.exe", &flags);
    wait("the first Service", wine, || {
        wine.frontends() == ["10.96.0.10"]
    });
    serve(&server, "api", "10.96.0.11", "10.244.2.2");
    let both = ["10.96.0.10", "10.96.0.11"];
    wait("the second Service", wine, || wine.frontends() == both);
    wine.change(|state| {
        let balancers = state["LoadBalancers"].as_array_mut().unwrap();
        balancers.remove(0);
    });
    wait("the repair of a deletion", wine, || {
        wine.frontends() == both
    });
    assert!(page(metrics, "/proxyMode").ends_with("\r\nkernelspace"));
    let page = page(metrics, "/metrics");
    assert!(page.contains("kubernetes_build_info"), "{page}");
    drop(proxy);
    assert_eq!(wine.frontends(), both, "load balancers outlive the proxy");
    // HNS of the node is read without `--against`.
    let diff = [vec!["diff".to_owned()], flags].concat();
    assert_eq!(wine.run("kube-proxy.exe", &diff), (0, String::new()));
    wine.change(|state| state["LoadBalancers"] = json!([]));
    let (code, changes) = wine.run("kube-proxy.exe", &diff);
    let changes: Value = serde_json::from_str(&changes).unwrap();
    let created = changes["Create"]["LoadBalancers"].as_array().unwrap().len();
    assert_eq!((code, created), (1, 2), "{changes}");
}

fn the_service_starts_and_stops_and_logs_to_the_event_log(wine: &Wine) {
    let server = server();
    serve(&server, "web", "10.96.0.10", "10.244.2.1");
    let metrics = free_port();
    let program = wine.path("kube-proxy.exe");
    let flags = flags(wine, &server, metrics).join(" ");
    let command = format!("binPath={program} --windows-service {flags}");
    let sc = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (code, output) = wine.run("sc", &words);
        assert_eq!(code, 0, "{words:?}: {output}");
        output
    };
    sc(&["create", "kube-proxy", &command]);
    sc(&["start", "kube-proxy"]);
    wait("the Service", wine, || wine.frontends() == ["10.96.0.10"]);
    wait("the page", wine, || {
        page(metrics, "/proxyMode").ends_with("\r\nkernelspace")
    });
    let is = |state: &str| sc(&["query", "kube-proxy"]).contains(state);
    assert!(is("RUNNING"));
    sc(&["stop", "kube-proxy"]);
    wait("the end of the service", wine, || is("STOPPED"));
    assert_eq!(page(metrics, "/proxyMode"), "");
    assert_eq!(wine.frontends(), ["10.96.0.10"]);
    let log = wine.log();
    for line in [
        "started mode=kernelspace",
        "synced family=IPv4",
        "stopped; the load balancers stay",
    ] {
        assert!(log.contains(line), "{log}");
    }
    // The reason of a failed start is in the Event Log.
    let command = format!("binPath={program} --windows-service --proxy-mode nftables");
    sc(&["create", "invalid", &command]);
    sc(&["start", "invalid"]);
    let reason = "must be kernelspace or blank";
    wait("the reason", wine, || wine.log().contains(reason));
    wait("the end of the invalid service", wine, || {
        sc(&["query", "invalid"]).contains("STOPPED")
    });
    // A program that the Service Control Manager has not started cannot be a service.
    let words = ["--windows-service".to_owned()];
    assert_eq!(wine.run("kube-proxy.exe", &words).0, 1);
}

fn commands_without_meaning_on_windows_are_refused(wine: &Wine) {
    for (line, code) in [
        ("--version", 0),
        ("--cleanup", 2),
        ("--oneshot --network-name cbr0", 2),
        ("--proxy-mode nftables", 2),
        ("explain tcp 10.96.0.10:80", 2),
        ("diff --network-name absent --manifests Z:\\", 2),
    ] {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(wine.run("kube-proxy.exe", &words).0, code, "{line}");
    }
}
