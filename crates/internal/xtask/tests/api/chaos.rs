//! One minute of faults of the API server, under traffic.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{
    ApiServer, Chaos, CutAfter, Disconnect, ErrorResponse, FaultCounts, FaultKind, Layer,
};
use testkit::flag::SetOnDrop;
use testkit::traffic::{Connection, Load, Server};

use crate::cluster::{Cluster, PAUSE, Source, go_on, stop, until};
use crate::kernel::KernelMonitor;
use crate::objects::{Generation, ShortLived, rolling, rolling_probes, web_probes};

/// Duration of random faults between two outages.
const FAULTS: Duration = Duration::from_secs(13);

/// Number of Services deleted during an outage, ten per second.
const UNSEEN_DELETIONS: usize = 20;

/// Bytes of the first truncated list.
const TRUNCATED: usize = 150;

/// Time between changes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// Time that a server runs after its endpoint has been removed from the kernel.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Number of short-lived Services that exist at a time.
const SHORT_LIVED: usize = 10;

/// Number of endpoints of `rolling` at a time.
const ROLLING_ENDPOINTS: usize = 3;

/// Number of the first marker Service, whose arrival shows that all changes arrived.
const FIRST_MARKER: usize = 10_000;

/// A kind of outage of the API server.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// The server refuses connections.
    Refused,
    /// The server refuses connections and loses its watch history.
    Restarted,
    /// Connections stay open but transfer no data.
    Hanging,
    /// The server loses its watch history and answers every request with 503.
    Failing,
}

/// State shared by the threads of the test.
struct Scenario {
    cluster: Cluster,
    kernel: KernelMonitor,
    /// Deleted addresses and endpoints, with the time of their deletion.
    deleted: Mutex<BTreeMap<String, Instant>>,
    /// Held while a thread changes objects.
    changes: Mutex<()>,
    markers: AtomicUsize,
    is_over: AtomicBool,
}

#[test]
fn the_kernel_converges_without_failed_requests_during_a_minute_of_api_faults() {
    let scenario = Scenario::new();
    let servers = scenario.begin_rolling();
    let mut options = scenario.cluster.options(Source::Api);
    // Every change must reach the kernel; none may be merged with its successor.
    options.flags = ["--iptables-min-sync-period", "0s"].map(Into::into).into();
    let proxy = scenario.cluster.start(&options);
    let begin = Instant::now();
    let loads: Vec<Load> = scenario
        .cluster
        .load(web_probes(&scenario.cluster.lab).chain(rolling_probes()));
    let connections = scenario.cluster.connect();
    let (mishaps, messages, (replaced, _servers), short_lived) = thread::scope(|scope| {
        let stop = SetOnDrop::new(&scenario.is_over);
        let messages = scope.spawn(|| scenario.send_messages(connections));
        let replaced = scope.spawn(|| scenario.roll(servers));
        let short_lived = scope.spawn(|| scenario.create_and_delete_services());
        let mut mishaps = FaultCounts::new();
        for (seed, outage) in (0..).zip([
            Outage::Refused,
            Outage::Restarted,
            Outage::Hanging,
            Outage::Failing,
        ]) {
            let chaos = Chaos::new(seed.into(), FAULTS).pause(CHANGE_INTERVAL);
            for (mishap, count) in chaos.run(&scenario.cluster.server) {
                *mishaps.entry(mishap).or_default() += count;
            }
            scenario.truncate_list(TRUNCATED * 4_usize.pow(seed));
            scenario.run_outage(outage);
        }
        drop(stop);
        let messages = messages.join().unwrap();
        let (replaced, short_lived) = (replaced.join().unwrap(), short_lived.join().unwrap());
        (mishaps, messages, replaced, short_lived)
    });
    scenario.settle();
    until("the kernel has the state of the API", || {
        let mut diff = options.command();
        let output = scenario
            .cluster
            .lab
            .node
            .netns
            .run(|| diff.arg("diff").output());
        output.unwrap().status.code() == Some(0)
    });
    go_on(&loads, 50);
    let asked = stop(loads);
    let took = begin.elapsed();
    proxy.stop().unwrap();
    let removals = scenario.check_removals();
    println!(
        "{took:?}: {mishaps:?}; {replaced} endpoints replaced, {short_lived} short-lived Services, \
        {removals} facts removed, {asked} requests and {messages} messages without a failure"
    );
    assert_eq!(mishaps.len(), FaultKind::RECOVERABLE.len(), "{mishaps:?}");
    assert!(replaced > 20 && short_lived > 100 && removals > 100);
}

