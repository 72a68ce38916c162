//! Health, metrics and debug endpoints of the binary over HTTP.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use apiserver::{ApiServer, Disconnect, ErrorResponse as Refusal, WatchListFailure};
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

use crate::cluster::{Cluster, service_with_endpoints};
use crate::stage::{Stage, service, slice, wait_until};

/// Flags with a sync period that makes the proxy unhealthy after one second of
/// failures.
const SHORT_SYNC_PERIOD: &str = "--iptables-sync-period 500ms";

/// Default port of the health server, default port of the metrics server, and the
/// health check port of a Service.
pub(crate) const HEALTH: u16 = 10256;
pub(crate) const METRICS: u16 = 10249;
pub(crate) const HEALTH_CHECK: u16 = 31_000;

/// Timeout for a response.
const TIMEOUT_SECONDS: Duration = Duration::from_secs(10);

/// A response: status code, header lines and body.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Response {
    pub(crate) code: u16,
    head: String,
    pub(crate) body: String,
}

/// Sends a GET request to a port in the namespace. Without a response the code is 0.
pub(crate) fn get(stage: &Stage, port: u16, path: &str) -> Response {
    get_in(&stage.netns, port, path)
}

pub(crate) fn get_in(netns: &Netns, port: u16, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // A closing port resets connections that were not accepted.
    let response = netns.run(|| exchange(port, &request)).unwrap_or_default();
    let Some((head, body)) = response.split_once("\r\n\r\n") else {
        return Response::default();
    };
    Response {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn exchange(port: u16, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT_SECONDS))?;
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn codes(stage: &Stage) -> (u16, u16) {
    (
        get(stage, HEALTH, "/healthz").code,
        get(stage, HEALTH, "/livez").code,
    )
}

/// Returns the value of a metric, or `None` if the metric does not exist.
fn metric(stage: &Stage, sample: &str) -> Option<f64> {
    metric_in(&stage.netns, sample)
}

pub(crate) fn metric_in(netns: &Netns, sample: &str) -> Option<f64> {
    let page = get_in(netns, METRICS, "/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(sample));
    Some(line?.trim().parse().unwrap())
}

fn web() -> String {
    service("web", "10.96.0.10") + &slice("web", 1, 3)
}

/// An nft process that owns the table, so no other process may write to it.
struct Owner {
    _nft: Process,
    _folder: Directory,
}

impl Owner {
    fn of_the_table(stage: &Stage) -> Self {
        let folder = Directory::new().unwrap();
        let commands = folder.path().join("commands");
        let mut made = Command::new("mkfifo");
        assert!(made.arg(&commands).status().unwrap().success());
        let mut nft = Command::new("sh");
        nft.args(["-c", "exec nft -i <> \"$0\""]).arg(&commands);
        let nft = Process::start(&stage.netns, &mut nft).unwrap();
        let words = "delete table ip kube-proxy; add table ip kube-proxy { flags owner; }\n";
        fs::write(&commands, words).unwrap();
        wait_until("an owner", || stage.ruleset().contains("flags owner"));
        Self {
            _nft: nft,
            _folder: folder,
        }
    }
}

#[test]
fn health_reflects_the_success_of_syncs() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    let proxy = stage.start_with(SHORT_SYNC_PERIOD);
    wait_until("health", || codes(&stage) == (200, 200));
    wait_until("the first sync", || proxy.output().contains("synced"));
    let sample = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}";
    assert_eq!(metric(&stage, sample), Some(0.0));
    let owner = Owner::of_the_table(&stage);
    wait_until("unhealthy status", || codes(&stage) == (503, 503));
    let body = get(&stage, HEALTH, "/livez").body;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"]["IPv4"]["healthy"], false, "{body}");
    assert_eq!(body["status"]["IPv6"]["healthy"], true, "{body}");
    assert!(metric(&stage, sample) > Some(1.0));
    drop(owner);
    wait_until("recovery", || codes(&stage) == (200, 200));
    wait_until("the rules", || stage.ruleset().contains("10.244.1.3 "));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_tainted_or_deleted_node_fails_the_load_balancer_health_check() {
    let node = |meta: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{ name: node-1{meta} }}\nspec: {{ {spec} }}\n"
        )
    };
    let stage = Stage::with(&[("node.yaml", &node("", "")), ("web.yaml", &web())]);
    let proxy = stage.start();
    wait_until("health", || codes(&stage) == (200, 200));
    let taint = "taints: [{ key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule }]";
    let deleted = ", deletionTimestamp: \"2026-01-01T00:00:00Z\"";
    for text in [node("", taint), node(deleted, "")] {
        stage.write("node.yaml", &text);
        wait_until("a failing health check", || codes(&stage) == (503, 200));
        let body = get(&stage, HEALTH, "/healthz").body;
        assert!(
            body.contains(r#""nodeEligible":false,"healthy":true"#),
            "{body}"
        );
        stage.write("node.yaml", &node("", ""));
        wait_until("the return of the node", || codes(&stage) == (200, 200));
    }
    assert!(proxy.terminate().unwrap().success());
}

