//! Tests of when searches run, of their dumps, and of failed searches.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use vipline_conntrack::{self as conntrack, Filter, Flow, Key, Protocol, Tuple};
use vipline_reconcile::{Edit, Keyed, Memory};
use vipline_service_model::{Event, ObjectName, ServicePort, api};
use vipline_stale_flows::Flows;

use super::*;
use crate::{Config, Context, Planner, PortObjects, Report, Trigger};

/// A planner that plans the addresses of endpoints.
#[derive(Clone, PartialEq)]
struct Addresses;

#[derive(Clone, Debug, PartialEq)]
struct Address(IpAddr);

impl Keyed for Address {
    type Key<'a> = IpAddr;

    fn key(&self) -> IpAddr {
        self.0
    }

    fn is_equivalent(&self, _: &Self) -> bool {
        true
    }
}

impl Planner for Addresses {
    type Object = Address;

    fn base(&self, _: &Context) -> Vec<Address> {
        Vec::new()
    }

    fn requires_replan(&self, _: &Context, _: &Context) -> bool {
        false
    }

    fn port(&self, _: &Context, port: &ServicePort) -> PortObjects<Address> {
        let endpoints = port.cluster.iter();
        endpoints
            .map(|it| Address(it.addr))
            .collect::<Vec<_>>()
            .into()
    }

    fn script<'a>(
        _: Family,
        edits: Vec<Edit<Address>>,
        _: impl Iterator<Item = &'a Address>,
    ) -> String {
        format!("{edits:?}")
    }

    fn listing<'a>(_: Family, addresses: impl Iterator<Item = &'a Address>) -> String {
        format!("{:?}", addresses.collect::<Vec<_>>())
    }
}

/// Result of a dump.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    Interrupted,
    Failed,
}

/// A table with one flow, which is stale, and the calls that were made.
#[derive(Clone, Default)]
struct Scripted {
    fates: Arc<Mutex<VecDeque<Fate>>>,
    dumps: Arc<Mutex<Vec<Filter>>>,
    deleted: Arc<Mutex<usize>>,
    /// Announces each dump, and returns when it may continue.
    gate: Arc<Mutex<Option<Gate>>>,
}

struct Gate {
    began: mpsc::Sender<()>,
    released: mpsc::Receiver<()>,
}

impl Flows for Scripted {
    fn count(&mut self) -> Result<usize, conntrack::Error> {
        Ok(1)
    }

    fn dump(
        &mut self,
        filter: &Filter,
        each: &mut dyn FnMut(Flow),
    ) -> Result<bool, conntrack::Error> {
        if let Some(gate) = &*self.gate.lock().unwrap() {
            gate.began.send(()).unwrap();
            gate.released.recv().unwrap();
        }
        self.dumps.lock().unwrap().push(*filter);
        let fate = self.fates.lock().unwrap().pop_front().unwrap_or(Fate::Fine);
        let (a, b) = (([10, 0, 0, 1].into(), 1), ([10, 96, 0, 1].into(), 53));
        let tuple = Tuple::ports(Protocol::UDP, a, b);
        match fate {
            Fate::Failed => return Err(conntrack::Error::Denied),
            Fate::Fine | Fate::Interrupted => each(Flow::new(tuple, tuple.inverted())),
        }
        Ok(matches!(fate, Fate::Fine))
    }

    fn delete(&mut self, keys: &[Key]) -> Result<usize, conntrack::Error> {
        *self.deleted.lock().unwrap() += keys.len();
        Ok(keys.len())
    }
}

struct Stage {
    engine: Engine,
    flows: Scripted,
    now: Duration,
}

impl Stage {
    /// Creates an engine of one family whose first dumps have these results.
    fn new(fates: &[Fate]) -> Self {
        let flows = Scripted::default();
        flows.fates.lock().unwrap().extend(fates);
        let config = Config {
            families: vec![Family::V4],
            ..Config::default()
        };
        let mut engine = Engine::with_kernels(config, Addresses, |_| Memory::new());
        engine.cleanup = Some(Cleanup::new(flows.clone()));
        Self {
            engine,
            flows,
            now: Duration::ZERO,
        }
    }

    /// Creates an engine that leaves searches to the caller.
    fn deferred(fates: &[Fate]) -> Self {
        let mut stage = Self::new(fates);
        stage.engine.defer_flow_searches();
        stage
    }

    /// Adds a Service, which is a change.
    fn change(&mut self) {
        self.service("dns", "10.96.0.1", "UDP");
        self.engine.apply(Event::Synced);
    }