impl Scenario {
    fn new() -> Self {
        let cluster = Cluster::new();
        cluster.server.apply(rolling());
        Self {
            kernel: KernelMonitor::listen(&cluster.lab.node.netns),
            cluster,
            deleted: Mutex::default(),
            changes: Mutex::default(),
            markers: AtomicUsize::new(FIRST_MARKER),
            is_over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Keeps other threads from changing objects while the guard exists.
    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap()
    }

    /// Records the deletion of an address or endpoint.
    fn record_deletion(&self, key: String) {
        self.deleted.lock().unwrap().insert(key, Instant::now());
    }

    /// Creates the first endpoints of `rolling`, and returns their servers.
    fn begin_rolling(&self) -> Vec<Vec<Server>> {
        let first = (0..ROLLING_ENDPOINTS).map(|number| {
            let generation = Generation(number);
            let slice = generation.slice(&self.cluster.lab);
            self.cluster.server.apply(slice);
            self.cluster.serve(generation)
        });
        first.collect()
    }

    /// Sends messages on each connection until the end; returns their number.
    fn send_messages(&self, mut connections: Vec<Connection>) -> usize {
        let mut messages = 0;
        while !self.is_over() {
            for connection in &mut connections {
                connection.exchange("still there?").unwrap();
                messages += 1;
            }
            thread::sleep(PAUSE);
        }
        messages
    }

    /// Creates and deletes short-lived Services until the end; returns their number.
    fn create_and_delete_services(&self) -> usize {
        let mut next = 0;
        while !self.is_over() {
            let alone = self.lock_changes();
            let objects = ShortLived(next).objects(&self.cluster.lab);
            self.cluster.server.apply_all(objects);
            if let Some(last) = next.checked_sub(SHORT_LIVED) {
                self.delete(ShortLived(last));
            }
            drop(alone);
            next += 1;
            thread::sleep(CHANGE_INTERVAL);
        }
        next
    }

    /// Deletes a Service and its EndpointSlice, in alternating order.
    fn delete(&self, service: ShortLived) {
        self.record_deletion(service.address());
        let mut kinds = ["Service", "EndpointSlice"];
        kinds.rotate_left(service.0 % 2);
        for kind in kinds {
            let server = &self.cluster.server;
            assert!(server.delete(kind, "default", &service.name()));
        }
    }

    /// Replaces the endpoints of `rolling` one after another until the end.
    /// Returns the number of replacements, and the servers of the remaining endpoints.
    ///
    /// Two of three endpoints are always in the kernel. The server of the replaced one
    /// runs for [`GRACE_PERIOD`] after its removal.
    fn roll(&self, serving: Vec<Vec<Server>>) -> (usize, Vec<Vec<Server>>) {
        let (lab, server) = (&self.cluster.lab, &self.cluster.server);
        let mut serving = VecDeque::from(serving);
        // Servers of removed endpoints, with the time of the removal.
        let mut terminating = VecDeque::new();
        let mut replaced = 0;
        while !self.is_over() {
            let (old, new) = (
                Generation(replaced),
                Generation(replaced + ROLLING_ENDPOINTS),
            );
            serving.push_back(self.cluster.serve(new));
            let alone = self.lock_changes();
            server.apply(new.slice(lab));
            self.record_deletion(old.key(lab));
            assert!(server.delete("EndpointSlice", "default", &old.name()));
            drop(alone);
            until("an endpoint is replaced", || {
                let is_done = self.kernel.has(&new.key(lab)) && !self.kernel.has(&old.key(lab));
                is_done || self.is_over()
            });
            terminating.push_back((Instant::now(), serving.pop_front()));
            terminating.retain(|(since, _)| since.elapsed() < GRACE_PERIOD);
            replaced += 1;
            thread::sleep(CHANGE_INTERVAL);
        }
        // The load sends requests to them until the end.
        (replaced, serving.into())
    }

    /// Waits until all changes so far are in the kernel; returns the elapsed time.
    fn settle(&self) -> Duration {
        let begin = Instant::now();
        let marker = ShortLived(self.markers.fetch_add(1, Ordering::Relaxed));
        let objects = marker.objects(&self.cluster.lab);
        self.cluster.server.apply_all(objects);
        let key = format!("{} . tcp . 80", marker.address());
        until("a change reaches the kernel", || self.kernel.has(&key));
        begin.elapsed()
    }

    /// Waits until the kernel has removed all deleted addresses and endpoints.
    fn wait_for_removals(&self) {
        let deleted = self.deleted.lock().unwrap().clone();
        until("deleted addresses and endpoints are removed", || {
            deleted.keys().all(|key| !self.kernel.has(key))
        });
    }

    /// Expires all watches, and truncates one of the following lists after `bytes`.
    fn truncate_list(&self, bytes: usize) {
        let server = &self.cluster.server;
        let (layer, disconnect) = (Layer::Http, Disconnect::Close);
        server.faults(|faults| {
            faults.cut_after = Some(CutAfter {
                bytes,
                layer,
                disconnect,
            });
        });
        server.expire_watches();
        until("a list is truncated", || {
            let mut is_cut = false;
            server.faults(|faults| is_cut = faults.cut_after.is_none());
            is_cut
        });
    }

    /// Runs an outage, during which the proxy must not remove anything.
    fn run_outage(&self, outage: Outage) {
        let (server, node) = (&self.cluster.server, &self.cluster.lab.node.netns);
        let alone = self.lock_changes();
        let settled = self.settle();
        // After a relist, the proxy applies additions before deletions.
        self.wait_for_removals();
        self.kernel.catch_up(node);
        let before = self.kernel.inspect(|observed| observed.deletions.len());
        outage.begin(server);
        drop(alone);
        let count = self.deleted.lock().unwrap().len();
        until("objects are deleted", || {
            self.deleted.lock().unwrap().len() >= count + UNSEEN_DELETIONS
        });
        let alone = self.lock_changes();
        self.kernel.catch_up(node);
        let removed = self
            .kernel
            .inspect(|observed| observed.deletions[before..].to_vec());
        assert_eq!(removed, [""; 0], "{outage:?}");
        outage.end(server);
        let recovered = self.settle();
        self.wait_for_removals();
        drop(alone);
        println!("{outage:?}: synced after {settled:?}, recovered after {recovered:?}");
    }

    /// Checks that each removal follows a deletion in the API; returns their number.
    fn check_removals(&self) -> usize {
        self.kernel.catch_up(&self.cluster.lab.node.netns);
        let deleted = self.deleted.lock().unwrap();
        self.kernel.inspect(|observed| {
            for (at, fact) in &observed.lost {
                let address = fact.service.split(' ').next().unwrap_or_default();
                let keys = [address, &fact.endpoint];
                let is_deleted = |key: &&str| deleted.get(*key).is_some_and(|since| since < at);
                assert!(keys.iter().any(is_deleted), "{fact:?} was removed");
            }
            observed.lost.len()
        })
    }
}

impl Outage {
    fn begin(self, server: &ApiServer) {
        match self {
            Self::Refused | Self::Restarted => server.refuse_connections(),
            Self::Hanging => return server.hang_connections(true),
            Self::Failing => {
                server.faults(|faults| {
                    faults.error_response = Some(ErrorResponse {
                        code: 503,
                        times: usize::MAX,
                        retry_after: None,
                    });
                });
                return server.expire_watches();
            }
        }
        server.cut_connections(Disconnect::Reset);
    }

    fn end(self, server: &ApiServer) {
        match self {
            Self::Restarted => server.restart(Duration::ZERO, 1000),
            _ => server.clear_faults(),
        }
    }
}
