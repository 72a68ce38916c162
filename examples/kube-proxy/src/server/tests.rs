//! Tests of the HTTP servers, with exact responses.

use std::net::TcpListener;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use tokio::runtime::Runtime;
use vipline_service_model::NodePortAddresses;

use super::*;
use crate::cli::Cli;
use crate::config::Effective;
use crate::telemetry::tests::Stage;
use testkit::http::{ANY, connect, request, request_on, try_request};

/// Timeout of expected events.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Retry interval in tests.
const SOON: Duration = Duration::from_millis(20);

/// Maximum number of listeners for Services in tests.
const MAX_LISTENERS: usize = 5;

/// Name of the node.
const HERE: &str = "node-1";

/// Servers on a test stage.
struct Served {
    stage: Stage,
    runtime: Runtime,
    failures: Arc<Mutex<Vec<ListenFailure>>>,
}

impl Served {
    fn new(period: Duration) -> Self {
        let failures: Arc<Mutex<Vec<ListenFailure>>> = Arc::default();
        Self {
            stage: Stage::new(period),
            runtime: Runtime::new().unwrap(),
            failures,
        }
    }

    fn on_failure(&self) -> OnFailure {
        let failures = Arc::clone(&self.failures);
        Arc::new(move |failure| failures.lock().unwrap().push(failure))
    }

    fn failures(&self) -> Vec<ListenFailure> {
        self.failures.lock().unwrap().clone()
    }

    /// Serves on a free address and returns the address.
    fn serve<F>(&self, answer: F) -> SocketAddr
    where
        F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
    {
        let _guard = self.runtime.enter();
        let listener = listen(ANY, Wildcard::BothFamilies).unwrap();
        let address = listener.local_addr().unwrap();
        let server = async move {
            let (_open, watched) = watch::channel(());
            serve(
                listener,
                Connections::new(8, 8),
                Timeouts::DEFAULT,
                move |request| ready(answer(&request)),
                watched,
            )
            .await;
        };
        self.runtime.spawn(server);
        address
    }

    fn serve_health(&self) -> SocketAddr {
        let telemetry = self.stage.telemetry.clone();
        self.serve(move |request| pages::health(&telemetry, request))
    }

    fn serve_pages(&self) -> SocketAddr {
        let words = "kube-proxy --proxy-mode nftables --manifests /nowhere";
        let cli: Cli = clap::Parser::parse_from(words.split(' '));
        let effective = Effective::new(&cli.flags).unwrap();
        let settings = Settings::new(&cli.flags, effective, "here").unwrap();
        let pages = Arc::new(Pages::new(&settings, self.stage.telemetry.clone(), None));
        self.serve(move |request| pages.answer(request))
    }

    /// Opens health check node ports on addresses within a network.
    fn serve_services(&self, within: &str) {
        self.serve_services_with(within, SOON);
    }

    fn serve_services_with(&self, within: &str, retry: Duration) {
        let ports = Ports {
            telemetry: self.stage.telemetry.clone(),
            proxy_health: ProxyHealth::Checked,
            addresses: NodePortAddresses::Within(vec![within.parse().unwrap()]),
            interfaces: || Ok(vec!["127.0.0.1".parse()?, "127.0.0.2".parse()?]),
            retry,
            connections: Connections::new(64, 64),
            max_listeners: MAX_LISTENERS,
            on_failure: self.on_failure(),
        };
        self.runtime.spawn(ports.run());
    }
}

/// Returns the status line, the headers that not every response has, and the
/// body.
fn parts(answer: &str) -> (&str, Vec<&str>, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap();
    let usual = ["Date: ", "Connection: ", "Content-Length: "];
    let headers = lines.filter(|line| !usual.iter().any(|usual| line.starts_with(usual)));
    let mut headers: Vec<_> = headers.collect();
    headers.sort_unstable();
    (status, headers, body)
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a port that the listener holds. The port stays free after the listener is
/// dropped: the kernel selects ports of other sockets above 32,767.
fn port() -> (TcpListener, u16) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = process::id().wrapping_mul(97);
    loop {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + u16::try_from(number % 12_000).unwrap();
        if let Ok(listener) = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))) {
            return (listener, port);
        }
    }
}

