//! Tests of health and metrics as results of the engine's reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use proxy_core::{Config, Event, Planner, backend};
use serde_json::{Value, json};
use vipline_kube_source::api::{Observer, RequestEvent};
use vipline_reconcile::{Edit, Keyed, Memory, MemoryError, Rejection, Target};
use vipline_service_model::api;

use super::*;

mod flows;

mod iptables;

mod ipvs;

mod services;

mod strict;

mod unused;

/// Name of the node.
const NODE: &str = "node-1";

/// An engine over in-memory kernels that can fail, and its telemetry.
pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) telemetry: Telemetry,
    /// Whether the IPv4 kernel fails.
    refuses: Arc<AtomicBool>,
    now: Duration,
}

struct Refusing<T: Keyed> {
    memory: Memory<T>,
    refuses: Arc<AtomicBool>,
}

impl<T: Keyed> Target for Refusing<T> {
    type Object = T;
    type Error = MemoryError;

    fn dump(&mut self) -> Result<Vec<T>, MemoryError> {
        self.memory.dump()
    }

    fn commit(&mut self, edits: &[Edit<T>]) -> Result<Vec<Rejection>, MemoryError> {
        if self.refuses.load(Ordering::Relaxed) {
            self.memory.fail_after(0);
        }
        self.memory.commit(edits)
    }
}

impl Stage {
    /// Creates an engine with a node and empty lists of objects. With `period`
    /// zero, every pending change is late.
    pub(crate) fn new(period: Duration) -> Self {
        Self::in_mode::<backend::nftables::Planner>(Mode::Nftables, period)
    }

    /// Creates such an engine in a mode.
    fn in_mode<P>(mode: Mode, period: Duration) -> Self
    where
        P: Planner + for<'a> From<&'a Config>,
        P::Object: Send + std::marker::Sync,
    {
        let config = Config::new(NODE).with_mode(mode);
        let telemetry = Telemetry::new(Some(config.mode), &config.engine.families, period);
        let refuses = Arc::new(AtomicBool::new(false));
        let planner = P::from(&config);
        let engine = Engine::with_kernels(config.engine, planner, |family| Refusing {
            memory: Memory::new(),
            refuses: match family {
                Family::V4 => Arc::clone(&refuses),
                Family::V6 => Arc::default(),
            },
        });
        let mut stage = Self {
            engine,
            telemetry,
            refuses,
            now: Duration::ZERO,
        };
        stage.node(json!({}));
        stage.apply(Event::Synced);
        stage
    }

    pub(crate) fn apply(&mut self, event: Event) {
        assert_eq!(self.engine.apply(event), []);
        self.telemetry.applied(&self.engine, Instant::now());
    }

    /// Changes the Node: its address and `spec`.
    pub(crate) fn node(&mut self, spec: Value) {
        let addresses = json!([{ "type": "InternalIP", "address": "127.0.0.1" }]);
        let node = json!({
            "metadata": { "name": NODE }, "spec": spec, "status": { "addresses": addresses },
        });
        self.apply(Event::NodeApplied(serde_json::from_value(node).unwrap()));
    }