    fn service(&mut self, name: &str, address: &str, protocol: &str) {
        let service = serde_json::json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"],
                "ports": [{ "port": 53, "protocol": protocol }],
            },
        });
        let service: api::Service = serde_json::from_value(service).unwrap();
        self.engine.apply(service.into());
    }

    /// Sets the endpoints of a Service.
    fn serve(&mut self, name: &str, protocol: &str, endpoints: &[&str]) {
        let endpoints = endpoints.iter().map(|address| {
            let conditions = serde_json::json!({ "ready": true });
            serde_json::json!({ "addresses": [address], "conditions": conditions })
        });
        let slice = serde_json::json!({
            "metadata": {
                "name": format!("{name}-1"), "namespace": "default",
                "labels": { "kubernetes.io/service-name": name },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "", "port": 5353, "protocol": protocol }],
            "endpoints": endpoints.collect::<Vec<_>>(),
        });
        let slice: api::EndpointSlice = serde_json::from_value(slice).unwrap();
        self.engine.apply(slice.into());
    }

    fn after(&mut self, seconds: u64) -> Option<Report> {
        self.after_millis(seconds * 1000)
    }

    fn after_millis(&mut self, millis: u64) -> Option<Report> {
        self.now += Duration::from_millis(millis);
        self.engine.poll(self.now)
    }

    /// Syncs after a change.
    fn sync(&mut self) -> Report {
        let report = self.after(10).or_else(|| self.after(10));
        report.expect("a sync is due")
    }

    /// Returns the number of dumps of the next sync.
    fn dumps(&mut self) -> usize {
        let before = self.flows.dumps.lock().unwrap().len();
        self.sync();
        self.flows.dumps.lock().unwrap().len() - before
    }

    /// Runs the search that is due, and returns its results.
    fn search(&mut self) -> Option<Result<CleanupReport, Error>> {
        let search = self.engine.take_flow_search(self.now)?;
        let finished = search.run();
        let results = self.engine.finish_flow_search(finished, self.now);
        results.into_iter().map(|(_, result)| result).next()
    }

    fn deleted(&self) -> usize {
        *self.flows.deleted.lock().unwrap()
    }
}

/// Returns the result of the search in a report; `None` without a search.
fn cleaned(report: Option<Report>) -> Option<Result<CleanupReport, Error>> {
    let families = report.into_iter().flat_map(|report| report.families);
    families.filter_map(|done| done.cleanup).next()
}

#[test]
fn a_change_is_followed_by_one_search() {
    let mut stage = Stage::new(&[]);
    assert!(stage.after(1).is_none());
    stage.change();
    let done = cleaned(stage.after(1)).unwrap().unwrap();
    assert_eq!((done.deleted, done.is_complete), (1, true));
    assert_eq!((done.dumps, done.checked), (1, 1));
    // No flow search without a change, even if the kernel is dumped.
    stage.engine.request_resync();
    let report = stage.after(10).or_else(|| stage.after(10));
    assert!(report.is_some() && cleaned(report).is_none());
    assert_eq!(stage.deleted(), 1);
}

#[test]
fn a_failed_or_interrupted_search_is_repeated() {
    let mut stage = Stage::new(&[Fate::Failed, Fate::Interrupted, Fate::Fine]);
    stage.change();
    assert!(cleaned(stage.after(1)).unwrap().is_err());
    // The search is retried after the retry interval, although no sync is due.
    assert!(stage.after(1).is_none());
    let done = cleaned(stage.after(30)).unwrap().unwrap();
    assert_eq!((done.deleted, done.is_complete), (1, false));
    assert!(stage.after(1).is_none());
    let done = cleaned(stage.after(30)).unwrap().unwrap();
    assert!(done.is_complete);
    assert!(stage.after(1).is_none() && stage.after(30).is_none());
    assert_eq!(stage.deleted(), 2);
}

#[test]
fn flows_of_a_deleted_service_are_foreign_after_a_complete_search() {
    let mut stage = Stage::new(&[Fate::Fine, Fate::Interrupted, Fate::Fine, Fate::Fine]);
    stage.change();
    stage.sync();
    let dns = ObjectName {
        namespace: "default".into(),
        name: "dns".into(),
    };
    stage.engine.apply(Event::ServiceDeleted(dns));
    let done = cleaned(Some(stage.sync())).unwrap().unwrap();
    assert!(!done.is_complete);
    let found = |stage: &Stage| stage.engine.cleanup.as_ref().unwrap().find(Family::V4);
    assert_eq!(found(&stage).unwrap().len(), 1);
    assert!(stage.after(1).is_none());
    let done = cleaned(stage.after(30)).unwrap().unwrap();
    assert!(done.is_complete);
    // Another program may use the address now.
    assert_eq!(found(&stage).unwrap().len(), 0);
}