#[test]
fn health_paths_respond_to_any_method() {
    let mut served = Served::new(Duration::from_secs(30));
    let address = served.serve_health();
    let json = vec![
        "Content-Type: application/json",
        "X-Content-Type-Options: nosniff",
    ];
    for (words, code, has_node) in [
        ("GET /healthz", "HTTP/1.1 200 OK", true),
        ("POST /healthz?verbose", "HTTP/1.1 200 OK", true),
        ("GET /livez", "HTTP/1.1 200 OK", false),
    ] {
        let answer = request(address, words);
        let (status, headers, body) = parts(&answer);
        assert_eq!((status, &headers), (code, &json), "{words}");
        assert_eq!(body.contains(r#""nodeEligible":true,"#), has_node, "{body}");
        assert!(
            body.contains(r#""healthy":true,"status":{"IPv4":"#),
            "{body}"
        );
    }
    let taint = serde_json::json!({ "key": "ToBeDeletedByClusterAutoscaler" });
    served.stage.node(serde_json::json!({ "taints": [taint] }));
    let answer = request(address, "GET /healthz");
    let (status, headers, body) = parts(&answer);
    assert_eq!(
        (status, headers),
        ("HTTP/1.1 503 Service Unavailable", json)
    );
    assert!(
        body.contains(r#""nodeEligible":false,"healthy":true"#),
        "{body}"
    );
    let answer = request(address, "GET /metrics");
    let (status, _, body) = parts(&answer);
    assert_eq!(
        (status, body),
        ("HTTP/1.1 404 Not Found", "404 page not found\n")
    );
}

#[test]
fn the_metrics_port_serves_its_pages() {
    let mut served = Served::new(Duration::from_secs(30));
    let address = served.serve_pages();
    served.stage.sync();
    let plain = "text/plain; charset=utf-8";
    let metrics = "text/plain; version=0.0.4; charset=utf-8";
    for (words, content_type, body) in [
        ("GET /healthz", plain, Some("ok")),
        ("GET /proxyMode", plain, Some("nftables")),
        ("GET /metrics/slis", metrics, Some("")),
        ("DELETE /metrics/slis", plain, Some("metrics reset\n")),
        ("GET /metrics", metrics, None),
        ("GET /configz", "application/json", None),
        ("GET /statusz", plain, None),
    ] {
        let answer = request(address, words);
        let (status, headers, actual) = parts(&answer);
        assert_eq!(status, "HTTP/1.1 200 OK", "{words}");
        let expected = [
            format!("Content-Type: {content_type}"),
            "X-Content-Type-Options: nosniff".to_owned(),
        ];
        assert_eq!(headers, expected, "{words}");
        assert_eq!(actual, body.unwrap_or(actual), "{words}");
    }
    let page = request(address, "GET /metrics");
    let sample = "\nkubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n";
    assert!(page.contains(sample), "{page}");
    assert!(request(address, "GET /livez").starts_with("HTTP/1.1 404 "));
    let config = request(address, "GET /configz");
    let config: serde_json::Value = serde_json::from_str(parts(&config).2).unwrap();
    let config = &config["kubeproxy.config.k8s.io"];
    assert_eq!(config["kind"], "KubeProxyConfiguration", "{config}");
    assert_eq!(config["mode"], "nftables", "{config}");
}

#[test]
fn a_server_waits_for_its_address_and_reports_that_once() {
    let served = Served::new(Duration::from_secs(30));
    let (held, port) = port();
    let address = held.local_addr().unwrap();
    let telemetry = served.stage.telemetry.clone();
    let answer = move |request: &Request| pages::health(&telemetry, request);
    let server = Server {
        what: "health",
        address,
        connections: Connections::new(8, 8),
        failure: ListenFailure::Health,
        retry: SOON,
        on_failure: served.on_failure(),
    };
    served.runtime.spawn(server.run(answer));
    until("the failure", || !served.failures().is_empty());
    let text = format!(
        "health server cannot listen on 127.0.0.1:{port}: Address already in use (os error 98)"
    );
    thread::sleep(SOON * 3);
    assert_eq!(served.failures(), [ListenFailure::Health(text)]);
    let reason = served.failures()[0].reason();
    assert_eq!(reason, "FailedToStartProxierHealthcheck");
    drop(held);
    until("the server", || {
        std::net::TcpStream::connect(address).is_ok()
    });
    assert!(request(address, "GET /livez").starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_health_check_port_opens_moves_and_closes() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("127.0.0.0/8");
    let [first, second] = [port().1, port().1];
    let at = |host: u8, port| SocketAddr::from(([127, 0, 0, host], port));
    let is_open = |host, port| std::net::TcpStream::connect(at(host, port)).is_ok();
    served.stage.service("front", first, HERE);
    served.stage.sync();
    until("the first port", || is_open(1, first) && is_open(2, first));
    let answer = request(at(2, first), "GET /any/path");
    let headers = vec![
        "Content-Type: application/json",
        "X-Content-Type-Options: nosniff",
        "X-Load-Balancing-Endpoint-Weight: 1",
    ];
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"front\"\n\t},\n\t\"localEndpoints\": 1,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(parts(&answer), ("HTTP/1.1 200 OK", headers, body));
    served.stage.service("front", second, "node-2");
    served.stage.sync();
    until("the second port", || {
        is_open(1, second) && !is_open(1, first)
    });
    let answer = request(at(1, second), "PUT /");
    let (status, headers, body) = parts(&answer);
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(headers[2], "X-Load-Balancing-Endpoint-Weight: 0");
    assert!(body.contains("\t\"localEndpoints\": 0,\n"), "{body}");
    served.stage.service("front", 0, HERE);
    served.stage.sync();
    until("no port", || !is_open(1, second) && !is_open(2, second));
    assert_eq!(served.failures(), []);
}

#[test]
fn a_port_in_use_is_reported_once_and_opened_when_it_is_free() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("127.0.0.0/8");
    let (held, port) = port();
    let other = SocketAddr::from(([127, 0, 0, 2], port));
    served.stage.service("front", port, HERE);
    served.stage.sync();
    until("the failure", || !served.failures().is_empty());
    for _ in 0..3 {
        served.stage.node(serde_json::json!({}));
        served.stage.sync();
    }
    let text = format!(
        "health check port 127.0.0.1:{port} of shop/front: Address already in use (os error 98)"
    );
    let name = ObjectName::new("shop", "front");
    let failure = ListenFailure::Service { name, text };
    let is_open = || std::net::TcpStream::connect(other).is_ok();
    assert!(!is_open(), "all of its addresses or none");
    drop(held);
    until("the port", is_open);
    assert_eq!(
        (failure.reason(), failure.action()),
        ("FailedToStartServiceHealthcheck", "Listen")
    );
    assert_eq!(served.failures(), [failure]);
}

#[test]
fn no_port_opens_if_no_address_matches() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("192.0.2.0/24");
    let (held, port) = port();
    drop(held);
    served.stage.service("front", port, HERE);
    served.stage.sync();
    let syncs = served.stage.telemetry.syncs();
    thread::sleep(SOON * 3);
    assert!(!syncs.has_changed().unwrap());
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    assert_eq!(served.failures(), []);
}

/// Returns the Service in the response of a local port.
fn service_at(port: u16) -> Option<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let answer = try_request(address, "GET /")?;
    let body: serde_json::Value = serde_json::from_str(parts(&answer).2).ok()?;
    Some(body["service"]["name"].as_str()?.to_owned())
}

fn is_about(port: u16, service: &str) -> bool {
    service_at(port).as_deref() == Some(service)
}

/// A retry interval longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn a_port_moves_between_services_without_a_retry() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services_with("127.0.0.0/8", NEVER);
    let [one, other] = [port().1, port().1];
    let stage = &mut served.stage;
    stage.service("a", one, HERE);
    stage.sync();
    until("the port", || is_about(one, "a"));
    let mut kept = connect(SocketAddr::from(([127, 0, 0, 1], one)));
    request_on(&mut kept, "\"name\": \"a\"");
    // In one sync, to the Service that is first by name, and back.
    for (from, to) in [("a", "b"), ("b", "a")] {
        stage.service(from, 0, HERE);
        stage.service(to, one, HERE);
        stage.sync();
        until("the move", || is_about(one, to));
    }
    request_on(&mut kept, "\"name\": \"a\"");
    // Removed in a sync, added in the next one.
    stage.service("a", 0, HERE);
    stage.sync();
    stage.service("b", one, HERE);
    stage.sync();
    until("the second Service", || is_about(one, "b"));
    // Added in a sync, removed in the next one.
    stage.service("a", one, HERE);
    stage.sync();
    stage.service("b", 0, HERE);
    stage.sync();
    until("the first Service", || is_about(one, "a"));
    // Two Services swap their ports.
    stage.service("b", other, HERE);
    stage.sync();
    until("another port", || is_about(other, "b"));
    stage.service("a", other, HERE);
    stage.service("b", one, HERE);
    stage.sync();
    until("the swap", || is_about(one, "b") && is_about(other, "a"));
    assert_eq!(served.failures(), []);
}

#[test]
fn a_port_that_two_services_keep_is_reported_once() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("127.0.0.0/8");
    let number = port().1;
    served.stage.service("b", number, HERE);
    served.stage.sync();
    until("the port", || is_about(number, "b"));
    served.stage.service("a", number, HERE);
    served.stage.sync();
    until("the conflict", || !served.failures().is_empty());
    for _ in 0..3 {
        served.stage.node(serde_json::json!({}));
        served.stage.sync();
    }
    assert!(is_about(number, "b"));
    let name = ObjectName::new("shop", "a");
    let text = format!("health check port {number} of shop/a: the port belongs to Service shop/b");
    assert_eq!(served.failures(), [ListenFailure::Service { name, text }]);
    served.stage.service("b", 0, HERE);
    served.stage.sync();
    until("the other Service", || is_about(number, "a"));
}

#[test]
fn listeners_leave_descriptors_for_the_rest_of_the_process() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("127.0.0.0/8");
    let ports = [port().1, port().1, port().1];
    for (name, port) in [("a", ports[0]), ("b", ports[1])] {
        served.stage.service(name, port, HERE);
        served.stage.sync();
        until("a port", || is_about(port, name));
    }
    served.stage.service("c", ports[2], HERE);
    served.stage.sync();
    until("the failure", || !served.failures().is_empty());
    let name = ObjectName::new("shop", "c");
    let text = format!(
        "health check port {} of shop/c: all 5 listeners that RLIMIT_NOFILE has room for are in use",
        ports[2]
    );
    assert_eq!(served.failures(), [ListenFailure::Service { name, text }]);
    assert!(is_about(ports[0], "a") && is_about(ports[1], "b"));
    served.stage.service("a", 0, HERE);
    served.stage.sync();
    until("the third port", || is_about(ports[2], "c"));
    let limits = Limits::new(1024);
    let active = limits.health + limits.metrics + limits.services;
    let all = 3 * limits.idle + active + limits.listeners;
    assert!(all < 1024, "{limits:?}");
    assert_eq!(Limits::new(1 << 20).services, SERVICE_CONNECTIONS);
}