    /// Adds a Service with one endpoint on `node`, and with health check node
    /// port `port` unless it is zero.
    pub(crate) fn service(&mut self, name: &str, port: u16, node: &str) {
        let policy = if port > 0 { "Local" } else { "Cluster" };
        let service = json!({
            "metadata": { "namespace": "shop", "name": name },
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.96.0.10",
                "ports": [{ "port": 80, "nodePort": 30080 }],
                "externalTrafficPolicy": policy, "healthCheckNodePort": port,
            },
        });
        let service: api::Service = serde_json::from_value(service).unwrap();
        self.apply(service.into());
        self.slice(name, node, None);
    }

    fn slice(&mut self, service: &str, node: &str, trigger: Option<String>) {
        let mut slice = json!({
            "metadata": {
                "namespace": "shop", "name": service, "annotations": {},
                "labels": { "kubernetes.io/service-name": service },
            },
            "addressType": "IPv4", "ports": [{ "port": 8080 }],
            "endpoints": [{ "addresses": ["10.1.0.1"], "nodeName": node }],
        });
        if let Some(trigger) = trigger {
            let key = "endpoints.kubernetes.io/last-change-trigger-time";
            slice["metadata"]["annotations"][key] = trigger.into();
        }
        let slice: api::EndpointSlice = serde_json::from_value(slice).unwrap();
        self.apply(slice.into());
    }

    /// Syncs when the next sync is due.
    pub(crate) fn sync(&mut self) {
        self.sync_and_search(|_| {});
    }

    /// Syncs when the next sync is due. `search` sets the result of the search
    /// for stale flows.
    fn sync_and_search(&mut self, search: impl FnOnce(&mut Report)) {
        let mut report = loop {
            self.now += Duration::from_secs(2);
            if let Some(report) = self.engine.poll(self.now) {
                break report;
            }
        };
        search(&mut report);
        let now = Instant::now();
        let took = Duration::from_millis(3);
        self.telemetry
            .synced(&self.engine, &report, now, now + took);
    }

    fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    fn codes(&self) -> (u16, u16) {
        let code = |probe| self.telemetry.probe(probe).code;
        (code(Probe::Healthz), code(Probe::Livez))
    }

    /// Returns the value of a sample, if the page has it.
    fn value(&self, sample: &str) -> Option<f64> {
        let page = self.telemetry.metrics(&Gates::default());
        let line = page.lines().find_map(|line| line.strip_prefix(sample))?;
        Some(line.trim().parse().unwrap())
    }

    #[track_caller]
    fn expect(&self, expected: &[(&str, f64)]) {
        for (sample, value) in expected {
            let sample = format!("kubeproxy_{sample}").replace("kubeproxy_vipline", "vipline");
            assert_eq!(self.value(&sample), Some(*value), "{sample}");
        }
    }
}

/// Returns a line per metric: name, type, labels and buckets.
fn shape(page: &str) -> String {
    let mut shape = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let words: Vec<_> = line.split(' ').collect();
        shape.insert(words[2], (words[3], Vec::new(), Vec::new()));
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let base = ["_bucket", "_sum", "_count"].iter();
        let mut base = base.filter_map(|end| name.strip_suffix(end));
        let base = base.rfind(|base| shape.contains_key(base));
        let (_, all, buckets) = shape.get_mut(base.unwrap_or(name)).expect(name);
        let labels = labels.trim_end_matches('}').split(',');
        for label in labels.filter(|label| !label.is_empty()) {
            match label.split_once('=').unwrap() {
                ("le", bound) => buckets.push(bound.trim_matches('"').to_owned()),
                ("git_version" | "platform" | "name", _) => {}
                (label, value) => all.push(format!("{label}={}", value.trim_matches('"'))),
            }
        }
    }
    let lines = shape.into_iter().map(|(name, (kind, labels, buckets))| {
        let mut words = vec![name.to_owned(), kind.to_owned()];
        for word in labels.into_iter().chain(buckets) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words.join(" ") + "\n"
    });
    lines.collect()
}

#[test]
fn rejected_objects_are_counted_and_do_not_affect_health() {
    let mut stage = Stage::in_mode::<backend::ipvs::Planner>(Mode::Ipvs, Duration::ZERO);
    stage.service("web", 0, NODE);
    let service =
        vipline_ipvs::ServiceKey::new(vipline_ipvs::Transport::Tcp, [10, 96, 0, 10].into(), 80);
    let real = vipline_ipvs::RealServer::new([10, 1, 0, 1].into(), 8080);
    let object: backend::ipvs::Object = vipline_ipvs::Object::Destination(service, real).into();
    let mut memory = Memory::new();
    memory.reject(object, 22);
    let config = Config::new(NODE).with_mode(Mode::Ipvs);
    let planner = backend::ipvs::Planner::from(&config);
    let mut engine = Engine::with_kernels(config.engine, planner, |_| memory.clone());
    std::mem::swap(&mut stage.engine, &mut engine);
    stage.node(json!({}));
    stage.service("web", 0, NODE);
    stage.apply(Event::Synced);
    stage.sync();
    let sample = "sync_rejected_objects{ip_family=\"IPv4\",mode=\"ipvs\"}";
    stage.expect(&[(sample, 1.0)]);
    assert_eq!(stage.codes(), (200, 200));
    // An allowed address replaces the rejected one.
    let name = ObjectName::new("shop", "web");
    stage.apply(Event::ServiceDeleted(name));
    stage.sync();
    stage.expect(&[(sample, 0.0)]);
    assert_eq!(stage.codes(), (200, 200));
}

