//! What is answered on which port, byte by byte.

use std::net::TcpListener;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use tokio::runtime::Runtime;
use vipline_service_model::NodePortAddresses;

use super::http::tests::{ANY, ask, ask_if_open, ask_on, connect};
use super::*;
use crate::cli::Cli;
use crate::config::Effective;
use crate::telemetry::tests::Stage;

/// How long what is waited for may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// When what failed in a test is tried again.
const SOON: Duration = Duration::from_millis(20);

/// How many listeners the ports of Services may have.
const MAX_LISTENERS: usize = 5;

/// The node of the stage.
const HERE: &str = "node-1";

/// A stage with servers around it.
struct Served {
    stage: Stage,
    runtime: Runtime,
    told: Arc<Mutex<Vec<Trouble>>>,
}

impl Served {
    fn new(period: Duration) -> Self {
        let told: Arc<Mutex<Vec<Trouble>>> = Arc::default();
        Self {
            stage: Stage::new(period),
            runtime: Runtime::new().unwrap(),
            told,
        }
    }

    fn tell(&self) -> Tell {
        let told = Arc::clone(&self.told);
        Arc::new(move |trouble| told.lock().unwrap().push(trouble))
    }

    fn told(&self) -> Vec<Trouble> {
        self.told.lock().unwrap().clone()
    }

    /// Serves at an address of its own, which it returns.
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
                Timeouts::USUAL,
                answer,
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
        let pages = Arc::new(Pages::new(&settings, self.stage.telemetry.clone()));
        self.serve(move |request| pages.answer(request))
    }

    /// Opens the ports of Services on addresses within a network.
    fn serve_services(&self, within: &str) {
        self.serve_services_with(within, SOON);
    }

    fn serve_services_with(&self, within: &str, retry: Duration) {
        let ports = Ports {
            telemetry: self.stage.telemetry.clone(),
            judged: Judged::Really,
            addresses: NodePortAddresses::Within(vec![within.parse().unwrap()]),
            interfaces: || Ok(vec!["127.0.0.1".parse()?, "127.0.0.2".parse()?]),
            retry,
            connections: Connections::new(64, 64),
            max_listeners: MAX_LISTENERS,
            tell: self.tell(),
        };
        self.runtime.spawn(ports.run());
    }
}

