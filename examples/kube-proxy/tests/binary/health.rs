//! What the binary tells of itself over HTTP, while all goes well and while not.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use apiserver::{ApiServer, Disconnect, ErrorResponse as Refusal, WatchListFailure};
use testkit::leftovers::{Directory, Process};
use testkit::netns::Netns;

use crate::cluster::{Cluster, served};
use crate::stage::{Stage, service, slice, until};

/// Flags with which a second of failures is too long.
const HASTY: &str = "--iptables-sync-period 500ms";

/// The usual port of health, that of metrics, and one for a Service.
pub(crate) const HEALTH: u16 = 10256;
pub(crate) const METRICS: u16 = 10249;
pub(crate) const ASKED: u16 = 31_000;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer: its code, its header lines and its body.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    head: String,
    pub(crate) body: String,
}

/// Asks a port of the namespace; no answer has code 0.
pub(crate) fn ask(stage: &Stage, port: u16, path: &str) -> Answer {
    ask_in(&stage.netns, port, path)
}

pub(crate) fn ask_in(netns: &Netns, port: u16, path: &str) -> Answer {
    let words = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // A port that is being closed resets what was not accepted yet.
    let answer = netns.run(|| say(port, &words)).unwrap_or_default();
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return Answer::default();
    };
    Answer {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn say(port: u16, words: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(words.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn codes(stage: &Stage) -> (u16, u16) {
    (
        ask(stage, HEALTH, "/healthz").code,
        ask(stage, HEALTH, "/livez").code,
    )
}

/// Returns a sample of the metrics; one that is not there is nothing.
fn metric(stage: &Stage, sample: &str) -> Option<f64> {
    metric_in(&stage.netns, sample)
}

pub(crate) fn metric_in(netns: &Netns, sample: &str) -> Option<f64> {
    let page = ask_in(netns, METRICS, "/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(sample));
    Some(line?.trim().parse().unwrap())
}

fn web() -> String {
    service("web", "10.96.0.10") + &slice("web", 1, 3)
}

/// A program that has the table for itself: nobody else may write to it.
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
        until("an owner", || stage.ruleset().contains("flags owner"));
        Self {
            _nft: nft,
            _folder: folder,
        }
    }
}

#[test]
fn health_follows_what_the_kernel_takes() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    let proxy = stage.start_with(HASTY);
    until("health", || codes(&stage) == (200, 200));
    until("the first sync", || proxy.output().contains("synced"));
    let sample = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}";
    assert_eq!(metric(&stage, sample), Some(0.0));
    let owner = Owner::of_the_table(&stage);
    until("illness", || codes(&stage) == (503, 503));
    let body = ask(&stage, HEALTH, "/livez").body;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"]["IPv4"]["healthy"], false, "{body}");
    assert_eq!(body["status"]["IPv6"]["healthy"], true, "{body}");
    assert!(metric(&stage, sample) > Some(1.0));
    drop(owner);
    until("recovery", || codes(&stage) == (200, 200));
    until("the rules", || stage.ruleset().contains("10.244.1.3 "));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_node_that_goes_away_is_told_to_load_balancers() {
    let node = |meta: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{ name: node-1{meta} }}\nspec: {{ {spec} }}\n"
        )
    };
    let stage = Stage::with(&[("node.yaml", &node("", "")), ("web.yaml", &web())]);
    let proxy = stage.start();
    until("health", || codes(&stage) == (200, 200));
    let taint = "taints: [{ key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule }]";
    let deleted = ", deletionTimestamp: \"2026-01-01T00:00:00Z\"";
    for text in [node("", taint), node(deleted, "")] {
        stage.write("node.yaml", &text);
        until("the node's farewell", || codes(&stage) == (503, 200));
        let body = ask(&stage, HEALTH, "/healthz").body;
        assert!(
            body.contains(r#""nodeEligible":false,"healthy":true"#),
            "{body}"
        );
        stage.write("node.yaml", &node("", ""));
        until("its return", || codes(&stage) == (200, 200));
    }
    assert!(proxy.terminate().unwrap().success());
}

/// A Service that load balancers ask about, with an endpoint on a node.
pub(crate) fn asked(node: &str) -> String {
    format!(
        "{}  type: LoadBalancer\n  externalTrafficPolicy: Local\n  \
         healthCheckNodePort: {ASKED}\n{}  nodeName: {node}\n",
        service("web", "10.96.0.10"),
        slice("web", 1, 1)
    )
}