#[test]
fn the_page_equals_the_golden_file() {
    let stage = Stage::new(Duration::from_secs(30));
    compare_with_golden(stage, "metrics.txt");
}

/// Compares the page of a proxy after some syncs with a golden file.
#[track_caller]
fn compare_with_golden(mut stage: Stage, file: &str) {
    stage.service("front", 0, NODE);
    stage.sync();
    let contact = stage.telemetry.clone();
    contact.contact(Kind::Service, Contact::InSync);
    contact.request("10.0.0.1:6443", "GET", RequestEvent::Response(200));
    let page = stage.telemetry.metrics(&Gates::default());
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    testkit::golden::compare(file, &shape(&page));
    let helps = page.lines().filter(|line| line.starts_with("# HELP "));
    assert_eq!(helps.count(), shape(&page).lines().count());
    assert!(page.ends_with('\n') && !page.contains("# EOF"));
}

#[test]
fn pages_are_valid_in_all_states() {
    let mut stage = Stage::new(Duration::from_secs(30));
    strict::check(&stage.telemetry.metrics(&Gates::default()));
    for (refuses, count) in [(true, 1), (false, 2), (false, 3)] {
        stage.refuse(refuses);
        for number in 0..count {
            stage.service(&format!("front-{number}"), 31_000 + number, NODE);
        }
        stage.sync();
        assert_eq!(stage.codes(), (200, 200));
    }
    for kind in [Kind::Service, Kind::Node] {
        let contact = Contact::LostSince(Instant::now());
        stage.telemetry.contact(kind, contact);
    }
    for host in ["10.0.0.1:6443", "\"\\\n{},= "] {
        for what in [
            RequestEvent::RateLimited(Duration::MAX),
            RequestEvent::Response(200),
            RequestEvent::Response(410),
            RequestEvent::Failed,
            RequestEvent::Finished(Duration::ZERO),
            RequestEvent::Finished(Duration::from_secs(61)),
        ] {
            for method in ["GET", "POST"] {
                stage.telemetry.request(host, method, what);
            }
        }
    }
    strict::check(&stage.telemetry.metrics(&Gates::default()));
}

#[test]
fn changes_and_syncs_are_counted() {
    let mut stage = Stage::new(Duration::from_secs(30));
    let last = "sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}";
    assert_eq!(stage.value(&format!("kubeproxy_{last}")), None);
    stage.service("front", 0, "node-2");
    stage.expect(&[
        ("sync_proxy_rules_service_changes_pending", 1.0),
        ("sync_proxy_rules_endpoint_changes_pending", 1.0),
    ]);
    stage.sync();
    stage.slice("front", NODE, None);
    stage.slice("front", "node-2", None);
    stage.expect(&[("sync_proxy_rules_endpoint_changes_pending", 2.0)]);
    stage.slice("front", NODE, None);
    stage.sync();
    stage.expect(&[
        ("sync_proxy_rules_service_changes_pending", 0.0),
        ("sync_proxy_rules_service_changes_total", 2.0),
        ("sync_proxy_rules_endpoint_changes_pending", 0.0),
        ("sync_proxy_rules_endpoint_changes_total", 4.0),
        (
            "sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            2.0,
        ),
        (
            "sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv6\"}",
            0.006,
        ),
        (
            "sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.002\"}",
            0.0,
        ),
        (
            "sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.004\"}",
            2.0,
        ),
        (
            "sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            1.0,
        ),
        (
            "sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            1.0,
        ),
        (
            "sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}",
            0.0,
        ),
        (
            "vipline_event_to_kernel_seconds_count{ip_family=\"IPv6\"}",
            2.0,
        ),
        ("vipline_sync_edits_count{ip_family=\"IPv4\"}", 2.0),
        ("vipline_contested_addresses", 0.0),
    ]);
    let objects = stage.value("vipline_objects{ip_family=\"IPv4\"}").unwrap();
    assert!(objects > stage.value("vipline_objects{ip_family=\"IPv6\"}").unwrap());
    let passed = clock().seconds - 60;
    for name in [
        last,
        "sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"}",
    ] {
        let value = stage.value(&format!("kubeproxy_{name}")).unwrap();
        assert!(value > passed as f64, "{name}: {value}");
    }
}