/// Returns the status line, the headers but for those of every answer, and the
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
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a port that nobody has, or one that is held.
fn port() -> (TcpListener, u16) {
    let listener = TcpListener::bind(ANY).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn health_is_told_at_its_paths_to_any_method() {
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
        let answer = ask(address, words);
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
    let answer = ask(address, "GET /healthz");
    let (status, headers, body) = parts(&answer);
    assert_eq!(
        (status, headers),
        ("HTTP/1.1 503 Service Unavailable", json)
    );
    assert!(
        body.contains(r#""nodeEligible":false,"healthy":true"#),
        "{body}"
    );
    let answer = ask(address, "GET /metrics");
    let (status, _, body) = parts(&answer);
    assert_eq!(
        (status, body),
        ("HTTP/1.1 404 Not Found", "404 page not found\n")
    );
}

#[test]
fn the_port_of_metrics_has_its_pages() {
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
        let answer = ask(address, words);
        let (status, headers, actual) = parts(&answer);
        assert_eq!(status, "HTTP/1.1 200 OK", "{words}");
        let expected = [
            format!("Content-Type: {content_type}"),
            "X-Content-Type-Options: nosniff".to_owned(),
        ];
        assert_eq!(headers, expected, "{words}");
        assert_eq!(actual, body.unwrap_or(actual), "{words}");
    }
    let page = ask(address, "GET /metrics");
    let sample = "\nkubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n";
    assert!(page.contains(sample), "{page}");
    assert!(ask(address, "GET /livez").starts_with("HTTP/1.1 404 "));
    let config = ask(address, "GET /configz");
    let config: serde_json::Value = serde_json::from_str(parts(&config).2).unwrap();
    let config = &config["kubeproxy.config.k8s.io"];
    assert_eq!(config["kind"], "KubeProxyConfiguration", "{config}");
    assert_eq!(config["mode"], "nftables", "{config}");
}

#[test]
fn a_server_waits_for_its_address_and_tells_that_once() {
    let served = Served::new(Duration::from_secs(30));
    let (held, port) = port();
    let address = held.local_addr().unwrap();
    let telemetry = served.stage.telemetry.clone();
    let answer = move |request: &Request| pages::health(&telemetry, request);
    let server = Server {
        what: "health",
        address,
        connections: Connections::new(8, 8),
        trouble: Trouble::Health,
        retry: SOON,
        tell: served.tell(),
    };
    served.runtime.spawn(server.run(answer));
    until("the trouble", || !served.told().is_empty());
    let text = format!(
        "health cannot be served on 127.0.0.1:{port}: Address already in use (os error 98)"
    );
    thread::sleep(SOON * 3);
    assert_eq!(served.told(), [Trouble::Health(text)]);
    let reason = served.told()[0].reason();
    assert_eq!(reason, "FailedToStartProxierHealthcheck");
    drop(held);
    until("the server", || {
        std::net::TcpStream::connect(address).is_ok()
    });
    assert!(ask(address, "GET /livez").starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_port_of_a_service_opens_moves_and_closes() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("127.0.0.0/8");
    let [first, second] = [port().1, port().1];
    let at = |host: u8, port| SocketAddr::from(([127, 0, 0, host], port));
    let is_open = |host, port| std::net::TcpStream::connect(at(host, port)).is_ok();
    served.stage.service("front", first, HERE);
    served.stage.sync();
    until("the first port", || is_open(1, first) && is_open(2, first));
    let answer = ask(at(2, first), "GET /any/path");
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
    let answer = ask(at(1, second), "PUT /");
    let (status, headers, body) = parts(&answer);
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(headers[2], "X-Load-Balancing-Endpoint-Weight: 0");
    assert!(body.contains("\t\"localEndpoints\": 0,\n"), "{body}");
    served.stage.service("front", 0, HERE);
    served.stage.sync();
    until("no port", || !is_open(1, second) && !is_open(2, second));
    assert_eq!(served.told(), []);
}

#[test]
fn a_port_that_is_taken_is_told_once_and_opened_when_it_is_free() {
    let mut served = Served::new(Duration::from_secs(30));
    served.serve_services("127.0.0.0/8");
    let (held, port) = port();
    let other = SocketAddr::from(([127, 0, 0, 2], port));
    served.stage.service("front", port, HERE);
    served.stage.sync();
    until("the trouble", || !served.told().is_empty());
    for _ in 0..3 {
        served.stage.node(serde_json::json!({}));
        served.stage.sync();
    }
    let text = format!(
        "health check port 127.0.0.1:{port} of shop/front: Address already in use (os error 98)"
    );
    let name = ObjectName::new("shop", "front");
    let trouble = Trouble::Service { name, text };
    let is_open = || std::net::TcpStream::connect(other).is_ok();
    assert!(!is_open(), "all of its addresses or none");
    drop(held);
    until("the port", is_open);
    assert_eq!(
        (trouble.reason(), trouble.action()),
        ("FailedToStartServiceHealthcheck", "Listen")
    );
    assert_eq!(served.told(), [trouble]);
}

#[test]
fn where_no_address_matches_there_is_no_port() {
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
    assert_eq!(served.told(), []);
}

/// Returns the Service that an answer at a port of this machine is about.
fn service_at(port: u16) -> Option<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let answer = ask_if_open(address, "GET /")?;
    let body: serde_json::Value = serde_json::from_str(parts(&answer).2).ok()?;
    Some(body["service"]["name"].as_str()?.to_owned())
}

fn is_about(port: u16, service: &str) -> bool {
    service_at(port).as_deref() == Some(service)
}

/// A retry that does not come while a test waits.
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
    ask_on(&mut kept, "\"name\": \"a\"");
    // In one sync, to the Service that is first by name and back.
    for (from, to) in [("a", "b"), ("b", "a")] {
        stage.service(from, 0, HERE);
        stage.service(to, one, HERE);
        stage.sync();
        until("the move", || is_about(one, to));
    }
    ask_on(&mut kept, "\"name\": \"a\"");
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
    assert_eq!(served.told(), []);
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
    until("the conflict", || !served.told().is_empty());
    for _ in 0..3 {
        served.stage.node(serde_json::json!({}));
        served.stage.sync();
    }
    assert!(is_about(number, "b"));
    let name = ObjectName::new("shop", "a");
    let text = format!("health check port {number} of shop/a: Service shop/b has it");
    assert_eq!(served.told(), [Trouble::Service { name, text }]);
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
    until("the trouble", || !served.told().is_empty());
    let name = ObjectName::new("shop", "c");
    let text = format!(
        "health check port {} of shop/c: all 5 listeners that RLIMIT_NOFILE has room for are in use",
        ports[2]
    );
    assert_eq!(served.told(), [Trouble::Service { name, text }]);
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