#[test]
fn a_change_costs_a_dump_only_if_it_can_make_flows_stale() {
    let mut stage = Stage::new(&[]);
    stage.engine.apply(Event::Synced);
    for (name, address, protocol) in [("dns", "10.96.0.1", "UDP"), ("web", "10.96.0.2", "TCP")] {
        stage.service(name, address, protocol);
        assert_eq!(stage.dumps(), 1, "a new address of a Service");
        stage.serve(name, protocol, &["10.1.0.1"]);
        let first = usize::from(protocol == "UDP");
        assert_eq!(stage.dumps(), first, "the first endpoint of {name}");
        stage.serve(name, protocol, &["10.1.0.1", "10.1.0.2"]);
        assert_eq!(stage.dumps(), 0, "another endpoint of {name}");
        stage.serve(name, protocol, &["10.1.0.1", "10.1.0.3"]);
        assert_eq!(stage.dumps(), 1, "a replaced endpoint of {name}");
        stage.serve(name, protocol, &[]);
        assert_eq!(stage.dumps(), 1, "no endpoint of {name}");
    }
    // All changes of a sync share the dump of a protocol.
    for number in 1..=100 {
        stage.service(
            &format!("dns-{number}"),
            &format!("10.97.0.{number}"),
            "UDP",
        );
    }
    assert_eq!(stage.dumps(), 1);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test is a caller with a thread for searches"
)]
fn the_kernel_has_the_rules_while_a_search_is_slow() {
    let mut stage = Stage::deferred(&[]);
    let (began, begins) = mpsc::channel();
    let (release, released) = mpsc::channel();
    *stage.flows.gate.lock().unwrap() = Some(Gate { began, released });
    stage.change();
    assert!(cleaned(stage.after(1)).is_none(), "the caller searches");
    stage.now += Duration::from_secs(1);
    let search = stage.engine.take_flow_search(stage.now).expect("it is due");
    let search = thread::spawn(move || search.run());
    begins.recv().unwrap();
    // The search hangs, and changes are committed.
    for endpoint in ["10.1.0.1", "10.1.0.2", "10.1.0.3"] {
        stage.serve("dns", "UDP", &[endpoint]);
        let report = stage.sync();
        assert_eq!(report.trigger, Trigger::Change);
        assert!(report.is_success() && report.families[0].outcome.as_ref().unwrap().edits > 0);
        assert!(
            stage.engine.take_flow_search(stage.now).is_none(),
            "one at a time"
        );
    }
    release.send(()).unwrap();
    let finished = search.join().unwrap();
    let results = stage.engine.finish_flow_search(finished, stage.now);
    assert!(matches!(&results[..], [(Family::V4, Ok(_))]), "{results:?}");
    *stage.flows.gate.lock().unwrap() = None;
    // One search for all later changes.
    stage.now += Duration::from_secs(1);
    let report = stage.search().unwrap().unwrap();
    assert_eq!((report.dumps, report.is_complete), (1, true));
    assert!(stage.search().is_none());
}

#[test]
fn a_search_of_the_caller_waits_for_a_moment_and_for_a_pause_after_the_last_one() {
    let mut stage = Stage::deferred(&[]);
    stage.change();
    stage.after(1);
    assert_eq!(stage.engine.next_deadline(), Some(Duration::ZERO));
    stage.after(0);
    let due = stage.now + Duration::from_millis(20);
    assert_eq!(stage.engine.next_deadline(), Some(due));
    assert!(stage.engine.take_flow_search(stage.now).is_none());
    stage.now = due;
    assert!(stage.search().unwrap().is_ok());
    // Changes of any number of syncs share the next search.
    stage.engine.request_resync();
    for endpoint in ["10.1.0.1", "10.1.0.2"] {
        stage.serve("dns", "UDP", &[endpoint]);
        stage.sync();
    }
    assert!(stage.after(10).is_none());
    assert_eq!(stage.search().unwrap().unwrap().dumps, 1);
    assert!(stage.search().is_none());
    assert_eq!(stage.engine.next_deadline(), stage.idle_deadline());
}

impl Stage {
    /// Returns the deadline of an engine without searches.
    fn idle_deadline(&self) -> Option<Duration> {
        let mut idle = Self::new(&[]);
        idle.change();
        idle.now = self.now;
        idle.after(0);
        idle.after(0);
        idle.engine.next_deadline()
    }
}

#[test]
fn a_failed_search_of_the_caller_is_repeated_without_a_sync() {
    let mut stage = Stage::deferred(&[Fate::Failed, Fate::Interrupted, Fate::Fine]);
    stage.change();
    stage.after(1);
    stage.after(1);
    assert!(stage.search().unwrap().is_err());
    assert!(stage.after(1).is_none() && stage.search().is_none());
    assert!(stage.after(30).is_none(), "no sync is due");
    let done = stage.search().unwrap().unwrap();
    assert_eq!((done.deleted, done.is_complete), (1, false));
    assert!(stage.after_millis(100).is_none() && stage.search().is_none());
    assert!(stage.after_millis(200).is_none());
    assert!(stage.search().unwrap().unwrap().is_complete);
    assert!(stage.after(60).is_none() && stage.search().is_none());
    assert_eq!(stage.deleted(), 2);
}