#[test]
fn ports_without_local_endpoints_are_counted() {
    let mut stage = Stage::new(Duration::from_secs(30));
    let name = "sync_proxy_rules_no_local_endpoints_total";
    let [internal, external] = ["internal", "external"]
        .map(|policy| format!("{name}{{ip_family=\"IPv4\",traffic_policy=\"{policy}\"}}"));
    stage.service("front", 31_000, "node-2");
    stage.sync();
    stage.expect(&[(&*internal, 0.0), (&*external, 1.0)]);
    stage.service("front", 31_000, NODE);
    stage.sync();
    stage.expect(&[(&*external, 0.0)]);
}

#[test]
fn programming_latency_is_observed_after_the_commit() {
    let mut stage = Stage::new(Duration::from_secs(30));
    stage.sync();
    stage.refuse(true);
    stage.service("front", 0, "node-2");
    let mut cause = clock();
    cause.seconds -= 3;
    stage.slice("front", NODE, Some(cause.to_string()));
    stage.sync();
    let sample =
        |family, end| format!("network_programming_duration_seconds_{end}ip_family=\"{family}\"");
    let bucket = |family, bound| sample(family, "bucket{") + &format!(",le=\"{bound}\"}}");
    let count = |family| sample(family, "count{") + "}";
    stage.expect(&[(&*count("IPv4"), 0.0), (&*count("IPv6"), 0.0)]);
    stage.refuse(false);
    stage.sync();
    stage.expect(&[
        (&*count("IPv4"), 1.0),
        (&*bucket("IPv4", "2"), 0.0),
        (&*bucket("IPv4", "60"), 1.0),
        (&*count("IPv6"), 0.0),
    ]);
}

#[test]
fn a_failed_sync_is_unhealthy_when_it_is_late() {
    let mut stage = Stage::new(Duration::ZERO);
    assert_eq!(stage.codes(), (503, 503), "the first sync is due");
    stage.sync();
    assert_eq!(stage.codes(), (200, 200));
    stage.refuse(true);
    stage.service("front", 0, NODE);
    stage.sync();
    assert_eq!(stage.codes(), (503, 503));
    let body = stage.telemetry.probe(Probe::Livez).body;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"]["IPv4"]["healthy"], false);
    assert_eq!(body["status"]["IPv6"]["healthy"], true);
    stage.refuse(false);
    stage.sync();
    assert_eq!(stage.codes(), (200, 200));
    stage.expect(&[
        (
            "sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}",
            1.0,
        ),
        (
            "sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv6\"}",
            0.0,
        ),
        (
            "sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            2.0,
        ),
        (
            "sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}",
            1.0,
        ),
        ("proxy_healthz_total{code=\"200\"}", 2.0),
        ("proxy_healthz_total{code=\"503\"}", 2.0),
        ("proxy_livez_total{code=\"200\"}", 2.0),
        ("proxy_livez_total{code=\"503\"}", 3.0),
    ]);
}

#[test]
fn node_changes_take_effect_at_once() {
    let mut stage = Stage::new(Duration::from_secs(30));
    assert_eq!(stage.codes(), (200, 200));
    let taint = json!({ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" });
    stage.node(json!({ "taints": [taint] }));
    assert_eq!(stage.codes(), (503, 200));
    stage.node(json!({}));
    assert_eq!(stage.codes(), (200, 200));
    stage.apply(Event::NodeDeleted(NODE.into()));
    assert_eq!(stage.codes(), (200, 200), "what was known stays known");
}

#[test]
fn a_proxy_without_a_node_is_live_but_not_eligible() {
    let telemetry = Telemetry::new(Some(Mode::Nftables), &Family::ALL, Duration::from_secs(30));
    let codes = [Probe::Healthz, Probe::Livez].map(|probe| telemetry.probe(probe).code);
    assert_eq!(codes, [503, 200]);
}

#[test]
fn staleness_is_zero_while_a_watch_is_in_sync() {
    let stage = Stage::new(Duration::from_secs(30));
    let sample = "vipline_source_staleness_seconds{kind=\"EndpointSlice\"}";
    assert_eq!(stage.value(sample), None);
    let kind = Kind::EndpointSlice;
    stage.telemetry.contact(kind, Contact::InSync);
    assert_eq!(stage.value(sample), Some(0.0));
    let then = Instant::now() - Duration::from_secs(90);
    stage.telemetry.contact(kind, Contact::LostSince(then));
    assert!(stage.value(sample).unwrap() >= 90.0);
    assert_eq!(stage.codes().1, 200, "health does not depend on the source");
}