/// Returns a Service with a health check port and one endpoint on a node.
pub(crate) fn load_balancer(node: &str) -> String {
    format!(
        "{}  type: LoadBalancer\n  externalTrafficPolicy: Local\n  \
         healthCheckNodePort: {HEALTH_CHECK}\n{}  nodeName: {node}\n",
        service("web", "10.96.0.10"),
        slice("web", 1, 1)
    )
}

#[test]
fn health_check_ports_report_local_endpoints() {
    let stage = Stage::with(&[("web.yaml", &load_balancer("node-1"))]);
    let proxy = stage.start();
    wait_until("the port", || get(&stage, HEALTH_CHECK, "/").code == 200);
    let response = get(&stage, HEALTH_CHECK, "/any");
    assert!(
        response
            .head
            .contains("\r\nX-Load-Balancing-Endpoint-Weight: 1"),
        "{response:?}"
    );
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 1,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(response.body, body);
    stage.write("web.yaml", &load_balancer("node-2"));
    wait_until("no local endpoints", || {
        get(&stage, HEALTH_CHECK, "/").code == 503
    });
    assert!(
        get(&stage, HEALTH_CHECK, "/")
            .body
            .contains("\"localEndpoints\": 0,")
    );
    fs::remove_file(stage.manifests().join("web.yaml")).unwrap();
    wait_until("no port", || get(&stage, HEALTH_CHECK, "/").code == 0);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_port_in_use_is_opened_when_it_becomes_free() {
    let stage = Stage::with(&[("web.yaml", &load_balancer("node-1"))]);
    let hold = |port| {
        stage
            .netns
            .run(|| TcpListener::bind(("0.0.0.0", port)))
            .unwrap()
    };
    let held = [HEALTH, HEALTH_CHECK].map(hold);
    let proxy = stage.start();
    for words in [
        "health server cannot listen on 0.0.0.0:10256: Address already in use",
        "health check port 0.0.0.0:31000 of default/web: Address already in use",
    ] {
        wait_until(words, || proxy.output().contains(words));
    }
    assert_eq!(
        metric(&stage, "kubeproxy_proxy_healthz_total{code=\"200\"}"),
        Some(0.0)
    );
    drop(held);
    wait_until("health", || codes(&stage) == (200, 200));
    wait_until("the port", || get(&stage, HEALTH_CHECK, "/").code == 200);
    assert_eq!(proxy.output().matches("Address already in use").count(), 2);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_health_check_port_moves_to_another_service_without_a_failure() {
    let stage = Stage::with(&[("web.yaml", &load_balancer("node-1"))]);
    let proxy = stage.start();
    // One sync removes the Service that has the port and adds the next one.
    for name in ["web", "other", "web", "third"] {
        stage.write("web.yaml", &load_balancer("node-1").replace("web", name));
        let expected = format!("\"name\": \"{name}\"");
        wait_until(name, || {
            get(&stage, HEALTH_CHECK, "/").body.contains(&expected)
        });
    }
    let output = proxy.output();
    assert!(!output.contains("Address already in use"), "{output}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn wildcards_serve_health_and_metrics_on_both_families() {
    for wildcard in ["0.0.0.0", "[::]"] {
        let stage = Stage::with(&[("web.yaml", &web())]);
        let proxy = stage.start_with(&format!(
            "--healthz-bind-address {wildcard}:{HEALTH} --metrics-bind-address {wildcard}:{METRICS}"
        ));
        let connect = |host, port| stage.netns.run(|| TcpStream::connect((host, port)).is_ok());
        for host in ["127.0.0.1", "::1"] {
            for port in [HEALTH, METRICS] {
                let what = format!("{wildcard} at {host} port {port}");
                wait_until(&what, || connect(host, port));
            }
        }
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn a_failed_bind_is_fatal_with_bind_address_hard_fail() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    let held = stage
        .netns
        .run(|| TcpListener::bind(("0.0.0.0", HEALTH)))
        .unwrap();
    let outcome = stage.run("--bind-address-hard-fail");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(
        outcome.stderr.contains("Address already in use"),
        "{outcome:?}"
    );
    drop(held);
}

#[test]
fn metrics_have_the_paths_and_names_of_upstream() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    let proxy = stage.start();
    wait_until("metrics", || get(&stage, METRICS, "/healthz").body == "ok");
    assert_eq!(get(&stage, METRICS, "/proxyMode").body, "nftables");
    let flags = get(&stage, METRICS, "/flagz").body;
    for line in ["proxy-mode=nftables", "iptables-min-sync-period=0s"] {
        assert!(flags.lines().any(|flag| flag == line), "{line}: {flags}");
    }
    let sync = "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}";
    wait_until("a sync", || metric(&stage, sync) == Some(1.0));
    let response = get(&stage, METRICS, "/metrics");
    assert!(
        response
            .head
            .contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8")
    );
    for sample in [
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} 1\n",
        "kubeproxy_sync_proxy_rules_service_changes_total 2\n",
        "vipline_event_to_kernel_seconds_count{ip_family=\"IPv4\"} 1\n",
        "# TYPE vipline_source_staleness_seconds gauge\n",
    ] {
        assert!(response.body.contains(sample), "{sample}{}", response.body);
    }
    assert_eq!(metric(&stage, "vipline_contested_addresses"), Some(0.0));
    assert!(metric(&stage, "process_resident_memory_bytes") > Some(1e6));
    assert!(proxy.terminate().unwrap().success());
}

/// Sends a request with a body. Returns the code and the body of the response.
fn send(stage: &Stage, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let response = stage.netns.run(|| exchange(METRICS, &request)).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap();
    (code.parse().unwrap(), body.to_owned())
}

#[test]
fn the_verbosity_of_the_log_changes_at_run_time() {
    let stage = Stage::with(&[("web.yaml", &load_balancer("node-1"))]);
    let path = "/debug/flags/v";
    let proxy = stage.start();
    wait_until("metrics", || get(&stage, METRICS, "/healthz").code == 200);
    assert_eq!(send(&stage, "PUT", path, "4").0, 404);
    assert!(proxy.terminate().unwrap().success());
    let proxy = stage.start_with("--profiling");
    wait_until("the port", || get(&stage, HEALTH_CHECK, "/").code == 200);
    let put = |value| send(&stage, "PUT", path, value);
    let done = "successfully set klog.logging.verbosity to 4\n".to_owned();
    assert_eq!(put("4"), (200, done));
    stage.write("web.yaml", &web());
    let words = "health check port closed";
    wait_until("a line of verbosity 4", || proxy.output().contains(words));
    for (value, error) in [
        (
            "high",
            "strconv.ParseUint: parsing \"high\": invalid syntax\n",
        ),
        ("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax\n"),
        (
            "4294967296",
            "strconv.ParseUint: parsing \"4294967296\": value out of range\n",
        ),
        (
            "2147483648",
            "failed set klog.logging.verbosity 2147483648: \
             strconv.ParseInt: parsing \"2147483648\": value out of range\n",
        ),
    ] {
        assert_eq!(put(value), (400, error.to_owned()));
    }
    let refused = (406, "unsupported http method\n".to_owned());
    assert_eq!(send(&stage, "GET", path, ""), refused);
    let (code, page) = send(&stage, "GET", "/debug/flags", "");
    assert!(code == 200 && page.contains("<tr>v<br>\n"), "{page}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn programming_latency_counts_triggers_newer_than_the_process() {
    let caused = |count, at: &str| {
        let cause = format!("endpoints.kubernetes.io/last-change-trigger-time: \"{at}\"");
        let meta = format!("metadata:\n  annotations: {{ {cause} }}\n  name: web-1");
        let slice = slice("web", 1, count).replace("metadata:\n  name: web-1", &meta);
        service("web", "10.96.0.10") + &slice
    };
    let stage = Stage::with(&[("web.yaml", &caused(1, "2026-01-01T00:00:00Z"))]);
    let proxy = stage.start();
    let sample = "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"}";
    wait_until("metrics", || metric(&stage, sample) == Some(0.0));
    let later = Command::new("date")
        .args(["-u", "+%FT%T.%NZ"])
        .output()
        .unwrap();
    let later = String::from_utf8(later.stdout).unwrap();
    stage.write("web.yaml", &caused(2, later.trim()));
    wait_until("a measured change", || metric(&stage, sample) == Some(1.0));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn disabled_servers_do_not_listen() {
    let stage = Stage::with(&[("web.yaml", &load_balancer("node-1"))]);
    let proxy = stage.start_with("--healthz-port 0 --metrics-bind-address 127.0.0.1:7777");
    wait_until("the port", || get(&stage, HEALTH_CHECK, "/").code == 200);
    assert_eq!(get(&stage, HEALTH, "/healthz").code, 0);
    assert_eq!(get(&stage, METRICS, "/healthz").code, 0);
    assert_eq!(get(&stage, 7777, "/healthz").code, 200);
    assert!(proxy.terminate().unwrap().success());
}

/// Returns the number of API requests with this method and response code, according to
/// the metrics.
fn counted_requests(cluster: &Cluster, method: &str, code: &str) -> f64 {
    let host = cluster.server.address();
    let labels = format!("{{code=\"{code}\",host=\"{host}\",method=\"{method}\"}}");
    let sample = format!("rest_client_requests_total{labels}");
    metric_in(&cluster.netns, &sample).unwrap_or_default()
}

/// Returns the number of requests with these verbs that the server received.
fn received_requests(server: &ApiServer, verbs: &[&str]) -> f64 {
    let requests = server.requests();
    let matching = requests
        .iter()
        .filter(|request| verbs.contains(&request.verb));
    matching.count() as f64
}

#[test]
fn request_metrics_match_the_counts_of_the_api_server() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    let server = &cluster.server;
    let labels = format!("{{host=\"{}\",verb=", server.address());
    let count = |name: &str, verb: &str| {
        let sample = format!("rest_client_{name}_duration_seconds_count{labels}\"{verb}\"}}");
        metric_in(&cluster.netns, &sample)
    };
    let are_equal = |least| {
        let gets = received_requests(server, &["list", "watch"]);
        gets >= least && counted_requests(&cluster, "GET", "200") == gets
    };
    wait_until("an event", || {
        counted_requests(&cluster, "POST", "201") == 1.0
    });
    wait_until("four watches", || are_equal(4.0));
    server.cut_connections(Disconnect::Close);
    wait_until("four more watches", || are_equal(8.0));
    server.faults(|faults| faults.watch_list_failure = Some(WatchListFailure::Error));
    server.expire_watches();
    wait_until("four lists", || {
        received_requests(server, &["list"]) >= 4.0 && are_equal(12.0)
    });
    wait_until("the times of lists", || {
        count("request", "GET") == Some(received_requests(server, &["list"]))
    });
    assert_eq!(count("request", "POST"), Some(1.0));
    assert!(count("rate_limiter", "GET") >= Some(8.0));
    assert_eq!(received_requests(server, &["create"]), 1.0);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn failed_requests_are_counted_by_code() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let forbidden = vec!["servicecidrs".to_owned()];
    cluster.server.faults(|faults| faults.forbidden = forbidden);
    let proxy = cluster.start_unsynced("");
    wait_until("three watches", || {
        counted_requests(&cluster, "GET", "200") == 3.0
    });
    wait_until("a refused watch", || {
        counted_requests(&cluster, "GET", "403") == 1.0
    });
    let gone = Refusal {
        code: 410,
        retry_after: None,
        times: 1,
    };
    cluster
        .server
        .faults(|faults| faults.error_response = Some(gone));
    cluster.server.cut_connections(Disconnect::Close);
    wait_until("an expired resource version", || {
        counted_requests(&cluster, "GET", "410") == 1.0
    });
    wait_until("three watches again", || cluster.watches() == 3);
    assert_eq!(counted_requests(&cluster, "GET", "<error>"), 0.0);
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Close);
    wait_until("no answers", || {
        counted_requests(&cluster, "GET", "<error>") > 1.0
    });
    assert!(proxy.terminate().unwrap().success());
}