#[test]
fn load_balancers_are_told_where_endpoints_are() {
    let stage = Stage::with(&[("web.yaml", &asked("node-1"))]);
    let proxy = stage.start();
    until("the port", || ask(&stage, ASKED, "/").code == 200);
    let answer = ask(&stage, ASKED, "/any");
    assert!(
        answer
            .head
            .contains("\r\nX-Load-Balancing-Endpoint-Weight: 1"),
        "{answer:?}"
    );
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 1,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(answer.body, body);
    stage.write("web.yaml", &asked("node-2"));
    until("their absence", || ask(&stage, ASKED, "/").code == 503);
    assert!(
        ask(&stage, ASKED, "/")
            .body
            .contains("\"localEndpoints\": 0,")
    );
    fs::remove_file(stage.manifests().join("web.yaml")).unwrap();
    until("no port", || ask(&stage, ASKED, "/").code == 0);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_port_that_is_taken_is_opened_when_it_is_free() {
    let stage = Stage::with(&[("web.yaml", &asked("node-1"))]);
    let hold = |port| {
        stage
            .netns
            .run(|| TcpListener::bind(("0.0.0.0", port)))
            .unwrap()
    };
    let held = [HEALTH, ASKED].map(hold);
    let proxy = stage.start();
    for words in [
        "health server cannot listen on 0.0.0.0:10256: Address already in use",
        "health check port 0.0.0.0:31000 of default/web: Address already in use",
    ] {
        until(words, || proxy.output().contains(words));
    }
    assert_eq!(
        metric(&stage, "kubeproxy_proxy_healthz_total{code=\"200\"}"),
        Some(0.0)
    );
    drop(held);
    until("health", || codes(&stage) == (200, 200));
    until("the port", || ask(&stage, ASKED, "/").code == 200);
    assert_eq!(proxy.output().matches("Address already in use").count(), 2);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_health_check_port_moves_to_another_service_without_a_failure() {
    let stage = Stage::with(&[("web.yaml", &asked("node-1"))]);
    let proxy = stage.start();
    // One sync removes the Service that has the port and adds the next one.
    for name in ["web", "other", "web", "third"] {
        stage.write("web.yaml", &asked("node-1").replace("web", name));
        let expected = format!("\"name\": \"{name}\"");
        until(name, || ask(&stage, ASKED, "/").body.contains(&expected));
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
                until(&what, || connect(host, port));
            }
        }
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn who_insists_on_serving_ends_without() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    let held = stage
        .netns
        .run(|| TcpListener::bind(("0.0.0.0", HEALTH)))
        .unwrap();
    let said = stage.say("--bind-address-hard-fail");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("Address already in use"), "{said:?}");
    drop(held);
}

#[test]
fn metrics_are_read_where_upstream_has_them() {
    let stage = Stage::with(&[("web.yaml", &web())]);
    let proxy = stage.start();
    until("metrics", || ask(&stage, METRICS, "/healthz").body == "ok");
    assert_eq!(ask(&stage, METRICS, "/proxyMode").body, "nftables");
    let flags = ask(&stage, METRICS, "/flagz").body;
    for line in ["proxy-mode=nftables", "iptables-min-sync-period=0s"] {
        assert!(flags.lines().any(|flag| flag == line), "{line}: {flags}");
    }
    let sync = "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}";
    until("a sync", || metric(&stage, sync) == Some(1.0));
    let answer = ask(&stage, METRICS, "/metrics");
    assert!(
        answer
            .head
            .contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8")
    );
    for sample in [
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} 1\n",
        "kubeproxy_sync_proxy_rules_service_changes_total 2\n",
        "vipline_event_to_kernel_seconds_count{ip_family=\"IPv4\"} 1\n",
        "# TYPE vipline_source_staleness_seconds gauge\n",
    ] {
        assert!(answer.body.contains(sample), "{sample}{}", answer.body);
    }
    assert_eq!(metric(&stage, "vipline_contested_addresses"), Some(0.0));
    assert!(metric(&stage, "process_resident_memory_bytes") > Some(1e6));
    assert!(proxy.terminate().unwrap().success());
}

/// Sends a request with a body; returns the code and the body of the answer.
fn send(stage: &Stage, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let words = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let answer = stage.netns.run(|| say(METRICS, &words)).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap();
    (code.parse().unwrap(), body.to_owned())
}

#[test]
fn the_verbosity_of_the_log_changes_at_run_time() {
    let stage = Stage::with(&[("web.yaml", &asked("node-1"))]);
    let path = "/debug/flags/v";
    let proxy = stage.start();
    until("metrics", || ask(&stage, METRICS, "/healthz").code == 200);
    assert_eq!(send(&stage, "PUT", path, "4").0, 404);
    assert!(proxy.terminate().unwrap().success());
    let proxy = stage.start_with("--profiling");
    until("the port", || ask(&stage, ASKED, "/").code == 200);
    let put = |value| send(&stage, "PUT", path, value);
    let done = "successfully set klog.logging.verbosity to 4\n".to_owned();
    assert_eq!(put("4"), (200, done));
    stage.write("web.yaml", &web());
    let words = "health check port closed";
    until("a line of verbosity 4", || proxy.output().contains(words));
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
fn causes_count_that_are_younger_than_the_process() {
    let caused = |count, at: &str| {
        let cause = format!("endpoints.kubernetes.io/last-change-trigger-time: \"{at}\"");
        let meta = format!("metadata:\n  annotations: {{ {cause} }}\n  name: web-1");
        let slice = slice("web", 1, count).replace("metadata:\n  name: web-1", &meta);
        service("web", "10.96.0.10") + &slice
    };
    let stage = Stage::with(&[("web.yaml", &caused(1, "2026-01-01T00:00:00Z"))]);
    let proxy = stage.start();
    let sample = "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"}";
    until("metrics", || metric(&stage, sample) == Some(0.0));
    let later = Command::new("date")
        .args(["-u", "+%FT%T.%NZ"])
        .output()
        .unwrap();
    let later = String::from_utf8(later.stdout).unwrap();
    stage.write("web.yaml", &caused(2, later.trim()));
    until("a measured change", || metric(&stage, sample) == Some(1.0));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn nothing_is_served_that_is_turned_off() {
    let stage = Stage::with(&[("web.yaml", &asked("node-1"))]);
    let proxy = stage.start_with("--healthz-port 0 --metrics-bind-address 127.0.0.1:7777");
    until("the port", || ask(&stage, ASKED, "/").code == 200);
    assert_eq!(ask(&stage, HEALTH, "/healthz").code, 0);
    assert_eq!(ask(&stage, METRICS, "/healthz").code, 0);
    assert_eq!(ask(&stage, 7777, "/healthz").code, 200);
    assert!(proxy.terminate().unwrap().success());
}

/// Returns how many requests with a method a server had an answer of a code to,
/// as the metrics tell.
fn answered(cluster: &Cluster, method: &str, code: &str) -> f64 {
    let host = cluster.server.address();
    let labels = format!("{{code=\"{code}\",host=\"{host}\",method=\"{method}\"}}");
    let sample = format!("rest_client_requests_total{labels}");
    metric_in(&cluster.netns, &sample).unwrap_or_default()
}

/// Returns how many requests of some kinds a server got.
fn got(server: &ApiServer, verbs: &[&str]) -> f64 {
    let requests = server.requests();
    let meant = requests
        .iter()
        .filter(|request| verbs.contains(&request.verb));
    meant.count() as f64
}

#[test]
fn requests_to_the_api_are_counted_as_its_server_counts_them() {
    let cluster = Cluster::with(served("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    let server = &cluster.server;
    let labels = format!("{{host=\"{}\",verb=", server.address());
    let count = |name: &str, verb: &str| {
        let sample = format!("rest_client_{name}_duration_seconds_count{labels}\"{verb}\"}}");
        metric_in(&cluster.netns, &sample)
    };
    let are_equal = |least| {
        let gets = got(server, &["list", "watch"]);
        gets >= least && answered(&cluster, "GET", "200") == gets
    };
    until("an event", || answered(&cluster, "POST", "201") == 1.0);
    until("four watches", || are_equal(4.0));
    server.cut_connections(Disconnect::Close);
    until("four more watches", || are_equal(8.0));
    server.faults(|faults| faults.watch_list_failure = Some(WatchListFailure::Error));
    server.expire_watches();
    until("four lists", || {
        got(server, &["list"]) >= 4.0 && are_equal(12.0)
    });
    until("the times of lists", || {
        count("request", "GET") == Some(got(server, &["list"]))
    });
    assert_eq!(count("request", "POST"), Some(1.0));
    assert!(count("rate_limiter", "GET") >= Some(8.0));
    assert_eq!(got(server, &["create"]), 1.0);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn requests_that_fail_are_counted_by_their_code() {
    let cluster = Cluster::with(served("web", "10.96.0.10", 1));
    let forbidden = vec!["servicecidrs".to_owned()];
    cluster.server.faults(|faults| faults.forbidden = forbidden);
    let proxy = cluster.start_unsynced("");
    until("three watches", || answered(&cluster, "GET", "200") == 3.0);
    assert_eq!(answered(&cluster, "GET", "403"), 1.0);
    let gone = Refusal {
        code: 410,
        retry_after: None,
        times: 1,
    };
    cluster
        .server
        .faults(|faults| faults.error_response = Some(gone));
    cluster.server.cut_connections(Disconnect::Close);
    until("a lost history", || answered(&cluster, "GET", "410") == 1.0);
    until("three watches again", || cluster.watches() == 3);
    assert_eq!(answered(&cluster, "GET", "<error>"), 0.0);
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Close);
    until("no answers", || answered(&cluster, "GET", "<error>") > 1.0);
    assert!(proxy.terminate().unwrap().success());
}
